"""Rényi differential privacy: divergences at fixed orders add up."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, exp, inf, pi, sqrt
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedpriv.privacy.accountants.base import Accountant, squared, unsupported
from fedpriv.privacy.accountants.sampled_shares import sampled_divergence
from fedpriv.privacy.conversions import rdp_epsilon
from fedpriv.privacy.events import (
    BoundedRangeEvent,
    DistributedGaussianEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPartsEvent,
    PoissonPureEvent,
    PoissonSkellamEvent,
    PureEvent,
    SkellamEvent,
    TuningEvent,
    ZcdpEvent,
)
from fedpriv.privacy.tuning_profile import tuning_divergence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.privacy.events import Event

Orders = tuple[float, ...]
Divergences = tuple[float, ...]

# Tenths where the best order is small (much privacy lost), then sparser: the curve flattens.
DEFAULT_ORDERS: Orders = (
    *(1 + tenth / 10 for tenth in range(1, 100)),
    *map(float, range(11, 64)),
    *map(float, (64, 72, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 1024)),
)

_GAP_TERMS = 1000

# Below this ε logarithms of numbers close to 1 would cancel, down to a cost of 0 or less; there the
# zCDP of any ε-DP release, α·ε²/2, equals the divergence to four digits, from above.
_TINY = 1e-4
# How much rounding can take from (α - 1)·D_α in the reference, which is the logarithm of a sum with
# binomial coefficients, themselves logarithms of up to α·ln α: about four times what mpmath shows.
_ROUNDING, _RELATIVE_ROUNDING = 2.0**-50, 2.0**-48


@dataclass(frozen=True, slots=True, kw_only=True)
class RdpAccountant(Accountant):
    """D_α adds up at every order (Mironov 2017, Prop. 1); ε from the best order.

    Poisson-sampled Gaussian divergences come from dp-accounting (Mironov, Talwar and Zhang 2019);
    the closed forms for the rest are below, each with its source.
    """

    name: ClassVar[str] = "rdp"
    method: ClassVar[str] = "Rényi DP"
    most_levels: ClassVar[int] = 50  # 25 ms each; for many more rounds ε rises by up to 2 percent
    orders: Orders = DEFAULT_ORDERS
    divergences: Divergences = ()

    def __post_init__(self) -> None:
        Accountant.__post_init__(self)
        if not self.orders or not all(1 < order < inf for order in self.orders):
            raise ValueError(f"orders must be finite numbers above 1, got {self.orders!r}.")

    def _add(self, event: Event, count: int) -> Self:
        before = self.divergences or (0.0,) * len(self.orders)
        added = self.cost(event)
        return replace(
            self,
            divergences=tuple(b + count * a for b, a in zip(before, added, strict=True)),
        )

    def cost(self, event: Event) -> Divergences:
        """D_α of one release, at each of ``orders``; infinite where none is known."""
        match event:
            case PoissonGaussianEvent():
                return _poisson_gaussian(event.relative_noise, event.sampling_rate, self.orders)
            case PoissonPartsEvent():
                # If every part were released with a p-th of the noise's variance, their sum would
                # be the release: at most the cost of p sampled Gaussians of √p times the noise.
                noise = sqrt(event.parts) * event.relative_noise
                part = _poisson_gaussian(noise, event.sampling_rate, self.orders)
                return tuple(event.parts * divergence for divergence in part)
            case GaussianEvent():
                return self._each(lambda order: order * squared(1 / event.relative_noise) / 2)
            case ZcdpEvent():
                return self._each(lambda order: order * event.rho)
            case LaplaceEvent():
                return self._each(lambda order: _laplace(order, event.pure_epsilon))
            case PureEvent() | PoissonPureEvent():
                return self._each(lambda order: _randomized_response(order, event.pure_epsilon))
            case BoundedRangeEvent():
                return self._each(
                    lambda order: min(
                        order * squared(event.epsilon) / 8,
                        _randomized_response(order, event.epsilon),
                    )
                )
            case PoissonSkellamEvent():
                return self._each(lambda order: _poisson_skellam(ceil(order), event))
            case SkellamEvent():
                return self._each(lambda order: _skellam(order, event))
            case DistributedGaussianEvent():
                tau = convolution_gap(shares=event.shares, share_stddev=event.share_stddev)
                return self._each(lambda order: _distributed_gaussian(order, event, tau))
            case TuningEvent():
                return self._each(
                    lambda order: tuning_divergence(order=order, mu=event.base_mu, law=event.law)
                )
            case _:
                raise unsupported(self, event, "its Rényi divergence is not known here")

    def _each(self, divergence: Callable[[float], float]) -> Divergences:
        return tuple(divergence(order) for order in self.orders)

    def epsilon(self, delta: float) -> float:
        """ε at δ from the best order."""
        if not self.divergences:
            return 0.0
        return rdp_epsilon(
            orders=np.array(self.orders), divergences=np.array(self.divergences), delta=delta
        )


def _laplace(order: float, epsilon: float) -> float:
    """Mironov 2017, Table II: ln(α/(2α−1)·e^{(α−1)ε} + (α−1)/(2α−1)·e^{−αε})/(α−1)."""
    if epsilon < _TINY:
        return order * squared(epsilon) / 2
    gap = order - 1
    return float(
        np.logaddexp(
            np.log(order / (2 * order - 1)) + gap * epsilon,
            np.log(gap / (2 * order - 1)) - order * epsilon,
        )
        / gap
    )


def _randomized_response(order: float, epsilon: float) -> float:
    """The divergence of binary randomised response, which any ε-DP release can be computed from.

    Kairouz, Oh and Viswanath 2015, Thm. 2.5.
    """
    if epsilon < _TINY:
        return order * squared(epsilon) / 2
    log_p, log_q = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    gap = order - 1
    return float(np.logaddexp(order * log_p - gap * log_q, order * log_q - gap * log_p) / gap)


def _skellam(order: float, event: SkellamEvent) -> float:
    """Agarwal, Kairouz and Liu 2021, Thm. 3.5, at the next integer order: D_α grows with α."""
    alpha = ceil(order)
    l1, l2, variance = event.l1_sensitivity, event.l2_sensitivity, event.variance
    excess = min(((2 * alpha - 1) * l2**2 + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
    return alpha * l2**2 / (2 * variance) + excess


@lru_cache(maxsize=4096)
def _poisson_skellam(order: int, event: PoissonSkellamEvent) -> float:
    """At the next integer order, like `_skellam`."""
    return sampled_divergence(order, event.sampling_rate, lambda each: _skellam(each, event))


def _distributed_gaussian(order: float, event: DistributedGaussianEvent, tau: float) -> float:
    """Kairouz, Liu and Steinke 2021, Prop. 12: the least of three bounds."""
    scale = sqrt(event.shares) * event.share_stddev
    l1, l2 = event.l1_sensitivity / scale, event.l2_sensitivity / scale
    d = event.dimension
    return min(
        order * l2**2 / 2 + tau * d,
        order / 2 * (l2**2 + 2 * l1 * tau + tau**2 * d),
        order / 2 * (l2 + sqrt(d) * tau) ** 2,
    )


def convolution_gap(*, shares: int, share_stddev: float) -> float:
    """τ = 10·Σ_{k<n} exp(-2π²s²k/(k+1)): how far a sum of n discrete Gaussians is from being one.

    The terms decrease with k: beyond the thousandth each counts as the thousandth, an upper bound.
    """
    rate = 2 * pi**2 * share_stddev**2
    few = min(shares, _GAP_TERMS)
    head = sum(exp(-rate * k / (k + 1)) for k in range(1, few))
    return 10 * (head + (shares - few) * exp(-rate * few / (few + 1)))


@lru_cache(maxsize=4096)
def _poisson_gaussian(noise: float, sampling_rate: float, orders: Orders) -> Divergences:
    """Mironov, Talwar and Zhang 2019, and never more than the same release without sampling.

    Sampling cannot increase the cost: D_α is jointly quasi-convex, and the sample is a mixture of
    the full batch and nothing (van Erven and Harremoës 2014, Thm. 13).
    """
    # Slow to import, and needed for sampled releases only.
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant as Reference

    whole = [order * squared(1 / noise) / 2 for order in orders]
    reference = Reference(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = dp_accounting.PoissonSampledDpEvent(sampling_rate, dp_accounting.GaussianDpEvent(noise))
    try:
        with _unconverged_orders_in_silence(), np.errstate(all="ignore"):
            reference.compose(event)
    except (OverflowError, ZeroDivisionError, ValueError):  # some step is beyond float64
        return tuple(whole)
    alpha = np.array(orders)
    rounding = _ROUNDING * (16 + alpha * np.log(alpha)) / (alpha - 1)
    divergences = np.maximum(reference.rdp, 0.0) * (1 + _RELATIVE_ROUNDING) + rounding
    return tuple(map(float, np.fmin(divergences, whole)))


@contextmanager
def _unconverged_orders_in_silence() -> Iterator[None]:
    """Silence the reference's warning about an order without a bound: that order is left out."""

    def keep(record: logging.LogRecord) -> bool:
        return "failed to converge" not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
