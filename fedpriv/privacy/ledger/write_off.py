"""Write off a ledger: everything left of its budget counts as spent, permanently.

For a ledger restored from a copy when nobody knows what was spent after the copy was made. The lost
ledger kept to the same budget, so that whatever it paid for fits into what the copy has left: once
that is charged, the rows say no less than what was spent, and nothing more can follow.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.events import ApproximateEvent, GaussianEvent, PureEvent
from fedpriv.privacy.ledger.composition import BasicComposition
from fedpriv.privacy.ledger.spend import BudgetRefusal

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.ledger import Ledger
    from fedpriv.privacy.ledger.spend import Spend

_NOTHING = 1e-11  # of the budget; ledgers compare with a tolerance that is ten times larger


def write_off(ledger: Ledger, *, run: str) -> Spend:
    """Charge everything that ``ledger`` has left, as releases of ``run`` that are never made.

    Guarantee. No release is admitted afterwards, except for what the ledger's own comparison of
    sums tolerates: a relative 1e-10 of the budget in all.

    Args:
        ledger: whose budget is to be spent.
        run: a name that says why, in the rows; no other run has it.
    """
    for round_ in count():
        spent = ledger.spent()
        if _all_spent(spent):
            return spent
        try:
            ledger.reserve(_all(ledger, spent), run=run, round=round_)
        except BudgetRefusal as refusal:
            if refusal.fits is None:
                return spent
            ledger.reserve(refusal.fits, run=run, round=round_)
    raise AssertionError("the loop has no other end")


def _all_spent(spent: Spend) -> bool:
    rule, left = spent.composition, spent.left
    if rule is None or (isinstance(rule, BasicComposition) and left.delta > 0):
        return False
    return left.share <= _NOTHING


def _all(ledger: Ledger, spent: Spend) -> Event:
    """A release of a kind that the ledger's rule prices, costing at least what is left."""
    rule, left = spent.composition, spent.left
    terms: Any = {"adjacency": ledger.settings.adjacency, "unit": ledger.settings.unit}
    if rule is None:  # the first charge chooses it
        return PureEvent(epsilon=spent.budget.epsilon, **terms)
    if not isinstance(rule, BasicComposition):
        return GaussianEvent(relative_noise=(4 * left.amount) ** -0.5, **terms)
    if left.delta > 0:
        epsilon = max(left.amount, _NOTHING * rule.limit())
        return ApproximateEvent(epsilon=epsilon, delta=left.delta, **terms)
    return PureEvent(epsilon=2 * left.amount, **terms)
