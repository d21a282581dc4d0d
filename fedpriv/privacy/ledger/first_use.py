"""Open or create: a missing ledger is created only if nothing was ever paid from it.

A new ledger is a new, full budget. Callers remember elsewhere that a ledger was used, in the
directory of a run or in a party's journal, and state it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.privacy.ledger.errors import LedgerMissing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.privacy.ledger.ledger import Ledger


def create_if_first(path: Path, *, used_by: str | None, create: Callable[[], Ledger]) -> None:
    """Create the ledger at ``path`` if it does not exist and was never used.

    Args:
        path: where it is, or will be.
        used_by: who has paid from it before, as the subject of a sentence; None if nobody.
        create: creates it.

    Raises:
        LedgerMissing: It was used, and is gone.
    """
    if path.exists():
        return
    if used_by is not None:
        raise LedgerMissing(
            f"the ledger {str(path)!r} is gone, and {used_by} was paid from it. Put it back: a new "
            "one would forget what was spent."
        )
    create().close()
