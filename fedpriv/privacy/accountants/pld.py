"""Privacy-loss distributions: the tightest numerical accounting of releases fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import expm1, inf, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv._validate import require_delta, require_non_negative
from fedpriv.privacy.accountants.base import CountingAccountant, unsupported
from fedpriv.privacy.events import (
    BoundedRangeEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PureEvent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.events import Event

# Steps of the loss grid: at most so coarse, and so many to a standard deviation of one loss; fewer
# if there are many distinct events, each of which costs a convolution.
_COARSEST, _PARTS, _PARTS_FOR_MANY, _FEW = 1e-3, 40, 8, 10
_PURE = (PureEvent, PoissonPureEvent, BoundedRangeEvent)


@dataclass(frozen=True, slots=True, kw_only=True)
class PldAccountant(CountingAccountant):
    """Convolves privacy-loss distributions, discretised pessimistically, with dp-accounting.

    Guarantee. An upper bound for releases whose parameters were all fixed before the first one
    (Doroshenko et al. 2022). Full-batch Gaussians are merged exactly first.
    """

    name: ClassVar[str] = "pld"
    method: ClassVar[str] = "privacy-loss distribution"

    def _check(self, event: Event) -> None:
        if not isinstance(event, (GaussianEvent, PoissonGaussianEvent, LaplaceEvent, *_PURE)):
            raise unsupported(self, event, "its loss distribution is not known here; use rdp")

    def epsilon(self, delta: float) -> float:
        """ε at δ."""
        require_delta(delta=delta)
        if not self.counts:
            return 0.0
        epsilon = float(self._distribution().get_epsilon_for_delta(delta))
        return epsilon if epsilon >= 0 else inf

    def delta(self, epsilon: float) -> float:
        """δ at ε."""
        require_non_negative(epsilon=epsilon)
        if not self.counts:
            return 0.0
        return float(self._distribution().get_delta_for_epsilon(epsilon))

    def _distribution(self) -> Any:
        counts = _merge_gaussians(self.counts)
        step = _discretisation(counts)
        return reduce(
            lambda left, right: left.compose(right),
            (_single(event, step).self_compose(count) for event, count in counts.items()),
        )


def _merge_gaussians(counts: Mapping[Event, int]) -> dict[Event, int]:
    """Replace all full-batch Gaussians by the one that is exactly as revealing."""
    gaussians = {e: n for e, n in counts.items() if isinstance(e, GaussianEvent)}
    if not gaussians:
        return dict(counts)
    squared = sum(n * e.relative_noise**-2 for e, n in gaussians.items())
    merged = replace(next(iter(gaussians)), relative_noise=1 / sqrt(squared))
    return {merged: 1, **{e: n for e, n in counts.items() if e not in gaussians}}


def _discretisation(counts: Mapping[Event, int]) -> float:
    """A grid for the losses that is fine for *these* events; rounding is pessimistic on any grid.

    Discretising adds up to a quarter of step² to the variance of each loss: a fixed step would
    drown a run of tiny losses (at ε = 0.01 a step of 1e-4 costs a tenth more noise). A pure ε is
    rounded up to the grid, which adds up over the pure releases, so that those ask for a step of
    their own.
    """
    variance = sum(n * _loss_deviation(event) ** 2 for event, n in counts.items())
    pure = sum(n for event, n in counts.items() if isinstance(event, _PURE))
    parts = _PARTS if len(counts) <= _FEW else _PARTS_FOR_MANY
    return min(
        _COARSEST,
        sqrt(variance / sum(counts.values())) / parts,
        sqrt(variance) / (100 * max(pure, 1)),
    )


def _loss_deviation(event: Event) -> float:
    """About the standard deviation of the privacy loss of one release."""
    match event:
        case GaussianEvent():
            return 1 / event.relative_noise
        case PoissonGaussianEvent():  # √χ² of the mixture; capped, where one release tells all
            return event.sampling_rate * sqrt(expm1(min(event.relative_noise**-2, 50.0)))
        case LaplaceEvent() | PureEvent() | PoissonPureEvent() | BoundedRangeEvent():
            return event.pure_epsilon
    raise AssertionError(event)


def _single(event: Event, step: float) -> Any:
    # Slow to import. Its relation argument is never used: our events state their own sensitivity.
    from dp_accounting.pld import common, privacy_loss_distribution

    match event:
        case GaussianEvent():
            return privacy_loss_distribution.from_gaussian_mechanism(
                event.relative_noise, value_discretization_interval=step
            )
        case PoissonGaussianEvent():
            return privacy_loss_distribution.from_gaussian_mechanism(
                event.relative_noise,
                value_discretization_interval=step,
                sampling_prob=event.sampling_rate,
            )
        case LaplaceEvent():
            return privacy_loss_distribution.from_laplace_mechanism(
                event.relative_noise, value_discretization_interval=step
            )
        case PureEvent() | PoissonPureEvent() | BoundedRangeEvent():
            return privacy_loss_distribution.from_privacy_parameters(
                common.DifferentialPrivacyParameters(event.pure_epsilon, 0.0),
                value_discretization_interval=step,
            )
    raise AssertionError(event)
