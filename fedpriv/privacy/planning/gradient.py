"""Plans of gradient perturbation: T noisy sums of clipped gradients, for a given sensitivity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from fedpriv._validate import require_count, require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.conversions import pure_epsilon_before_sampling
from fedpriv.privacy.mechanisms import (
    GaussianMechanism,
    L1LaplaceMechanism,
    L2LaplaceMechanism,
    LaplaceMechanism,
)
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import grid_sensitivity, require_sizes
from fedpriv.privacy.samplers.sampler import require_scale
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.mechanisms.laws import PureLaw

_LAPLACE = {kind.name: kind for kind in (L2LaplaceMechanism, L1LaplaceMechanism)}
_MOST_STEPS = 2.0**36  # largest standard deviation of Laplace noise that is sampled, in grid steps


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
    parts: int = 1,
) -> FixedPlan:
    """T noisy sums of clipped gradients within a budget.

    Guarantee. That of Gaussian noise calibrated to ``sensitivity``, plus √d·step for the grid, if
    one record moves the sum by at most that.

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
        parts: at how many parties a unit has records: with sampling, each draws its own sample,
            which moves the sum by at most an equal part of ``sensitivity``.
    """
    relation, whose = Adjacency(adjacency), Unit(unit)
    moved = _moved(sensitivity, clip_norm, dimension, step, relation)
    if relative_noise is None:
        calibrated = calibrate(
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounds=rounds,
            sampling_rate=sampling_rate,
            adjacency=relation,
            unit=whose,
            parts=parts,
            shape=shape,
            accountant=accountant,
        )
        accountant = calibrated.accountant
        noise = tuple(z / relation.sum_sensitivity for z in calibrated.noise_multipliers)
    else:
        noise = (relative_noise,) * rounds
    return _plan(
        budget,
        tuple(
            GaussianMechanism(
                sensitivity=moved, stddev=relative * moved, adjacency=relation, unit=whose
            )
            for relative in noise
        ),
        sizes=sizes,
        dimension=dimension,
        step=step,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        parts=parts,
        accountant=accountant,
    )


def laplace_gradient_plan(
    *,
    budget: Budget,
    rounds: int,
    sensitivity: float,
    clip_norm: float,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    adjacency: Adjacency | str,
    law: PureLaw,
    clip_in: Literal["l2", "l1"] = "l2",
    sampling_rate: float = 1.0,
    unit: Unit | str = DEFAULT_UNIT,
) -> FixedPlan:
    """Laplace gradient descent: T noisy sums of clipped gradients under pure ε, δ = 0.

    Guarantee. Every release is ε_t-DP by its law, calibrated to ``sensitivity``, plus √d·step for
    the grid; they add up to T·ε_t = ε (basic composition: at δ = 0 there is no better one). On a
    Poisson sample a release costs ln(1 + q(e^{ε_t} − 1)), and that is what adds up.

    Gradients are clipped in L2. "l2-laplace" has a density ∝ exp(-ε_t‖b‖₂/Δ₂), and "l1-laplace"
    independent coordinates for Δ₁ ≤ √d·Δ₂: noise of √(d + 1)·Δ₂/ε_t or √(2d)·Δ₂/ε_t a coordinate.
    The radius of the first is a float64: T releases are within about T·d·2^-48 of their laws.

    Clipped in L1, with ``sensitivity`` in L1, "l1-laplace" has the scale Δ₁/ε_t itself, where Δ₁
    includes d·step for the grid: √2·Δ₁/ε_t a coordinate. This is less noise where a gradient of
    norm C₂ is at most √(d/2)·C₂ long in L1, as for records with few categories.

    Args: as `gradient_plan`, with the same noise in all rounds.
    """
    require_count(rounds=rounds)
    relation, whose = Adjacency(adjacency), Unit(unit)
    # In L1 every coordinate adds its rounding, as √(d²) of them would in L2.
    rounded = dimension if clip_in == "l2" else dimension**2
    moved = _moved(sensitivity, clip_norm, rounded, step, relation)
    if clip_in == "l1" and law != "l1-laplace":
        raise ValueError(f"law must be l1-laplace with clip_in = 'l1', got {law!r}.")
    if budget.delta != 0:
        raise ValueError(f"delta must be 0 with law = {law}, got {budget.delta!r}. Use gaussian.")
    epsilon = pure_epsilon_before_sampling(
        epsilon=budget.epsilon / rounds, sampling_rate=sampling_rate
    )
    kind = LaplaceMechanism if clip_in == "l1" else _LAPLACE[law]
    mechanism = kind(
        sensitivity=moved, epsilon=epsilon, dimension=dimension, adjacency=relation, unit=whose
    )
    # What cannot be drawn is refused now, not after a release was paid for.
    require_scale(largest=_MOST_STEPS, noise_stddev=mechanism.noise_stddev / step)
    plan = _plan(
        budget,
        (mechanism,) * rounds,
        sizes=sizes,
        dimension=dimension,
        step=step,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        accountant="auto",
    )
    return plan if clip_in == "l2" else replace(plan, query=f"{plan.query}, clipped in L1")


def _moved(
    sensitivity: float, clip_norm: float, dimension: int, step: float, adjacency: Adjacency
) -> float:
    """The sensitivity on the grid; refused if it is less than a clipped gradient's."""
    require_positive(clip_norm=clip_norm)
    if sensitivity < adjacency.sum_sensitivity * clip_norm:
        raise ValueError(
            f"sensitivity must be at least {adjacency.sum_sensitivity:g} times the clip_norm of "
            f"{clip_norm:g} under {adjacency.value} adjacency, got {sensitivity:g}."
        )
    return grid_sensitivity(sensitivity, dimension=dimension, step=step)


def _plan(
    budget: Budget,
    mechanisms: tuple[Mechanism, ...],
    *,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    clip_norm: float,
    sampling_rate: float,
    parts: int = 1,
    accountant: str,
) -> FixedPlan:
    require_sizes(sizes)
    return FixedPlan(
        strategy="gradient-perturbation",
        query="the sum of its records' clipped gradients at the current model",
        released="every round's noisy sum of gradients, hence every model of the run",
        budget=budget,
        mechanisms=mechanisms,
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=dimension,
        step=step,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        parts=parts,
        accountant=accountant,
    )
