"""Accountants: each composes events into an upper bound (ε, δ).

Start with `base` (what an accountant is, and `account`), then `choice`, which takes the tightest
that applies; each of the others has its own file.
"""

from fedpriv.privacy.accountants.base import Accountant, UnsupportedEvent
from fedpriv.privacy.accountants.basic import AdvancedAccountant, BasicAccountant
from fedpriv.privacy.accountants.choice import (
    ACCOUNTANTS,
    Report,
    account,
    account_all,
    best_accountant,
)
from fedpriv.privacy.accountants.gdp import GdpAccountant
from fedpriv.privacy.accountants.pld import PldAccountant
from fedpriv.privacy.accountants.rdp import DEFAULT_ORDERS, RdpAccountant
from fedpriv.privacy.accountants.tcdp import CtcdpAccountant, TcdpAccountant
from fedpriv.privacy.accountants.zcdp import SimpleZcdpAccountant, ZcdpAccountant

__all__ = [
    "ACCOUNTANTS",
    "DEFAULT_ORDERS",
    "Accountant",
    "AdvancedAccountant",
    "BasicAccountant",
    "CtcdpAccountant",
    "GdpAccountant",
    "PldAccountant",
    "RdpAccountant",
    "Report",
    "SimpleZcdpAccountant",
    "TcdpAccountant",
    "UnsupportedEvent",
    "ZcdpAccountant",
    "account",
    "account_all",
    "best_accountant",
]
