"""Skellam noise: the difference of two Poisson variables, closed under addition."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ive

from fedpriv.privacy.samplers.rejection import TAIL, RejectionTable
from fedpriv.privacy.samplers.sampler import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    IntegerSampler,
    require_scale,
)

if TYPE_CHECKING:
    from mpmath.ctx_mp import MPContext
    from numpy.typing import NDArray

_LARGE = 1000.0  # from this variance on, the expansion below is within 3e-16 relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Skellam(IntegerSampler):
    """The difference of two Poisson(variance/2) draws: P(k) = exp(-variance)·I_k(variance).

    A sum of independent Skellam draws is Skellam, with the sum of the variances: n parties may
    each add a share of variance/n.
    """

    variance: float

    def __post_init__(self) -> None:
        require_scale(smallest=SMALLEST_SCALE**2, largest=LARGEST_SCALE**2, variance=self.variance)
        object.__setattr__(self, "_table", RejectionTable.build(_SkellamLaw(self.variance)))


@dataclass(frozen=True, slots=True)
class _SkellamLaw:
    """I_k(v)/I_0(v), with P(|X| ≥ r) ≤ 2·exp(-r²/(2(v + r/3))) by Bernstein's inequality.

    Bernstein's condition holds because X is a limit of sums of centred steps in {-1, 0, 1}.
    """

    variance: float

    @property
    def reach(self) -> float:
        return TAIL / 3 + sqrt((TAIL / 3) ** 2 + 2 * TAIL * self.variance)

    def ratio(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        v = self.variance
        if v < _LARGE:
            small: NDArray[np.float64] = ive(np.abs(x), v) / ive(0.0, v)
            return small
        r = np.hypot(x, v)
        exponent = x * (x / (r + v)) - x * np.arcsinh(x / v)
        correction = _debye(r, np.square(x / r)) / _debye(v, 0.0)
        ratio: NDArray[np.float64] = np.exp(exponent) * np.sqrt(v / r) * correction
        return ratio

    def exact_ratio(self, x: Any, context: MPContext) -> Any:
        v = context.mpf(self.variance)
        if v < _LARGE:
            return context.besseli(abs(x), v) / context.besseli(0, v)
        return _scaled_bessel(x, v, context) / _scaled_bessel(context.mpf(0), v, context)


def _debye(r: Any, p: Any) -> Any:
    """Five terms of Debye's expansion of I_k(v), uniform in k ≥ 0 (DLMF 10.41.3 and 10.41.10).

    I_k(v) = exp(r - k·asinh(k/v))/√(2πr) · (this + O(r^-5)) with r = √(k² + v²) and p = (k/r)².
    The first term left out is below 0.23/r⁵.
    """
    u1 = (3 - 5 * p) / 24
    u2 = (81 + p * (-462 + 385 * p)) / 1152
    u3 = (30375 + p * (-369603 + p * (765765 - 425425 * p))) / 414720
    u4 = (4465125 + p * (-94121676 + p * (349922430 + p * (-446185740 + 185910725 * p)))) / 39813120
    return 1 + (u1 + (u2 + (u3 + u4 / r) / r) / r) / r


def _scaled_bessel(k: Any, v: Any, context: MPContext) -> Any:
    """exp(-v)·I_k(v) to the precision of ``context``, for v of at least 1000.

    Cauchy's integral on the circle through the saddle point,
    I_k(v) = exp(r - k·asinh(k/v))/(2π) · ∫ exp(r(cos θ - 1))·cos(k(sin θ - θ)) dθ over (-π, π),
    by the trapezoidal rule. The integrand is close to a Gaussian of variance 1/r, for which both
    the step and the cut-off below leave errors of 2^-(precision + 32).
    """
    r = context.sqrt(k * k + v * v)
    nats = (context.prec + 32) * context.ln2
    step = context.pi * context.sqrt(1 / (r * nats))
    terms = ceil(context.sqrt(4 * nats / r) / step)
    total = context.mpf(1)
    for j in range(1, terms + 1):
        theta = j * step
        size = context.exp(-2 * r * context.sin(theta / 2) ** 2)
        total += 2 * size * context.cos(k * (context.sin(theta) - theta))
    peak = context.exp(k * k / (r + v) - k * context.asinh(k / v))
    return peak * step * total / (2 * context.pi)
