"""Refusals by a budget, a ledger or a party: a message for people, not a trace."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what is refused by rule into the one kind of error that `main` prints."""
    try:
        yield
    except Exception as error:
        if isinstance(error, _kinds()):
            raise ValueError(str(error)) from None
        raise


def _kinds() -> tuple[type[Exception], ...]:
    """Imported when something failed: most runs need none of them."""
    from fedpriv.federation.engines.grid import RoundFailed
    from fedpriv.learning.erm.certificate import ToleranceNotReachedError
    from fedpriv.privacy.budget import BudgetExceeded
    from fedpriv.privacy.ledger import LedgerError

    return BudgetExceeded, LedgerError, RoundFailed, ToleranceNotReachedError
