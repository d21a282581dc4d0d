"""Basic and advanced composition: the textbook accountants, sound for everything, seldom tight."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import expm1, inf, log1p, sqrt, tanh
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_delta
from fedpriv.privacy.accountants.base import CountingAccountant, log_inverse, squared, unsupported
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.budget import within
from fedpriv.privacy.conversions import zcdp_epsilon
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
    PoissonPureEvent,
    PureEvent,
    SkellamEvent,
    TuningEvent,
    ZcdpEvent,
)
from fedpriv.privacy.gaussian import gdp_epsilon
from fedpriv.privacy.tuning_profile import tuning_epsilon

if TYPE_CHECKING:
    from fedpriv.privacy.events import Event

_PURE = (LaplaceEvent, PureEvent, PoissonPureEvent, BoundedRangeEvent)
_SHARING = (
    GaussianEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
    ZcdpEvent,
    SkellamEvent,
    DistributedGaussianEvent,
    TuningEvent,
)
"""Releases with an ε at every δ: they share the δ that the others leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAccountant(CountingAccountant):
    """ε and δ add up (Dwork et al. 2006).

    Releases that state their own δ use it; others that are not pure share the rest equally.
    """

    name: ClassVar[str] = "basic"
    method: ClassVar[str] = "basic composition"

    def _check(self, event: Event) -> None:
        if not isinstance(event, (*_PURE, *_SHARING, ApproximateEvent)):
            raise unsupported(self, event, "no (ε, δ) of a single release is known")

    def epsilon(self, delta: float) -> float:
        """Σε_i; infinite if the releases state more than δ."""
        require_delta(delta=delta)
        return sum(count * epsilon for epsilon, count in self._singles(delta))

    def _singles(self, delta: float) -> list[tuple[float, int]]:
        """(ε, count) of every event, at its own δ or at an equal share of the remaining δ."""
        stated = sum(n * e.delta for e, n in self.counts.items() if isinstance(e, ApproximateEvent))
        if not within(stated, delta):
            return [(inf, 1)]
        sharing = sum(n for e, n in self.counts.items() if isinstance(e, _SHARING))
        share = max(0.0, delta - stated) / sharing if sharing else 0.0
        return [(_single_epsilon(event, share), count) for event, count in self.counts.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancedAccountant(BasicAccountant):
    """√(2·ln(1/δ′)·Σε_i²) + Σε_i·tanh(ε_i/2), for releases with different ε_i.

    Guarantee. The privacy losses, minus their means of at most ε_i·tanh(ε_i/2), are a martingale
    with differences within ±ε_i; Azuma's inequality gives the rest (Dwork, Rothblum and Vadhan
    2010; drift of Kairouz, Oh and Viswanath 2015). Half of δ pays for the deviation if any release
    is not pure, all of it otherwise.
    """

    name: ClassVar[str] = "advanced"
    method: ClassVar[str] = "advanced composition"

    def epsilon(self, delta: float) -> float:
        """ε at δ."""
        require_delta(delta=delta)
        pure = all(isinstance(event, _PURE) for event in self.counts)
        slack = delta if pure else delta / 2
        singles = self._singles(delta - slack)
        if not singles:
            return 0.0
        if delta == 0 or any(epsilon == inf for epsilon, _ in singles):
            return inf
        variance = sum(count * squared(epsilon) for epsilon, count in singles)
        drift = sum(count * epsilon * tanh(epsilon / 2) for epsilon, count in singles)
        return sqrt(2 * log_inverse(slack) * variance) + drift


@lru_cache(maxsize=4096)
def _single_epsilon(event: Event, delta: float) -> float:
    """ε of one release at ``delta``, by the best bound known for its kind."""
    match event:
        case LaplaceEvent() | PureEvent() | PoissonPureEvent() | BoundedRangeEvent():
            return event.pure_epsilon
        case ApproximateEvent():
            return event.epsilon
        case GaussianEvent():
            return gdp_epsilon(mu=1 / event.relative_noise, delta=delta)
        case PoissonGaussianEvent():  # (ε, δ) becomes (ln(1 − q + q·e^ε), qδ)
            share = delta / event.sampling_rate
            if share >= 1:
                return 0.0
            epsilon = gdp_epsilon(mu=1 / event.relative_noise, delta=share)
            return log1p(event.sampling_rate * expm1(epsilon)) if epsilon < 700 else inf
        case ZcdpEvent():
            return zcdp_epsilon(rho=event.rho, delta=delta)
        case TuningEvent():
            return tuning_epsilon(mu=event.base_mu, law=event.law, delta=delta)
        case SkellamEvent() | DistributedGaussianEvent() | PoissonPartsEvent():
            return (
                RdpAccountant(adjacency=event.adjacency, unit=event.unit)
                .compose(event)
                .epsilon(delta)
            )
    raise AssertionError(event)
