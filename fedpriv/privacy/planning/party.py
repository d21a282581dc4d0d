"""Plans of client-level privacy: T noisy sums of the parties' clipped updates, for the party unit.

Everything is in units of the clip norm C: an update clipped to C counts 1, so that noise and cost
of a round do not depend on C, which may follow earlier releases.

**A count beside the updates** (adaptive clipping; Andrew et al. 2021, arXiv:1905.03871). Each party
also sends b - ½, b = 1 if its update was not clipped. With norm ½ for a party that takes part and 0
for one that does not, the count moves by ½ under add-remove and 1 under replace-one, in both cases
half as far as an update in units of C. So noise z_Δ on the updates and σ_b on the count cost
together exactly what noise z on the updates alone would, with

    z⁻² = z_Δ⁻² + (2σ_b)⁻²,

under either adjacency, as one Gaussian vector (Dong, Roth and Su 2022): scaled to κ·(b - ½) with
κ = z_Δ/σ_b, update and count get the same noise z_Δ, and norm √(1 + κ²/4) = z_Δ/z. On a Poisson
sample of the parties it stays *one* sampled Gaussian of multiplier z. A count of b itself, 0 or 1,
would be 1 away under add-remove, and the formula wrong by a factor of 2.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from fedpriv._validate import require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.plan import grid_sensitivity, require_sizes
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.privacy.budget import Budget


def update_noise(multiplier: float, count_noise: float) -> float:
    """z_Δ: the noise on updates such that, with a count with noise σ_b, the cost is that of z.

    >>> round(update_noise(1.0, 5.0), 9), round(update_noise(2.0, 10.0), 9)
    (1.005037815, 2.010075631)

    Args:
        multiplier: z, the noise on updates alone at the same cost.
        count_noise: σ_b, the standard deviation of the noise on Σ(b - ½).

    Raises:
        ValueError: σ_b is so small that the count alone costs as much.
    """
    require_positive(multiplier=multiplier, count_noise=count_noise)
    left = multiplier**-2 - (2 * count_noise) ** -2
    if left <= 0:
        raise ValueError(
            f"count_noise must be more than half of the noise multiplier, {multiplier / 2:.6g}, "
            f"got {count_noise:.6g}: the count alone would cost the whole budget."
        )
    return 1 / sqrt(left)


def noise_multiplier(
    *,
    budget: Budget,
    rounds: int,
    adjacency: Adjacency,
    sampling_rate: float = 1.0,
    accountant: str = "auto",
) -> tuple[float, str]:
    """z, the least noise of every round's sum in units of C, and the accountant that proves it."""
    calibrated = calibrate(
        epsilon=budget.epsilon,
        delta=budget.delta,
        rounds=rounds,
        sampling_rate=sampling_rate,
        adjacency=adjacency,
        accountant=accountant,
    )
    return calibrated.noise_multiplier, calibrated.accountant


def party_plan(
    *,
    strategy: str,
    budget: Budget,
    rounds: int,
    multiplier: float,
    norm: float,
    clip_norm: float,
    sizes: Sequence[int],
    dimension: int,
    step: float,
    adjacency: Adjacency | str,
    sampling_rate: float = 1.0,
    accountant: str = "auto",
    moves: bool = False,
    sums: str = "sum of updates",
) -> FixedPlan:
    """T noisy sums of the parties' clipped updates within a budget, the unit a party.

    Guarantee. That of Gaussian noise calibrated to one answer (add-remove) or two (replace-one) of
    norm ``norm``, plus √d·step for the grid; on Poisson samples of the parties, that of the sampled
    Gaussian, under add-remove adjacency alone.

    Args:
        strategy: name of the learning algorithm.
        budget: (ε, δ) of the whole run.
        rounds: T.
        multiplier: z of every round, as `noise_multiplier` finds it.
        norm: the largest norm of one party's answer in units of C: 1, or √(1 + κ²/4) with a count.
        clip_norm: C of the first round.
        sizes: n_j of every party, declared.
        dimension: the number of coordinates of an answer.
        step: grid width of the sum, in units of C.
        adjacency: whether a party joins or leaves, or all its records are exchanged.
        sampling_rate: Poisson rate of the parties; 1 is everybody.
        accountant: name, or "auto".
        moves: whether C follows counts of updates that were not clipped: the plan then fixes no C.
        sums: what gets noise in every round, in words.
    """
    relation = Adjacency(adjacency)
    require_sizes(sizes)
    require_positive(multiplier=multiplier, norm=norm)
    moved = grid_sensitivity(relation.sum_sensitivity * norm, dimension=dimension, step=step)
    mechanism = GaussianMechanism(
        sensitivity=moved,
        stddev=multiplier / relation.sum_sensitivity * moved,
        adjacency=relation,
        unit=Unit.PARTY,
    )
    later = f", {clip_norm:g} in the first round, which follows what was released" if moves else ""
    return FixedPlan(
        strategy=strategy,
        query="what local training made of the model, clipped as a whole, in units of the clip"
        + later,
        released=f"every round's noisy {sums}, hence every model of the run",
        budget=budget,
        mechanisms=(mechanism,) * rounds,
        parties=len(sizes),
        records=sum(sizes),
        smallest_party=min(sizes),
        dimension=dimension,
        step=step,
        clip_norm=None if moves else clip_norm,
        sampling_rate=sampling_rate,
        accountant=accountant,
    )
