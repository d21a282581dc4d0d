"""Plans of federated statistics: one release of a whole design, for its exact joint sensitivity."""

from __future__ import annotations

from math import floor, log2, sqrt
from typing import TYPE_CHECKING

from fedpriv.privacy.planning.single import single_plan
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.planning.fixed_plan import FixedPlan

RELEASED_SUMS = "the sums over all parties, with noise"
RELEASED_BY_PARTY = "the sums over every party by itself, with noise"
RELEASED_MAGNITUDES = "the counts of magnitudes over all parties, by powers of two, with noise"
"""What a description releases, as its statement says it."""

_INFLATION = 1e-3  # of the sensitivity, for rounding to the grid


def statistics_step(*, width: int) -> float:
    """The grid step, a power of 2, for ``width`` numbers in which one record has norm 1."""
    return 2.0 ** floor(log2(_INFLATION / sqrt(width)))


def statistics_plan(
    *,
    budget: Budget,
    sensitivity: float,
    width: int,
    sizes: Sequence[int],
    step: float,
    adjacency: Adjacency | str,
    unit: Unit | str = DEFAULT_UNIT,
    released: str = RELEASED_SUMS,
) -> FixedPlan:
    """One release of a vector of statistics, with Gaussian noise.

    Guarantee. That of Gaussian noise calibrated to ``sensitivity``, plus √width·step for the grid:
    μ² = Δ²/σ², the supremum over neighbours of the sum over all blocks.

    Args:
        budget: (ε, δ), with δ > 0.
        sensitivity: how far one unit moves the whole vector, in L2.
        width: how many numbers are released.
        sizes: n_j of every party, as the task states them.
        step: grid width.
        adjacency: which data sets are compared.
        unit: whose privacy ``sensitivity`` is stated for.
        released: what is released, in words.
    """
    if budget.delta == 0:
        raise ValueError("delta must be positive for statistics, got 0: their noise is Gaussian.")
    return single_plan(
        strategy="describe",
        query="sums over its records of counts, moments and cells whose bounds are declared",
        released=released,
        budget=budget,
        sensitivity=sensitivity,
        width=width,
        sizes=sizes,
        step=step,
        adjacency=adjacency,
        unit=unit,
    )
