"""Plans of one Gaussian release: a few numbers, for a given sensitivity."""

from __future__ import annotations

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


def single_plan(
    *,
    strategy: str,
    query: str,
    released: str,
    budget: Budget,
    sensitivity: float,
    width: int,
    sizes: Sequence[int],
    step: float,
    adjacency: Adjacency | str,
    unit: Unit | str = DEFAULT_UNIT,
) -> FixedPlan:
    """One release of ``width`` noisy numbers.

    Guarantee. That of Gaussian noise calibrated to ``sensitivity``, plus √width·step for the grid,
    if one record moves the numbers by at most that.

    Args:
        strategy: whose release it is.
        query: what a party is asked for, in words.
        released: what is released, in words.
        budget: (ε, δ), with δ > 0.
        sensitivity: how far one record moves the numbers, in L2.
        width: how many numbers are released.
        sizes: n_j of every party, as the task states them.
        step: grid width of a number.
        adjacency: which data sets are compared.
        unit: whose records ``sensitivity`` is stated for.
    """
    relation, whose = Adjacency(adjacency), Unit(unit)
    require_sizes(sizes)
    moved = grid_sensitivity(sensitivity, dimension=width, step=step)
    calibrated = calibrate(
        epsilon=budget.epsilon, delta=budget.delta, rounds=1, adjacency=relation, unit=whose
    )
    (multiplier,) = calibrated.noise_multipliers
    return FixedPlan(
        strategy=strategy,
        query=query,
        released=released,
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
