"""The privacy statement: what a run guarantees, for a privacy officer to sign.

Start with `statement` (what it says) and `facts` (what it is made from); `text` and `registry` are
its forms, `signed` its signatures.
"""

from fedpriv.privacy.statement.facts import LedgerFacts, RunFacts, TrustModel
from fedpriv.privacy.statement.registry import to_registry_yaml
from fedpriv.privacy.statement.statement import Statement, make_statement
from fedpriv.privacy.statement.text import to_text

__all__ = [
    "LedgerFacts",
    "RunFacts",
    "Statement",
    "TrustModel",
    "make_statement",
    "to_registry_yaml",
    "to_text",
]
