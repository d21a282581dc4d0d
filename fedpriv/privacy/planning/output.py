"""Plans of output perturbation: one noisy model, for a given sensitivity.

That of a minimiser, 2G/(nλ), is derived in `fedpriv.learning.erm.problem`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedpriv._validate import require_choice
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    UnsoundLaplaceMechanism,
)
from fedpriv.privacy.mechanisms.laws import LAWS
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import grid_sensitivity, require_sizes
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.mechanisms.laws import Law

_LAPLACE = {
    kind.name: kind for kind in (L2LaplaceMechanism, L1LaplaceMechanism, UnsoundLaplaceMechanism)
}


def output_plan(
    *,
    budget: Budget,
    sensitivity: float,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    law: Law = "l2-laplace",
    joint: bool = False,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    unit: Unit | str = DEFAULT_UNIT,
) -> FixedPlan:
    """One noisy weighted average of the parties' minimisers (Jayaraman et al. 2018).

    Guarantee. That of the law, calibrated to ``sensitivity`` plus √d·step for the grid, if one unit
    moves the average by at most that. How far it moves is the theorem of
    `fedpriv.learning.erm.sensitivity.minimiser_sensitivity`. Averages over records are for
    replace-one adjacency, because how well each minimiser is known depends on its party's number of
    records. For persons that number is declared, under either.

    Args:
        budget: (ε, δ); δ = 0 with a Laplace law.
        sensitivity: how far one unit moves the average, in L2, before the grid.
        sizes: n_j of the parties, in records or persons.
        dimension: d.
        step: grid width of the sum.
        law: of the noise. "unsound-laplace" is for study: its plan has the √d·ε that it really
            costs as its budget.
        joint: whether it is the minimiser of all records together, not an average.
        adjacency: which data sets are compared; "add-remove" for a joint minimiser, or persons.
        unit: whose records ``sensitivity`` is stated for.
    """
    require_choice(LAWS, law=law)
    require_sizes(sizes)
    moved = grid_sensitivity(sensitivity, dimension=dimension, step=step)
    averaged = not joint and Unit(unit) is not Unit.PERSON
    if averaged and adjacency is not Adjacency.REPLACE_ONE:
        raise ValueError(
            f"adjacency must be 'replace-one' for an average of minimisers, got "
            f"{adjacency.value!r}. Use the joint minimiser."
        )
    mechanism = _mechanism(law, moved, dimension, budget, adjacency, Unit(unit))
    if isinstance(mechanism, UnsoundLaplaceMechanism):
        budget = replace(budget, epsilon=mechanism.event().epsilon)
    return FixedPlan(
        strategy="output-perturbation",
        query=(
            "sums of exact gradients, until the joint minimiser is found"
            if joint
            else "the minimiser of its own regularised risk, times its weight"
        ),
        released=(
            "the joint minimiser of all records, with noise"
            if joint
            else "the noisy average of the parties' minimisers"
        ),
        budget=budget,
        mechanisms=(mechanism,),
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=dimension,
        step=step,
        accountant="auto" if mechanism.sound else "basic",
    )


def _mechanism(
    law: Law,
    sensitivity: float,
    dimension: int,
    budget: Budget,
    relation: Adjacency,
    unit: Unit,
) -> Mechanism:
    if law != "gaussian":
        return _LAPLACE[law](
            sensitivity=sensitivity,
            epsilon=budget.epsilon,
            dimension=dimension,
            adjacency=relation,
            unit=unit,
        )
    calibrated = calibrate(
        epsilon=budget.epsilon, delta=budget.delta, rounds=1, adjacency=relation, unit=unit
    )
    relative = calibrated.noise_multiplier / relation.sum_sensitivity
    return GaussianMechanism(
        sensitivity=sensitivity, stddev=relative * sensitivity, adjacency=relation, unit=unit
    )
