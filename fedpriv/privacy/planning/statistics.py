"""Plans of federated statistics: one release of a whole design, for its exact joint sensitivity."""

from __future__ import annotations

from math import floor, log2, sqrt
from typing import TYPE_CHECKING

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import grid_sensitivity, require_sizes
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget

_INFLATION = 1e-3  # of the sensitivity, for rounding to the grid


def statistics_step(*, width: int) -> float:
    """The grid of a vector of so many numbers, of which a record adds a norm of 1: a power of 2."""
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
    """
    relation, whose = Adjacency(adjacency), Unit(unit)
    require_sizes(sizes)
    if budget.delta == 0:
        raise ValueError("delta must be positive for statistics, got 0: their noise is Gaussian.")
    moved = grid_sensitivity(sensitivity, dimension=width, step=step)
    calibrated = calibrate(
        epsilon=budget.epsilon, delta=budget.delta, rounds=1, adjacency=relation, unit=whose
    )
    (multiplier,) = calibrated.noise_multipliers
    return FixedPlan(
        strategy="describe",
        query="sums over its records of counts, moments and cells whose bounds are declared",
        released="the sums over all parties, with noise",
        budget=budget,
        mechanisms=(
            GaussianMechanism(
                sensitivity=moved,
                stddev=multiplier / relation.sum_sensitivity * moved,
                adjacency=relation,
                unit=whose,
            ),
        ),
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=width,
        step=step,
        accountant=calibrated.accountant,
    )
