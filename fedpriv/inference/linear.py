"""Linear regression from noisy second moments; standard errors account for the noise.

With z = (x, y) one matrix is released, S̃ = Σ zzᵀ + E (`noisy_matrix`); M̃, ṽ and ỹy are its blocks.

    θ̂ = M̃⁻¹ṽ,   s² = (ỹy - 2θ̂ᵀṽ + θ̂ᵀM̃θ̂)₊/(N - d),   a = (-θ̂, 1)
    Var θ̂ = M̃⁻¹(s²·M̃ + C)M̃⁻¹,   C = Cov(E·a) without its last row and column

*Why.* With y = Xθ + e, ṽ - M̃θ = Xᵀe + (E·(-θ, 1)) but for its last entry; Xᵀe has the covariance
s²M and is independent of the noise. First order in the noise: `estimate.Curvature` says where.

*Assumptions.* The mean of y is linear in x, and e has one variance, independent of x; where y is
clamped to its bounds, this concerns the clamped y. N is the number of records: where it is private,
an estimate from the noisy square of a constant feature, or else a declared number.

`adassp` is the estimate where intervals are refused: with a ridge that makes M̃ + λI positive. It
is the adaptive rule of Wang 2018, except that λ_min is that of M̃: post-processing, without a
separate release.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.inference.estimate import LINEAR_RULE, Curvature, Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.inference.noisy_matrix import NoisyMatrix

    Array = NDArray[np.floating[Any]]

_CONFIDENCE = 0.05  # that the noise is larger than the ridge allows for


def linear_estimate(moments: NoisyMatrix, *, records: float | Array) -> Estimate:
    """Least squares of the last coordinate on the others; without covariance if refused.

    Args:
        moments: S̃ of (x, y).
        records: N, public, declared or estimated; (…).
    """
    d = moments.size - 1
    inner = moments.take(range(d))
    curvature = Curvature.of(inner, rule=LINEAR_RULE)
    if not np.all(curvature.enough):
        return Estimate(values=adassp(moments), covariance=None, curvature=curvature)
    mixed, square = moments.value[..., :d, d], moments.value[..., d, d]
    inverse = np.linalg.inv(inner.value)
    theta = _times(inverse, mixed)
    left = square - (theta * mixed).sum(-1)  # θ̂ᵀM̃θ̂ = θ̂ᵀṽ
    variance = np.maximum(left, 0.0) / np.maximum(np.asarray(records, float) - d, 1.0)
    residual = np.concatenate([-theta, np.ones((*theta.shape[:-1], 1))], axis=-1)
    noise = moments.covariance_times(residual)[..., :d, :d]
    middle = variance[..., None, None] * inner.value + noise
    return Estimate(values=theta, covariance=inverse @ middle @ inverse, curvature=curvature)


def adassp(moments: NoisyMatrix) -> Array:
    """(M̃ + λI)⁻¹ṽ with λ = max(0, τ - λ_min(M̃)), τ = σ(√(2d) + √(2·ln 20)): finite always."""
    d = moments.size - 1
    inner = moments.take(range(d))
    floor = inner.noise_norm + inner.stddev * sqrt(2 * log(1 / _CONFIDENCE))
    ridge = np.maximum(0.0, floor - inner.least_eigenvalue())
    lifted = inner.value + ridge[..., None, None] * np.eye(d)
    return _times(np.linalg.pinv(lifted, hermitian=True), moments.value[..., :d, d])


def _times(matrix: Array, vector: Array) -> Array:
    found: Array = (matrix @ vector[..., None])[..., 0]
    return found
