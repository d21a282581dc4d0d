"""Closed forms between privacy notions, each with its source. L = ln(1/δ) throughout.

Every function returns a sound bound. Where the literature has a looser and a tighter form, both are
here, under names that tell them apart.
"""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p, log2, sqrt, tanh
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from fedpriv._validate import (
    require_count,
    require_delta,
    require_non_negative,
    require_open_unit,
    require_positive,
    require_rate,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def zcdp_epsilon_simple(*, rho: float, delta: float) -> float:
    """ε = ρ + 2√(ρL): ρ-zCDP implies (ε, δ)-DP (Bun and Steinke 2016, Prop. 1.3)."""
    require_non_negative(rho=rho)
    require_delta(delta=delta)
    if rho == 0:
        return 0.0
    return rho + 2 * sqrt(rho * -log(delta)) if delta > 0 else inf


def zcdp_rho_simple(*, epsilon: float, delta: float) -> float:
    """ρ = (√(L+ε) − √L)²: the exact inverse of `zcdp_epsilon_simple`, without cancellation."""
    require_positive(epsilon=epsilon)
    require_open_unit(delta=delta)
    L = -log(delta)
    return (epsilon / (sqrt(L + epsilon) + sqrt(L))) ** 2


def zcdp_epsilon(*, rho: float, delta: float) -> float:
    """The best ε over all Rényi orders (Canonne, Kamath and Steinke 2020, Cor. 13).

    Any order gives a sound ε, so a slightly inexact minimiser costs tightness, never privacy.
    """
    require_non_negative(rho=rho)
    require_delta(delta=delta)
    if rho == 0:
        return 0.0
    if delta == 0:
        return inf
    # The simple conversion is least at α = 1 + √(L/ρ); the best order is near it.
    centre = (log(-log(delta)) - log(rho)) / 2
    minimum = minimize_scalar(
        lambda log_gap: _at_order(exp(log_gap), (1 + exp(log_gap)) * rho, delta),
        bounds=(centre - 6, centre + 6),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return max(0.0, min(float(minimum.fun), zcdp_epsilon_simple(rho=rho, delta=delta)))


def rdp_epsilon(
    *, orders: NDArray[np.float64], divergences: NDArray[np.float64], delta: float
) -> float:
    """The best ε that Rényi divergences at ``orders`` > 1 imply (same source as `zcdp_epsilon`)."""
    require_delta(delta=delta)
    if np.all(divergences == 0):
        return 0.0
    if delta == 0:
        return inf
    epsilons = [
        _at_order(float(order) - 1, float(divergence), delta)
        for order, divergence in zip(orders, divergences, strict=True)
        if divergence < inf
    ]
    return max(0.0, min(epsilons, default=inf))


def _at_order(gap: float, divergence: float, delta: float) -> float:
    """ε from one order α = 1 + gap: D_α + (L + (α−1)·ln(1 − 1/α) − ln α)/(α − 1)."""
    return divergence - log1p(1 / gap) - (log(delta) + log1p(gap)) / gap


class TruncatedBudget(NamedTuple):
    """(ρ, ω)-tCDP: Rényi divergence at most ρα for every order α in (1, ω)."""

    rho: float
    omega: float


def tcdp_epsilon(*, rho: float, omega: float, delta: float) -> float:
    """ε of (ρ, ω)-tCDP: the simple zCDP rule if its order is below ω, else the order ω itself.

    Bun, Dwork, Rothblum and Steinke 2018, Lemma 6.
    """
    require_non_negative(rho=rho)
    require_delta(delta=delta)
    if not omega > 1:
        raise ValueError(f"omega must be greater than 1, got {omega!r}.")
    if rho == 0:
        return 0.0
    if delta == 0:
        return inf
    L = -log(delta)
    best_order = 1 + sqrt(L / rho)
    if best_order <= omega:
        return zcdp_epsilon_simple(rho=rho, delta=delta)
    return rho * omega + L / (omega - 1)


def ctcdp_budget(*, epsilon: float, delta: float) -> TruncatedBudget:
    """The tCDP budget that is (ε, δ)-DP: with a = L/ε, ω_a = 1 + a + √(a(a+1)), ρ_a as below.

    ρ_a = ε(√(a+1) − √a)². Any (ρ, ω) with ρ ≤ ρ_a and ω ≥ ω_a is within (ε, δ).
    """
    rho = zcdp_rho_simple(epsilon=epsilon, delta=delta)
    a = -log(delta) / epsilon
    return TruncatedBudget(rho=rho, omega=1 + a + sqrt(a * (a + 1)))


def ctcdp_epsilon(*, rho: float, omega: float, delta: float) -> float:
    """The least ε whose `ctcdp_budget` at δ covers (ρ, ω): both ρ ≤ ρ_a and ω ≥ ω_a.

    ρ_a grows with ε, and ω_a falls: with w = ω − 1, ω_a = ω at a = w²/(1 + 2w), which is
    ε = L(2ω − 1)/(ω − 1)². The larger of the two ε. Never less than `tcdp_epsilon`, which only
    needs the best order below ω.
    """
    tight = tcdp_epsilon(rho=rho, omega=omega, delta=delta)
    if tight in (0.0, inf) or omega == inf:
        return tight
    least = -log(delta) * (2 * omega - 1) / (omega - 1) ** 2
    return max(zcdp_epsilon_simple(rho=rho, delta=delta), least, tight)


def tcdp_subsampled(*, rho: float, sampling_rate: float) -> TruncatedBudget:
    """Poisson amplification of a ρ-zCDP release: (13q²ρ, ln(1/q)/(4ρ))-tCDP.

    Bun, Dwork, Rothblum and Steinke 2018, Thm. 11; raises where its conditions fail. Four to five
    times looser than Rényi accounting: a baseline.
    """
    require_positive(rho=rho)
    require_open_unit(sampling_rate=sampling_rate)
    spread = -log(sampling_rate)
    rules = {
        "rho <= 0.1": rho <= 0.1,
        "sampling_rate <= 0.1": sampling_rate <= 0.1,
        "ln(1/q) >= 3 rho (2 + log2(1/rho))": spread >= 3 * rho * (2 + log2(1 / rho)),
        "ln(1/q) / (2 rho) >= 3": spread / (2 * rho) >= 3,
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise ValueError(
            f"tCDP amplification needs {broken[0]}; got rho = {rho:.4g}, "
            f"sampling_rate = {sampling_rate:.4g}. Use more noise, or the RDP or PLD accountant."
        )
    return TruncatedBudget(rho=13 * sampling_rate**2 * rho, omega=spread / (4 * rho))


def advanced_composition(
    *, epsilon: float, count: int, delta_slack: float, tight: bool = True
) -> float:
    """Total ε of ``count`` ε-DP releases, at an extra failure probability δ′.

    ε√(2k·ln(1/δ′)) + kε·(e^ε−1)/(e^ε+1); ``tight=False`` drops the denominator (Dwork, Rothblum
    and Vadhan 2010; the drift term of Kairouz, Oh and Viswanath 2015). The factor ε of the drift is
    essential: without it the statement is false.
    """
    require_positive(epsilon=epsilon)
    require_count(count=count)
    require_open_unit(delta_slack=delta_slack)
    drift = tanh(epsilon / 2) if tight else expm1(epsilon)
    return epsilon * sqrt(2 * count * -log(delta_slack)) + count * epsilon * drift


def advanced_composition_step(*, epsilon: float, count: int, delta_slack: float) -> float:
    """ε of each of ``count`` releases so that together they stay within ε: ε/√(8T·ln(1/δ′)).

    Dwork and Roth 2014, Cor. 3.21. Half of ε pays for the deviation; the drift, at most
    T·(step ε)²/2 = ε²/(16·ln(1/δ′)), fits in the other half if and only if ε ≤ 8·ln(1/δ′).
    """
    require_positive(epsilon=epsilon)
    require_open_unit(delta_slack=delta_slack)
    require_count(count=count)
    limit = 8 * -log(delta_slack)
    if epsilon > limit:
        raise ValueError(
            f"epsilon must be at most 8 ln(1/delta_slack) = {limit:.4g} for this corollary, "
            f"got {epsilon!r}. Use basic composition."
        )
    return epsilon / sqrt(8 * count * -log(delta_slack))


def pure_epsilon_before_sampling(*, epsilon: float, sampling_rate: float) -> float:
    """ε of a release on a Poisson sample that costs ``epsilon``: ln(1 + (e^ε − 1)/q)."""
    require_positive(epsilon=epsilon)
    require_rate(sampling_rate=sampling_rate)
    if sampling_rate == 1:
        return epsilon
    if epsilon > 700:  # e^ε would overflow; 1 + (e^ε − 1)/q = e^ε·(1 − (1−q)·e^−ε)/q
        return epsilon - log(sampling_rate) + log1p((sampling_rate - 1) * exp(-epsilon))
    return log1p(expm1(epsilon) / sampling_rate)


def subsampled_pure_epsilon(*, epsilon: float, sampling_rate: float) -> float:
    """ε of an ε-DP release on a Poisson sample: ln(1 − q + q·e^ε) (Li, Qardaji and Su 2012)."""
    require_positive(epsilon=epsilon)
    require_rate(sampling_rate=sampling_rate)
    if epsilon > 700:  # e^ε would overflow; ln(1 − q + q·e^ε) = ε + ln(q + (1−q)·e^−ε)
        return epsilon + log(sampling_rate + (1 - sampling_rate) * exp(-epsilon))
    return log1p(sampling_rate * expm1(epsilon))


class PrivacyLoss(NamedTuple):
    """The privacy loss that a guarantee allows: (ε, δ)."""

    epsilon: float
    delta: float


def group_privacy(*, epsilon: float, delta: float, size: int) -> PrivacyLoss:
    """What (ε, δ) for one record implies for ``size`` records: (kε, δ·(e^{kε}−1)/(e^ε−1)).

    Two records, k = 2, turn an add-remove guarantee into a replace-one guarantee. A δ of 1 or more
    means no guarantee.
    """
    require_non_negative(epsilon=epsilon)
    require_delta(delta=delta)
    require_count(size=size)
    total = size * epsilon
    if epsilon == 0:
        growth = float(size)
    elif (size - 1) * epsilon < 700:
        growth = exp((size - 1) * epsilon) * expm1(-total) / expm1(-epsilon)
    else:
        growth = inf
    return PrivacyLoss(epsilon=total, delta=min(1.0, delta * growth) if delta else 0.0)
