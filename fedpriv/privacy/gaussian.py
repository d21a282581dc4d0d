"""The exact privacy of Gaussian noise: δ(ε, μ) and its two inverses.

A release that adds Gaussian noise of standard deviation σ to a query of L2 sensitivity Δ is exactly
μ-GDP with μ = Δ/σ, and T such releases, adaptively chosen with fixed noise, are μ-GDP with
μ² = Σ (Δ_t/σ_t)² (Dong, Roth and Su 2022, Cor. 2.1). μ-GDP is (ε, δ)-DP if and only if

    δ ≥ Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2)      (Balle and Wang 2018, Thm. 8).

Inverses are found by bisection of that expression (both branches of the analytic Gaussian
mechanism at once) and end on the private side of the root.
"""

from __future__ import annotations

from math import exp, inf, log, log1p, pi, sqrt
from typing import TYPE_CHECKING

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr, ndtri

from fedpriv._validate import require_delta, require_non_negative, require_positive

if TYPE_CHECKING:
    from collections.abc import Callable

# Relative error of δ per unit of conditioning, many times what comparison with mpmath shows.
_ROUNDING, _UNIT = 4e-15, 2.0**-52
# A root is found to about this relative error, then moved by it towards privacy.
_SLACK = 1e-13
_LARGEST_MU = 1e150  # its square, about ε, is near the largest float64
_LOG_ROOT_TWO_PI = log(2 * pi) / 2


def gdp_delta(*, mu: float, epsilon: float) -> float:
    """Smallest δ for which μ-GDP is (ε, δ)-DP, as `log_gdp_delta`."""
    return exp(log_gdp_delta(mu=mu, epsilon=epsilon))


def log_gdp_delta(*, mu: float, epsilon: float) -> float:
    """ln δ(ε, μ), accurate where δ itself would underflow.

    With a = ε/μ − μ/2 and b = ε/μ + μ/2, e^ε·φ(b) = φ(a), so that
    δ = φ(a)·(m(a) − m(b)), where m(x) = Φ(−x)/φ(x) is the Mills ratio: no exponential of ε remains.
    The rounding error of either form is bounded and added, so that the value is an upper bound.
    Where μ is so small that the two Mills ratios round to one number, another bound is smaller:
    their difference is below μ/(1 + a²), for m is convex and -m′(a) = 1 - a·m(a) < 1/(1 + a²).
    """
    require_non_negative(epsilon=epsilon)
    require_positive(mu=mu)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # Conditioning of the difference of Mills ratios and of a; below, that of the exponent.
    rounding = _ROUNDING + (1 + max(a, 0.0)) * (_ROUNDING / mu + _UNIT * mu)
    # Mills ratio m(x) = √(π/2)·erfcx(x/√2), and φ(a) = exp(−a²/2)/√(2π): the constants make 1/2.
    beyond = float(erfcx(b / sqrt(2)))
    if a < 0:  # δ is of order one: the difference itself is stable, and Φ(−a) ≥ 1/2
        direct = float(ndtr(-a)) - exp(-a * a / 2) * beyond / 2
        log_delta = log(direct) + rounding if direct > 0 else inf
        return min(log_delta, log(mu) - _LOG_ROOT_TWO_PI + _ROUNDING, 0.0)  # δ(ε) ≤ δ(0) ≤ φ(0)·μ
    gap = float(erfcx(a / sqrt(2))) - beyond
    log_gap = log(gap / 2) + rounding if gap > 0 else inf
    bound = log(mu) - log1p(a * a) - _LOG_ROOT_TWO_PI + _ROUNDING
    return -a * a / 2 * (1 - _ROUNDING) + min(log_gap, bound)


def gdp_epsilon(*, mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 for which μ-GDP is (ε, δ)-DP; infinite at δ = 0."""
    require_delta(delta=delta)
    require_positive(mu=mu)
    if delta == 0 or mu > _LARGEST_MU:
        return inf
    goal = log(delta)
    if log_gdp_delta(mu=mu, epsilon=0.0) <= goal:
        return 0.0
    # δ(ε) ≤ Φ(−ε/μ + μ/2), which equals δ at this ε: a bracket in closed form.
    high = max(mu * (mu / 2 - float(ndtri(delta))), mu * mu, 1e-300) * (1 + 1e-9)
    root = brentq(
        lambda epsilon: log_gdp_delta(mu=mu, epsilon=epsilon) - goal,
        0.0,
        high,
        xtol=1e-300,
        maxiter=2000,
    )
    return towards_privacy(
        root, lambda epsilon: log_gdp_delta(mu=mu, epsilon=epsilon) <= goal, up=True
    )


def gdp_mu(*, epsilon: float, delta: float) -> float:
    """Largest μ for which μ-GDP is (ε, δ)-DP: the calibration of Gaussian noise.

    One release needs σ = Δ/μ, T equal ones σ = Δ·√T/μ. Raises at δ = 0, which no Gaussian meets.
    """
    require_positive(epsilon=epsilon)
    require_delta(delta=delta)
    if delta == 0:
        raise ValueError(
            "delta must be positive for Gaussian noise, got 0: no finite noise is enough. "
            "Use Laplace noise for pure differential privacy (gradient-perturbation has it: law = "
            "l2-laplace or l1-laplace), or allow a small delta."
        )
    goal = log(delta)
    low = high = 1.0
    while log_gdp_delta(mu=low, epsilon=epsilon) > goal:
        low /= 2
    while log_gdp_delta(mu=high, epsilon=epsilon) <= goal:
        high *= 2
    root = brentq(
        lambda mu: log_gdp_delta(mu=mu, epsilon=epsilon) - goal,
        low,
        high,
        xtol=1e-300,
        maxiter=2000,
    )
    return towards_privacy(root, lambda mu: log_gdp_delta(mu=mu, epsilon=epsilon) <= goal, up=False)


def classical_gaussian_stddev(*, epsilon: float, delta: float) -> float:
    """The textbook σ/Δ = √(2 ln(1.25/δ))/ε, for comparison only: it is *not* private for large ε.

    At (10, 1e-5) its true δ is 2.3e-5. Nothing in fedpriv calibrates with it.
    """
    require_positive(epsilon=epsilon, delta=delta)
    return sqrt(2 * log(1.25 / delta)) / epsilon


def towards_privacy(root: float, holds: Callable[[float], bool], *, up: bool) -> float:
    """Move a root by growing relative steps until the guarantee itself confirms it."""
    step = _SLACK
    while not holds(root):
        root *= 1 + step if up else 1 - step
        step *= 2
    return root
