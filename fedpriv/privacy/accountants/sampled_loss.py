"""The privacy loss of one Poisson-sampled Gaussian release, on a grid: closed forms, no loops.

A record joins the sample with probability q; noise of standard deviation σ is added to a sum of
sensitivity 1. With P = (1−q)·N(0, σ²) + q·N(1, σ²) and Q = N(0, σ²), the pairs (P, Q), a record
removed, and (Q, P), one added, dominate every pair of neighbouring data sets, and so do their
products (Zhu, Dong and Wang 2022, Thms. 8 and 11). Their hockey-stick divergences follow from that
of the Gaussian without sampling, δ_G(ℓ) = Φ(−ℓσ + 1/2σ) − e^ℓ·Φ(−ℓσ − 1/2σ), μ = 1/σ:

    removed: δ(ε) = q·δ_G(ℓ),                   e^ℓ = (e^ε − (1−q))/q;   1 − e^ε at ε ≤ ln(1−q)
    added:   δ(ε) = (1 − (1−q)·e^ε)·δ_G(−ℓ),    e^ℓ = (e^−ε − (1−q))/q;  0 at ε ≥ −ln(1−q)

Proof. The likelihood ratio exceeds e^ε where that of the unsampled pair exceeds e^ℓ. Removed:
P − e^ε·Q = q·(N(1, σ²) − e^ℓ·N(0, σ²)). Added: Q − e^ε·P = q·e^ε·(e^ℓ·N(0, σ²) − N(1, σ²)), in
which q·e^(ε+ℓ) = 1 − (1−q)·e^ε, and N(0, σ²) − e^−ℓ·N(1, σ²) has the mirror image of δ_G at −ℓ.

dp-accounting computes the same numbers one by one. It builds the distributions of these curves, as
of all others (`create_pmf_pessimistic_connect_dots_fixed_gap`: Doroshenko et al. 2022).
"""

from __future__ import annotations

from math import ceil, floor, log, log1p, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import erfcx, ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The grid ends this many standard deviations from the mean. The mass of 10⁻²³ beyond it counts as
# an infinite loss above the grid, and as the grid's least loss below it.
_REACH = 10.0
_HALF = 0.5


def removed_delta(
    epsilon: NDArray[np.float64], *, noise: float, rate: float
) -> NDArray[np.float64]:
    """δ(ε) of the sampled release against the one without the record."""
    return np.where(
        epsilon > log1p(-rate),
        rate * _gaussian_delta(_unsampled(epsilon, rate), 1 / noise),
        -np.expm1(epsilon),
    )


def added_delta(epsilon: NDArray[np.float64], *, noise: float, rate: float) -> NDArray[np.float64]:
    """δ(ε) of the release without the record against the sampled one."""
    scale = _complement(epsilon, rate)
    return np.asarray(scale * _gaussian_delta(-_unsampled(-epsilon, rate), 1 / noise))


def sampled_loss(*, noise: float, rate: float, step: float) -> Any:
    """A privacy-loss distribution for dp-accounting: an upper bound, on multiples of ``step``."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    def pmf(delta: Any, low: float, high: float) -> Any:
        first, last = floor(low / step), ceil(high / step)
        grid = np.arange(first, last + 1) * step
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            step, first, last, np.clip(delta(grid, noise=noise, rate=rate), 0.0, 1.0)
        )

    reach, half = _REACH / noise, (1 / noise) ** 2 / 2
    least, same, most = (
        _loss(score, rate) for score in (-reach - half, reach - half, reach + half)
    )
    return privacy_loss_distribution.PrivacyLossDistribution(
        pmf(removed_delta, least, most), pmf(added_delta, -same, -least)
    )


def _loss(unsampled: float, rate: float) -> float:
    """ln(1 − q + q·e^ℓ)."""
    return float(np.logaddexp(log1p(-rate), log(rate) + unsampled))


def _unsampled(epsilon: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """ℓ = ln((e^ε − (1−q))/q); −∞ where undefined."""
    # e^ε − (1−q) = e^ε·(1 − (1−q)·e^−ε), which never overflows.
    with np.errstate(divide="ignore"):
        return np.asarray(epsilon + np.log(_complement(-epsilon, rate)) - log(rate))


def _complement(epsilon: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """1 − (1−q)·e^ε, at least 0; off by a unit of rounding relative to 1, or to q if q is small."""
    if rate > _HALF:  # 1 − q is exact, and its logarithm may be large
        with np.errstate(over="ignore"):
            return np.maximum(1 - (1 - rate) * np.exp(epsilon), 0.0)
    return np.maximum(-np.expm1(np.minimum(log1p(-rate) + epsilon, 0.0)), 0.0)


def _gaussian_delta(loss: NDArray[np.float64], mu: float) -> NDArray[np.float64]:
    """δ_G, off by a few units of rounding of 1; see `log_gdp_delta` for the Mills ratios."""
    a, b = loss / mu - mu / 2, loss / mu + mu / 2
    beyond = np.where(
        b > 0,
        np.exp(-np.square(np.maximum(a, -mu)) / 2) * erfcx(np.maximum(b, 0.0) / sqrt(2)) / 2,
        np.exp(np.minimum(loss, 0.0)) * ndtr(-b),
    )
    return np.asarray(np.maximum(ndtr(-a) - beyond, 0.0))
