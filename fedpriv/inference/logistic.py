"""Logistic regression by objective perturbation; standard errors account for the noise.

Two things were released: θ̂ = argmin Σ ℓ(y·xᵀθ) + (r/2)‖θ‖² + bᵀθ, b ~ N(0, σ_b²I), plus noise of
standard deviation σ_o that hides how exact the solver was; and H̃ = Σ p(1-p)xxᵀ at θ̂, plus E
(`noisy_matrix`). The ridge r pulls θ̂ towards 0, by a known amount to the first order: so it is
taken back, and the estimate is

    θ̃ = θ̂ + H̃⁻¹·rθ̂,   Var θ̃ = H̃⁻¹(H̃ + σ_b²·I + Cov(E·a))H̃⁻¹ + σ_o²·K·Kᵀ

with a = H̃⁻¹rθ̂ and K = I + rH̃⁻¹.

*Why.* The minimiser satisfies g(θ̂) + rθ̂ + b = 0, g being the sum of gradients. Around the true θ,
g(θ̂) = g(θ) + H(θ̂ - θ), hence θ̂ + H⁻¹rθ̂ - θ = -H⁻¹(g(θ) + b), and g(θ) has the covariance H where
the model is true. H̃⁻¹ for H⁻¹ moves the estimate by -H⁻¹E·a; the noise σ_o goes through K.

**Reference levels.** Records may have been summed with all levels of a category and an intercept,
x = W·u with u the coordinates that are kept: the fit has a minimiser because of the ridge alone,
but scores xᵀθ = uᵀ(Wᵀθ) identify β = Wᵀθ. The same lines, multiplied by W⁺ = (WᵀW)⁻¹Wᵀ, give

    β̃ = β̂ + H̃⁻¹W⁺rθ̂,   Var β̃ = H̃⁻¹(H̃ + σ_b²·W⁺W⁺ᵀ + Cov(E·a))H̃⁻¹ + σ_o²·K·Kᵀ,

H̃ that of u, and K = Wᵀ + rH̃⁻¹W⁺.

*Assumptions.* The log-odds are linear in x. First order in noise and ridge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.inference.estimate import LOGISTIC_RULE, Curvature, Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.inference.noisy_matrix import NoisyMatrix

    Array = NDArray[np.floating[Any]]


def logistic_estimate(
    theta: Array,
    curvature: NoisyMatrix,
    *,
    ridge: float,
    linear_stddev: float,
    output_stddev: float = 0.0,
    coding: Array | None = None,
) -> Estimate:
    """The estimate with the ridge taken back; without covariance, and as released, if refused.

    Args:
        theta: θ̂, (…, d).
        curvature: H̃ of the coordinates that are kept, (…, k, k).
        ridge: r: the strength of the regulariser on the scale of a sum, nΛ.
        linear_stddev: σ_b.
        output_stddev: σ_o.
        coding: W, (d, k); the identity if not given.
    """
    seen = Curvature.of(curvature, rule=LOGISTIC_RULE)
    W = np.eye(curvature.size) if coding is None else coding
    kept = theta @ W
    if not np.all(seen.enough):
        return Estimate(values=kept, covariance=None, curvature=seen)
    projected = np.linalg.pinv(W)
    inverse = np.linalg.inv(curvature.value)
    pull: Array = (inverse @ (ridge * theta @ projected.T)[..., None])[..., 0]
    passed = W.T + ridge * inverse @ projected
    middle = (
        curvature.value
        + linear_stddev**2 * projected @ projected.T
        + curvature.covariance_times(pull)
    )
    covariance = inverse @ middle @ inverse
    covariance = covariance + output_stddev**2 * passed @ np.swapaxes(passed, -1, -2)
    return Estimate(values=kept + pull, covariance=covariance, curvature=seen)
