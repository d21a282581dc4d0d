"""Plans of the two classical strategies: sensitivity from public facts, noise by calibration.

Answers are rounded to a fixed-point grid of width ``step`` before they are summed. Two answers that
differ by Δ in L2 then differ by at most Δ + √d·step, so that every sensitivity here carries that
term.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Literal

from fedpriv._validate import (
    require_choice,
    require_count,
    require_non_negative,
    require_positive,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism, L1LaplaceMechanism, L2LaplaceMechanism
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.mechanisms import Mechanism

Law = Literal["l2-laplace", "l1-laplace", "gaussian"]
LAWS: tuple[Law, ...] = ("l2-laplace", "l1-laplace", "gaussian")
Weights = Literal["equal", "proportional"]
WEIGHTS: tuple[Weights, ...] = ("equal", "proportional")


def gradient_plan(
    *,
    budget: Budget,
    rounds: int,
    clip_norm: float,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    adjacency: Adjacency | str,
    sampling_rate: float = 1.0,
    shape: Sequence[float] | None = None,
    accountant: str = "auto",
) -> Plan:
    """T noisy sums of clipped gradients within a budget.

    Guarantee. One record moves the sum of clipped gradients by at most 2C (replace-one) or C
    (add-remove) in L2, plus √d·step for rounding; Gaussian noise is calibrated to that.

    Args:
        budget: (ε, δ) of the whole run.
        rounds: T.
        clip_norm: C, the bound on each record's gradient.
        sizes: n_j of every party in the sum.
        dimension: d.
        step: grid width of the sum.
        adjacency: which data sets are compared.
        sampling_rate: Poisson rate of the records; 1 is full batch.
        shape: relative noise of each round; None for equal noise.
        accountant: name, or "auto".
    """
    relation = Adjacency(adjacency)
    require_positive(clip_norm=clip_norm, step=step)
    require_count(dimension=dimension)
    _require_sizes(sizes)
    found = calibrate(
        epsilon=budget.epsilon,
        delta=budget.delta,
        rounds=rounds,
        sampling_rate=sampling_rate,
        adjacency=relation,
        shape=shape,
        accountant=accountant,
    )
    sensitivity = relation.sum_sensitivity * clip_norm + sqrt(dimension) * step
    return Plan(
        strategy="gradient-perturbation",
        query="the sum of its records' clipped gradients at the current model",
        released="every round's noisy sum of gradients, hence every model of the run",
        budget=budget,
        mechanisms=tuple(
            GaussianMechanism(
                sensitivity=sensitivity,
                stddev=multiplier / relation.sum_sensitivity * sensitivity,
                adjacency=relation,
            )
            for multiplier in found.noise_multipliers
        ),
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=dimension,
        step=step,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        accountant=found.accountant,
    )


def output_plan(
    *,
    budget: Budget,
    lipschitz: float,
    regulariser: float,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    weights: Weights = "proportional",
    law: Law = "l2-laplace",
    tolerance: float = 0.0,
) -> Plan:
    """One noisy weighted average of the parties' minimisers (Jayaraman et al. 2018).

    Guarantee. Replacing a record of party j moves its minimiser, certified to a gradient norm of at
    most ``tolerance``, by at most 2G/(n_j·λ) + 2·tolerance/λ, and the average by w_j times that.
    With equal weights 1/m the smallest party decides: 2G/(m·n₍₁₎·λ); with n_j/N all parties do
    alike: 2G/(N·λ), never larger. Replace-one adjacency: the sizes enter the weights.

    Args:
        budget: (ε, δ); δ = 0 with a Laplace law.
        lipschitz: G, the Lipschitz constant of the loss.
        regulariser: λ, the strong convexity.
        sizes: n_j of the parties really in the sum.
        dimension: d.
        step: grid width of the sum.
        weights: "equal" (1/m) or "proportional" (n_j/N).
        law: "l2-laplace", "l1-laplace" or "gaussian".
        tolerance: gradient norm to which the parties certify their minimisers.
    """
    require_positive(lipschitz=lipschitz, regulariser=regulariser, step=step)
    require_non_negative(tolerance=tolerance)
    require_count(dimension=dimension)
    require_choice(LAWS, law=law)
    require_choice(WEIGHTS, weights=weights)
    _require_sizes(sizes)
    records = sum(sizes)
    moved = max(
        (1 / len(sizes) if weights == "equal" else size / records)
        * (2 * lipschitz / (size * regulariser) + 2 * tolerance / regulariser)
        for size in sizes
    )
    return Plan(
        strategy="output-perturbation",
        query="the minimiser of its own regularised risk, times its weight",
        released="the noisy average of the parties' minimisers",
        budget=budget,
        mechanisms=(_output_mechanism(law, moved + sqrt(dimension) * step, dimension, budget),),
        parties=len(sizes),
        records=records,
        smallest_party=min(sizes),
        dimension=dimension,
        step=step,
    )


def _output_mechanism(law: Law, sensitivity: float, dimension: int, budget: Budget) -> Mechanism:
    relation = Adjacency.REPLACE_ONE
    if law == "gaussian":
        found = calibrate(epsilon=budget.epsilon, delta=budget.delta, rounds=1, adjacency=relation)
        relative = found.noise_multiplier / relation.sum_sensitivity
        return GaussianMechanism(
            sensitivity=sensitivity, stddev=relative * sensitivity, adjacency=relation
        )
    kind = L2LaplaceMechanism if law == "l2-laplace" else L1LaplaceMechanism
    return kind(
        sensitivity=sensitivity, epsilon=budget.epsilon, dimension=dimension, adjacency=relation
    )


def _require_sizes(sizes: Sequence[int]) -> None:
    if not len(sizes):
        raise ValueError("sizes must hold at least one party, got none.")
    for index, size in enumerate(sizes):
        require_count(**{f"sizes[{index}]": size})
