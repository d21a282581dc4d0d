"""Plans of noisy counts: one release of a few numbers, for a given sensitivity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.privacy.planning.single import single_plan
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.fixed_plan import FixedPlan


def counts_plan(
    *,
    budget: Budget,
    sensitivity: float,
    counts: int,
    sizes: Sequence[int],
    step: float,
    adjacency: Adjacency | str,
    unit: Unit | str = DEFAULT_UNIT,
) -> FixedPlan:
    """One release of noisy counts of right and wrong answers.

    Guarantee. That of Gaussian noise calibrated to ``sensitivity``, plus √counts·step for the grid,
    if one record moves the counts by at most that.

    Args:
        budget: (ε, δ), with δ > 0.
        sensitivity: how far one record moves the counts, in L2.
        counts: how many numbers are released.
        sizes: n_j of every party, as the task states them: the counts are of other records.
        step: grid width of a count.
        adjacency: which data sets are compared.
        unit: whose records ``sensitivity`` is stated for.
    """
    if budget.delta == 0:
        raise ValueError("delta must be positive for noisy counts, got 0: their noise is Gaussian.")
    return single_plan(
        strategy="accuracy",
        query="how many of its held-out records the model classifies rightly, and how many wrongly",
        released="the two counts over all parties, with noise",
        budget=budget,
        sensitivity=sensitivity,
        width=counts,
        sizes=sizes,
        step=step,
        adjacency=adjacency,
        unit=unit,
    )
