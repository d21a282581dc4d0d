"""Ledger errors. In every case nothing was released and nothing recorded is lost.

Exceeding the budget is not a fault: see `BudgetRefusal` in `spend.py`.
"""

from __future__ import annotations


class LedgerError(RuntimeError):
    """The ledger cannot do what was asked."""


class LedgerMissing(LedgerError):
    """There is no file at this path."""


class LedgerForeign(LedgerError):
    """The file is not a ledger: no SQLite database, or somebody else's."""


class LedgerNewer(LedgerError):
    """A newer fedpriv wrote the file."""


class LedgerReadOnly(LedgerError):
    """The file, or the disk that it is on, cannot be written."""


class LedgerFull(LedgerError):
    """No space is left on the disk."""


class LedgerLocked(LedgerError):
    """Another process kept the ledger locked for longer than the timeout."""


class LedgerCorrupt(LedgerError):
    """SQLite cannot read the file: it is damaged or cut short."""


class LedgerTampered(LedgerCorrupt):
    """The file can be read, but its contents are inconsistent.

    Attributes:
        row: the number of the first bad row, or None if the fault lies in no single row.
        problem: what is wrong with it.
    """

    def __init__(self, problem: str, *, row: int | None = None) -> None:
        where = "the ledger" if row is None else f"row {row}"
        super().__init__(f"{where} was damaged or changed: {problem}.")
        self.row = row
        self.problem = problem


class LedgerMismatch(LedgerError):
    """The ledger belongs to another budget, adjacency, unit or data set than the one expected."""


class LedgerConflict(LedgerError):
    """The request contradicts what is already recorded: another event, release or kind of run."""
