"""Plans of gradient perturbation: T noisy sums of clipped gradients, for a given sensitivity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._validate import require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import grid_sensitivity, require_sizes
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget


def gradient_plan(
    *,
    budget: Budget,
    rounds: int,
    sensitivity: float,
    clip_norm: float,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    adjacency: Adjacency | str,
    sampling_rate: float = 1.0,
    shape: Sequence[float] | None = None,
    relative_noise: float | None = None,
    accountant: str = "auto",
    unit: Unit | str = DEFAULT_UNIT,
) -> FixedPlan:
    """T noisy sums of clipped gradients within a budget.

    Guarantee. That of Gaussian noise calibrated to ``sensitivity``, plus √d·step for the grid, if
    one record moves the sum by no more.

    Args:
        budget: (ε, δ) of the whole run.
        rounds: T.
        sensitivity: how far one record moves the sum as it is computed, in L2, before the grid; at
            least 2C (replace-one) or C (add-remove), as the gradients are clipped to C.
        clip_norm: C, the bound on each record's gradient.
        sizes: n_j of every party in the sum.
        dimension: d.
        step: grid width of the sum.
        adjacency: which data sets are compared.
        sampling_rate: Poisson rate of the records; 1 is full batch.
        shape: relative noise of each round; None for equal noise.
        relative_noise: standard deviation / sensitivity of every round; None for the least that
            fits the budget.
        accountant: name, or "auto".
        unit: whose records ``sensitivity`` is stated for.
    """
    relation, whose = Adjacency(adjacency), Unit(unit)
    require_positive(clip_norm=clip_norm)
    require_sizes(sizes)
    moved = grid_sensitivity(sensitivity, dimension=dimension, step=step)
    if sensitivity < relation.sum_sensitivity * clip_norm:
        raise ValueError(
            f"sensitivity must be at least {relation.sum_sensitivity:g} times the clip_norm of "
            f"{clip_norm:g} under {relation.value} adjacency, got {sensitivity:g}."
        )
    if relative_noise is None:
        calibrated = calibrate(
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounds=rounds,
            sampling_rate=sampling_rate,
            adjacency=relation,
            unit=whose,
            shape=shape,
            accountant=accountant,
        )
        accountant = calibrated.accountant
        noise = tuple(z / relation.sum_sensitivity for z in calibrated.noise_multipliers)
    else:
        noise = (relative_noise,) * rounds
    return FixedPlan(
        strategy="gradient-perturbation",
        query="the sum of its records' clipped gradients at the current model",
        released="every round's noisy sum of gradients, hence every model of the run",
        budget=budget,
        mechanisms=tuple(
            GaussianMechanism(
                sensitivity=moved, stddev=relative * moved, adjacency=relation, unit=whose
            )
            for relative in noise
        ),
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=dimension,
        step=step,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        accountant=accountant,
    )
