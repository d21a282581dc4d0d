"""Theorem on noisy descent with debiased momentum: its step size, and how its noise adds up.

    v_t = β·v_{t−1} + (1−β)·g_t,   θ_{t+1} = θ_t − η·v̂_t,   v̂_t = v_t/(1 − β^t),   t = 1 … T,

with g_t = ∇f(θ_t) + ξ_t, f M-smooth with PL constant μ, and ξ_t of mean zero, independent of all
before it, E‖ξ_t‖² = d·s_t².

Theorem. Let γ = 1 − ημ, r = β/γ < 1, Z = r/(1−r)² + β/(1−β)·r/(1−r), and

    ζ = 2·Z·(Mη)² + Mη − 1 ≤ 0.                                                             (step)

Then E[f(θ_{T+1})] − f* ≤ γ^T·(f(θ_1) − f*) + η·d·Σ_i Q_i·s_i², where
Q_i = Σ_{t=i…T} γ^(T−t)·w_{t,i}² and w_{t,i} = (1−β)·β^(t−i)/(1−β^t).

Proof. v̂_t = m_t + n_t, the means of ∇f(θ_i) and of ξ_i with the weights w_{t,i}, which add up to 1.
By smoothness, and −2⟨a, b⟩ = ‖a − b‖² − ‖a‖² − ‖b‖²,

    f(θ_{t+1}) ≤ f(θ_t) − (η/2)‖∇f(θ_t)‖² − (η/2)(1 − Mη)‖v̂_t‖² + (η/2)‖∇f(θ_t) − v̂_t‖²,

‖∇f(θ_t) − v̂_t‖² ≤ 2‖∇f(θ_t) − m_t‖² + 2‖n_t‖², and E‖n_t‖² = d·Σ_i w_{t,i}²·s_i². By Jensen,
smoothness and Cauchy–Schwarz

    ‖∇f(θ_t) − m_t‖² ≤ Σ_i w_{t,i}·M²‖θ_t − θ_i‖² ≤ (Mη)²·Σ_i w_{t,i}·(t−i)·Σ_{j=i…t−1}‖v̂_j‖².

With ‖∇f‖² ≥ 2μ(f − f*), the excess falls by γ in each round; unrolled to round T, ‖v̂_j‖² has the
factor (η/2)·γ^(T−j) times

    −(1 − Mη) + 2(Mη)²·Σ_{k≥1} γ^−k·Σ_{i≤j} w_{j+k,i}·(j+k−i).

The inner sum is E[m; m ≥ k] for a geometric m that is known to be below j+k. Without that condition
it is larger, for m·1[m ≥ k] grows with m: at most β^k·(k + β/(1−β)). Summed over k, that is Z, and
the factor is at most ζ ≤ 0. What is left is the claim.  ∎

At β = 0, Z = 0 and every step up to 1/M is allowed. γ belongs to the step: it is nearer to 1 than
the 1 − μ/M of plain descent. Nothing here relies on step conditions published elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from fedpriv._validate import require_non_negative, require_open_unit, require_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INSIDE = 1e-9  # the returned step is this much below the root


def step_excess(*, step: float, smoothness: float, strong_convexity: float, beta: float) -> float:
    """ζ of the theorem; the step is allowed where it is at most 0. Infinite if β ≥ γ."""
    gamma = 1 - step * strong_convexity
    if not beta < gamma:
        return float("inf")
    ratio, scaled = beta / gamma, smoothness * step
    drift = ratio / (1 - ratio) ** 2 + beta / (1 - beta) * ratio / (1 - ratio)
    return 2 * drift * scaled**2 + scaled - 1


def momentum_step_limit(*, smoothness: float, strong_convexity: float, beta: float) -> float:
    """The largest step for which the theorem holds, ζ = 0; always below 1/M.

    Args:
        smoothness: M.
        strong_convexity: μ, 0 ≤ μ ≤ M.
        beta: β.
    """
    require_positive(smoothness=smoothness)
    require_non_negative(strong_convexity=strong_convexity)
    require_open_unit(beta=beta)
    # ζ rises from −1 at 0 to at least 2Z > 0 at 1/M, and beyond all bounds at γ = β.
    most = min(1 / smoothness, (1 - beta) / strong_convexity if strong_convexity else np.inf)
    root = brentq(
        lambda step: min(
            step_excess(
                step=step, smoothness=smoothness, strong_convexity=strong_convexity, beta=beta
            ),
            1e300,
        ),
        0.0,
        most,
        xtol=most * 1e-12,
    )
    return float(root) * (1 - _INSIDE)


def momentum_noise(squares: NDArray[np.float64], *, beta: float) -> NDArray[np.float64]:
    """Σ_i w_{t,i}²·s_i² of every round t, from the s_t²: the noise that remains in v̂_t."""
    require_open_unit(beta=beta)
    from scipy.signal import lfilter  # slow to import, and needed here only

    kept = lfilter([(1 - beta) ** 2], [1.0, -(beta**2)], squares)
    return np.asarray(kept / np.square(1 - beta ** np.arange(1, len(squares) + 1.0)))
