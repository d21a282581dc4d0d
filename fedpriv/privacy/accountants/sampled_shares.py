"""Amplification by sampling of integer noise in shares: its Rényi divergence at integer orders.

Every party draws a Poisson sample of its own records with rate q, by secret coins, and adds its
share of the noise to the sum of the sample, whatever is in it. With one more record the observed
distribution P, integer noise around the sum of the others, becomes the mixture
M = (1 − q)·P + q·Q, with Q = P moved by an integer vector v within the sensitivities. (The coins of
all other records are the same on both sides: the bound holds given them, and D_α is jointly
quasi-convex, so it holds over them.)

*One order.* With L = Q/P, and E over P, for an integer α ≥ 2

    e^{(α−1)·D_α(M ‖ P)} = E (1 − q + q·L)^α = Σ_l C(α, l)·(1 − q)^{α−l}·q^l · E L^l,

and E L^l = e^{(l−1)·D_l(Q ‖ P)}, which is 1 for l = 0 and 1: exact, given a bound on every D_l.
*The other.* For noise that is symmetric around zero, x ↦ v − x, up to the place of the sum, swaps P
and Q; then D_α(P ‖ M) ≤ D_α(M ‖ P) (Mironov, Talwar and Zhang 2019, Thm. 5, for sums instead of
integrals). Skellam noise is symmetric, and so is the noise of fewer shares. ∎

Without symmetry the terms from l = 3 on would need a factor of 3 (Zhu and Wang 2019, Thm. 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from collections.abc import Callable

# Beyond this order the terms take long, and logarithms of binomial coefficients lose digits.
LARGEST_ORDER = 2048
# Rounding of logarithms of binomial coefficients at that order: about ten times the actual loss.
_RELATIVE_ROUNDING = 1e-10


def sampled_divergence(
    order: int, sampling_rate: float, divergence: Callable[[int], float]
) -> float:
    """D_α of symmetric noise on a Poisson sample, from D_l without sampling for l = 2 … α.

    Never more than without sampling, which is what sampling everything costs.

    Args:
        order: α, an integer of at least 2.
        sampling_rate: q, between 0 and 1.
        divergence: A bound on D_l of the release on all records, by l.
    """
    whole = divergence(order)
    if order > LARGEST_ORDER:
        return whole
    l = np.arange(2, order + 1)  # noqa: E741 (as above)
    moments = (l - 1) * np.array([divergence(int(each)) for each in l])
    log_weights = (
        gammaln(order + 1)
        - gammaln(l + 1)
        - gammaln(order - l + 1)
        + (order - l) * np.log1p(-sampling_rate)
        + l * np.log(sampling_rate)
    )
    # The weights of l = 0 … α sum to 1: Σ w·e^m = 1 + Σ w·(e^m − 1), robust against rounding.
    with np.errstate(divide="ignore"):  # a moment of zero adds nothing
        log_excess = np.where(moments > 30, moments, np.log(np.expm1(np.minimum(moments, 30.0))))
    total = np.logaddexp(0.0, np.logaddexp.reduce(log_weights + log_excess))
    amplified = float(total) / (order - 1) * (1 + _RELATIVE_ROUNDING)
    return min(amplified, whole)
