"""Noise of learned protection: on gradients, in units of the reference, and on their norms."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from fedpriv.federation.queries.bounds import headroom
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.filters import GdpFilter, RdpFilter, fresh_filter, least_noise

if TYPE_CHECKING:
    from fedpriv.learning.protector import Surroundings
    from fedpriv.privacy.planning.filters import PrivacyFilter
    from fedpriv.strategies.common.building import Setup

_U = 2.0**-53


def fund_of(setup: Setup, *, sampling_rate: float) -> PrivacyFilter:
    """The filter that pays: exact for Gaussian noise, one Rényi order for sampled releases."""
    name = GdpFilter.name if sampling_rate == 1 else RdpFilter.name
    return fresh_filter(name, budget=setup.budget, adjacency=setup.adjacency, unit=setup.unit)


def noise_of_all(
    fund: PrivacyFilter, *, sampling_rate: float, horizon: int, norm_share: float
) -> float:
    """σ/Δ, over q, of one release that would spend the whole budget: the networks' input.

    Exact for full batches. With sampling no single release stands for T of them: it is then the
    noise at which T gradients, each for its share of the budget, are as noisy as on a mean.
    """
    if sampling_rate == 1:
        return fund.whole_noise
    share = (1 - norm_share) / horizon
    noise = least_noise(fund, amount=share * fund.limit, sampling_rate=sampling_rate)
    return noise * sqrt(share) / sampling_rate


class Noises(NamedTuple):
    """The noise of a gradient at the reference, and that of every norm."""

    reference: GaussianMechanism
    norm: GaussianMechanism

    def times(self, factor: float) -> GaussianMechanism:
        """Noise of a gradient, in units of the reference."""
        return replace(self.reference, stddev=factor * self.reference.stddev)


def noises_of(
    setup: Setup,
    around: Surroundings,
    *,
    clip_norm: float,
    step: float,
    sensitivity: float,
    unit: float,
) -> Noises:
    """The noise on sums that the networks' numbers stand for: those are relative to ``unit``."""
    return Noises(
        reference=GaussianMechanism(
            sensitivity=sensitivity,
            stddev=around.gradient_noise * unit,
            adjacency=setup.adjacency,
            unit=setup.unit,
        ),
        norm=norm_mechanism(
            setup,
            clip_norm=clip_norm,
            step=step,
            sensitivity=sensitivity,
            relative_noise=around.norm_noise * unit / sensitivity,
        ),
    )


def norm_mechanism(
    setup: Setup, *, clip_norm: float, step: float, sensitivity: float, relative_noise: float
) -> GaussianMechanism:
    """Noise for the norm of a sum that one record moves by at most ``sensitivity``.

    The norm moves by no more: |‖S‖ − ‖S′‖| ≤ ‖S − S′‖. Rounding to the grid adds one step. Float64
    computes it within a factor 1 ± γ_(d+4) (Higham 2002, §3.1), and it is at most C times the
    largest possible number of records, plus √d steps for the rounding of every party.
    """
    task = setup.task
    most = headroom(setup.adjacency, task) * task.records
    longest = most * clip_norm + task.parties * sqrt(task.dimension) * step
    operations = task.dimension + 4
    gamma = operations * _U / (1 - operations * _U)
    moved = sensitivity + step + 2 * gamma * longest
    return GaussianMechanism(
        sensitivity=moved,
        stddev=relative_noise * moved,
        adjacency=setup.adjacency,
        unit=setup.unit,
    )
