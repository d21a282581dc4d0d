"""The privacy loss of a Gaussian release in which a unit is in up to p samples, on a grid.

A person has records at p parties. Each of them draws its own Poisson sample of persons, with rate
q, and what is sampled adds at most 1/p to a sum of sensitivity 1; the noise has standard deviation
σ. With P = Σ_j w_j·N(j/p, σ²), w_j = C(p, j)·q^j·(1−q)^(p−j), and Q = N(0, σ²), the pairs (P, Q), a
person removed, and (Q, P), one added, dominate every pair of neighbouring data sets: a mixture of
Gaussians is dominated by the one with the norms of its shifts, all in one direction
(Choquette-Choo, Ganesh, Steinke and Thakurta 2024, arXiv:2310.15526, Cor. 4.7). Larger shifts
dominate smaller ones, so parts of norm less than 1/p are covered.

The likelihood ratio P/Q rises with x. So with x(ε) where it is e^ε,

    removed: δ(ε) = Σ_j w_j·Φ((j/p − x)/σ) − e^ε·Φ(−x/σ),          x = x(ε);  1 − e^ε at ε ≤ ln w_0
    added:   δ(ε) = Φ(x/σ) − e^ε·Σ_j w_j·Φ((x − j/p)/σ),           x = x(−ε);  0 at ε ≥ −ln w_0

In v = x/(pσ²) the ratio is a polynomial of e^v with coefficients a_j = w_j·e^(−j²/(2p²σ²)) > 0, and
ln Σ_{j≥1} a_j·e^(jv) is convex with slopes from 1 to p: Newton's method, started to the right of
the root, never leaves that side. An inexact x gives a δ that is too small by the *square* of its
error, far below the rounding that `PldAccountant` adds.

dp-accounting's `from_mixture_gaussian_mechanism` computes the same numbers one by one, in seconds.
For p = 1 this is `sampled_loss`.
"""

from __future__ import annotations

from math import ceil, floor, log, log1p
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_REACH = 10.0  # standard deviations at which the grid ends: as in `sampled_loss`
_STEPS = 50  # most Newton steps: the first guess is within ln p, and few are needed
_ENOUGH = 1e-12


def parts_loss(*, noise: float, rate: float, parts: int, step: float) -> Any:
    """A privacy-loss distribution for dp-accounting: an upper bound, on multiples of ``step``."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    def pmf(delta: Any, low: float, high: float) -> Any:
        first, last = floor(low / step), ceil(high / step)
        grid = np.arange(first, last + 1) * step
        curve = np.clip(delta(grid, noise=noise, rate=rate, parts=parts), 0.0, 1.0)
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, first, last, curve)

    ends = np.array([-_REACH * noise, _REACH * noise, 1 + _REACH * noise])
    least, same, most = _loss(ends, noise=noise, rate=rate, parts=parts).tolist()
    return privacy_loss_distribution.PrivacyLossDistribution(
        pmf(removed_parts_delta, least, most), pmf(added_parts_delta, -same, -least)
    )


def removed_parts_delta(epsilon: Vector, *, noise: float, rate: float, parts: int) -> Vector:
    """δ(ε) of the release with the unit against the one without."""
    inside = epsilon > parts * log1p(-rate)
    x = _point(np.where(inside, epsilon, 0.0), noise=noise, rate=rate, parts=parts)[:, None]
    shifts, log_weights = np.arange(parts + 1) / parts, _log_weights(rate, parts)
    with_unit = (np.exp(log_weights) * ndtr((shifts - x) / noise)).sum(1)
    without = np.exp(epsilon + log_ndtr(-x[:, 0] / noise))
    return np.where(inside, with_unit - without, -np.expm1(epsilon))


def added_parts_delta(epsilon: Vector, *, noise: float, rate: float, parts: int) -> Vector:
    """δ(ε) of the release without the unit against the one with it."""
    inside = -epsilon > parts * log1p(-rate)
    x = _point(np.where(inside, -epsilon, 0.0), noise=noise, rate=rate, parts=parts)[:, None]
    shifts, log_weights = np.arange(parts + 1) / parts, _log_weights(rate, parts)
    with_unit = logsumexp(log_weights + log_ndtr((x - shifts) / noise), axis=1)
    return np.where(inside, ndtr(x[:, 0] / noise) - np.exp(epsilon + with_unit), 0.0)


def parts_deviation(*, noise: float, rate: float, parts: int) -> float:
    """√χ² of the mixture, about the standard deviation of one loss; capped at e^50."""
    weights, j = np.exp(_log_weights(rate, parts)), np.arange(parts + 1)
    products = np.minimum(np.outer(j, j) / (parts * noise) ** 2, 50.0)
    return float(np.sqrt(weights @ np.expm1(products) @ weights))


def largest_parts_loss(*, noise: float, rate: float, parts: int) -> float:
    """The largest loss of one release, except with a probability of e^-50."""
    far = np.array([1 + _REACH * noise])
    return float(_loss(far, noise=noise, rate=rate, parts=parts)[0])


def _loss(x: Vector, *, noise: float, rate: float, parts: int) -> Vector:
    """ln P/Q at x."""
    v = x[:, None] / (parts * noise**2)
    terms = _coefficients(noise, rate, parts) + np.arange(parts + 1) * v
    return np.asarray(logsumexp(terms, axis=1))


def _point(epsilon: Vector, *, noise: float, rate: float, parts: int) -> Vector:
    """Where ln P/Q is ε, for ε > ln w_0."""
    j, logs = np.arange(1, parts + 1), _coefficients(noise, rate, parts)[1:]
    # ln(e^ε − w_0), in a form that never overflows.
    target = epsilon + np.log(-np.expm1(parts * log1p(-rate) - epsilon))
    v = ((target[:, None] - logs) / j).min(axis=1)
    for _ in range(_STEPS):
        # By columns: faster than by rows of a few numbers.
        terms = [log_a + power * v for power, log_a in zip(j, logs, strict=True)]
        most = np.maximum.reduce(terms)
        shares = [np.exp(term - most) for term in terms]
        total = np.add.reduce(shares)
        slope = np.add.reduce([power * share for power, share in zip(j, shares, strict=True)])
        step = (most + np.log(total) - target) * total / slope
        v = v - step
        if np.abs(step).max(initial=0.0) < _ENOUGH:
            break
    return np.asarray(v * parts * noise**2)


def _coefficients(noise: float, rate: float, parts: int) -> Vector:
    """ln a_j."""
    j = np.arange(parts + 1)
    return _log_weights(rate, parts) - np.square(j / (parts * noise)) / 2


def _log_weights(rate: float, parts: int) -> Vector:
    """ln w_j."""
    j = np.arange(parts + 1)
    choices = gammaln(parts + 1) - gammaln(j + 1) - gammaln(parts - j + 1)
    return np.asarray(choices + j * log(rate) + (parts - j) * log1p(-rate))
