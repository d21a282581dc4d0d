"""The price of a paid tuning: the best of a random number of trials, each of them μ-GDP.

**Selection.** K has the law of `fedpriv.privacy.trial_count`. Each of K independent trials runs the
same base mechanism: it draws its setting at random, with replacement, trains, and scores itself,
all within μ-GDP. The output of the trial with the best score is released, and neither K nor
anything of the other trials. Ties are broken by a uniform variable that is part of each output, so
that outputs are totally ordered, by the same order whatever the data are.

**Theorem (profile rule).** Let H(μ, ε) be the δ of μ-GDP at ε, and let ε₁ satisfy

    H(μ, ε₁) ≤ γ·(e^ε₁ − 1)/(1 − γ).

Then the selection is (ε, δ)-DP, both ways, with δ(ε) ≤ E K · H(μ, ε − (1 + η)·ε₁) for every ε of at
least (1 + η)·ε₁.

*Proof.* Let Q be the law of one output, with density q, Q(≤ y) the chance of an output that ranks
no higher than y, and Q′ the same for a neighbour. With f the generating function of K the answer
has the density q(y)·f′(Q(≤ y)), where f′(x) = E K·γ^(η+1)·(1 − (1 − γ)x)^(−η−1). With
p = 1 − Q(≤ y) and p′ likewise, p′ ≤ e^ε₁·p + H(μ, ε₁), so that

    (γ + (1 − γ)p′)/(γ + (1 − γ)p) ≤ max(e^ε₁, 1 + (1 − γ)·H(μ, ε₁)/γ) = e^ε₁,

and f′(Q) ≤ e^((1+η)ε₁)·f′(Q′). Hence, for every set S of outputs, A(S) − e^ε·A′(S) is at most
∫_S f′(Q)·(q − e^(ε − (1+η)ε₁)·q′) ≤ f′(1)·H(μ, ε − (1 + η)ε₁), and f′(1) = E K. ∎ (The shape of the
rule: Koskela, Redberg and Wang 2024, arXiv:2402.06701.) A base whose setting is drawn at random is
a mixture of μ-GDP mechanisms with the same weights on both sides, and has no larger profile: δ is
jointly convex in the two laws.

**Rényi form** (Papernot and Steinke 2022, Thm. 2), for accounting by Rényi divergences:

    ε′(α) = ε(α) + (1 + η)·((1 − 1/α̂)·ε(α̂) + ln(1/γ)/α̂) + ln(E K)/(α − 1),   ε(α) = α·μ²/2,

for every α̂ ≥ 1; the best is max(1, √(2·ln(1/γ))/μ). It is the larger bound of the two.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, expm1, inf, log, log1p, nextafter, sqrt
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from fedpriv._validate import require_delta, require_non_negative, require_positive
from fedpriv.privacy.gaussian import gdp_epsilon, log_gdp_delta, towards_privacy

if TYPE_CHECKING:
    from fedpriv.privacy.trial_count import TrialCount

_LARGEST_MU = 1e6
_ROUNDING = 1e-14  # relative, of a few sums and logarithms


@lru_cache(maxsize=1024)
def tuning_slack(*, mu: float, gamma: float) -> float:
    """ε₁, the least that satisfies the condition of the theorem; rounded up."""
    require_positive(mu=mu)

    def excess(epsilon: float) -> float:
        """ln of the condition's left side, minus ln of its right side."""
        allowed = log(gamma) - log1p(-gamma) + epsilon + log(-expm1(-epsilon))
        slack = _ROUNDING * (1 + abs(allowed))
        return log_gdp_delta(mu=mu, epsilon=epsilon) - allowed + slack

    low = high = min(mu, mu * mu)
    while excess(low) <= 0:
        low /= 2
    while excess(high) > 0:
        high *= 2
    root = brentq(excess, low, high, xtol=1e-300, maxiter=2000)
    return towards_privacy(root, lambda epsilon: excess(epsilon) <= 0, up=True)


def tuning_delta(*, mu: float, law: TrialCount, epsilon: float) -> float:
    """δ at ε by the profile rule, at most 1."""
    require_non_negative(epsilon=epsilon)
    if mu > _LARGEST_MU:
        return 1.0
    left = epsilon - _from_above((1 + law.eta) * tuning_slack(mu=mu, gamma=law.gamma))
    if left < 0:
        return 1.0
    return min(1.0, _from_above(law.mean * exp(log_gdp_delta(mu=mu, epsilon=left))))


def tuning_epsilon(*, mu: float, law: TrialCount, delta: float) -> float:
    """ε at δ by the profile rule: the inverse of `tuning_delta`; infinite at δ = 0.

    >>> from fedpriv.privacy.trial_count import TrialCount
    >>> law = TrialCount.with_mean(10.0)
    >>> round(tuning_epsilon(mu=0.25, law=law, delta=1e-6), 7)
    1.526161
    """
    require_delta(delta=delta)
    if delta == 0 or mu > _LARGEST_MU:
        return inf
    base = gdp_epsilon(mu=mu, delta=delta / law.mean * (1 - _ROUNDING))
    return _from_above((1 + law.eta) * tuning_slack(mu=mu, gamma=law.gamma) + base)


def tuning_divergence(*, order: float, mu: float, law: TrialCount) -> float:
    """D_α by the Rényi form, with the best α̂."""
    spread = -log(law.gamma)
    helper = max(1.0, sqrt(2 * spread) / mu)
    moved = (helper - 1) * mu * mu / 2 + spread / helper
    total = order * mu * mu / 2 + (1 + law.eta) * moved + log(law.mean) / (order - 1)
    return _from_above(total)


def _from_above(value: float) -> float:
    return nextafter(value * (1 + _ROUNDING), inf)
