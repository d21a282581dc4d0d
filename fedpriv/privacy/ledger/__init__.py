"""The budget ledger: a durable, append-only record of what was spent of a data set's budget.

Start with `ledger`: reserve, compute, commit, publish. Reservations are made by the strategies
(`fedpriv.federation.strategy.base`, `adaptive`), by deployed parties
(`fedpriv.federation.deployed.party`), and by `write_off`, where the rest of a budget is given up.
`composition` says how costs add up, `view` reads, `storage` is the file.
"""

from fedpriv.privacy.ledger.choice import (
    default_composition,
    deployed_composition,
    fitting_composition,
    fixed_composition,
)
from fedpriv.privacy.ledger.composition import Composition, Cost
from fedpriv.privacy.ledger.errors import (
    LedgerConflict,
    LedgerCorrupt,
    LedgerError,
    LedgerForeign,
    LedgerFull,
    LedgerLocked,
    LedgerMismatch,
    LedgerMissing,
    LedgerNewer,
    LedgerReadOnly,
    LedgerTampered,
)
from fedpriv.privacy.ledger.first_use import create_if_first
from fedpriv.privacy.ledger.ledger import Ledger
from fedpriv.privacy.ledger.reservations import Declaration, Reservation
from fedpriv.privacy.ledger.settings import Settings
from fedpriv.privacy.ledger.spend import BudgetRefusal, Left, Spend
from fedpriv.privacy.ledger.storage.chain import Kind, Row
from fedpriv.privacy.ledger.storage.verify import Verification
from fedpriv.privacy.ledger.view import RunSummary

__all__ = [
    "BudgetRefusal",
    "Composition",
    "Cost",
    "Declaration",
    "Kind",
    "Ledger",
    "LedgerConflict",
    "LedgerCorrupt",
    "LedgerError",
    "LedgerForeign",
    "LedgerFull",
    "LedgerLocked",
    "LedgerMismatch",
    "LedgerMissing",
    "LedgerNewer",
    "LedgerReadOnly",
    "LedgerTampered",
    "Left",
    "Reservation",
    "Row",
    "RunSummary",
    "Settings",
    "Spend",
    "Verification",
    "create_if_first",
    "default_composition",
    "deployed_composition",
    "fitting_composition",
    "fixed_composition",
]
