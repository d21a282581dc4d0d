"""Noisy matrix: second moments as they were released, with the variance of every entry's noise.

A symmetric Σ zzᵀ is released by its upper triangle, entries off the diagonal times √2, with
independent noise of variance σ² on each. Divided by √2 again, an entry of the diagonal has variance
σ² and one beside it σ²/2: E is of the Gaussian orthogonal ensemble. Entries that are known without
any release (the number of records; products of two levels of one category, which are 0) are put in
place of the noisy ones, with variance 0.

With variances v_ij of a symmetric E whose entries i ≤ j are independent,

    Cov(E·a)_ik = v_ik·a_i·a_k + [i = k]·Σ_{j≠i} v_ij·a_j²

which is (σ²/2)(‖a‖²I + aaᵀ) if every entry is noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_non_negative

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyMatrix:
    """A symmetric matrix with independent noise on its entries.

    Attributes:
        value: As released, (…, d, d).
        variance: Of the noise on every entry, (d, d), symmetric.
        stddev: σ, the largest: of an entry of the diagonal.
    """

    value: Array
    variance: Array
    stddev: float

    @classmethod
    def released(cls, value: Array, *, stddev: float) -> NoisyMatrix:
        """Σ zzᵀ plus the noise of a released triangle: σ on the diagonal, σ/√2 beside it."""
        require_non_negative(stddev=stddev)
        d = value.shape[-1]
        if value.shape[-2:] != (d, d):
            raise ValueError(f"value must be a square matrix, got shape {value.shape}.")
        symmetric = (value + np.swapaxes(value, -1, -2)) / 2
        variance = np.full((d, d), stddev**2 / 2) + np.eye(d) * stddev**2 / 2
        return cls(value=symmetric, variance=variance, stddev=stddev)

    @property
    def size(self) -> int:
        """d."""
        return int(self.variance.shape[-1])

    @property
    def noise_norm(self) -> float:
        """σ·√(2d), about the spectral norm of the noise."""
        return self.stddev * sqrt(2 * self.size)

    def with_known(self, row: Any, column: Any, value: float) -> NoisyMatrix:
        """The same with an entry, or several, that are known exactly."""
        values, variance = self.value.copy(), self.variance.copy()
        values[..., row, column] = values[..., column, row] = value
        variance[row, column] = variance[column, row] = 0.0
        return NoisyMatrix(value=values, variance=variance, stddev=self.stddev)

    def take(self, places: Any) -> NoisyMatrix:
        """The rows and columns of some coordinates."""
        kept = np.asarray(places, dtype=np.intp)
        return NoisyMatrix(
            value=self.value[..., kept[:, None], kept],
            variance=self.variance[kept[:, None], kept],
            stddev=self.stddev,
        )

    def covariance_times(self, vector: Array) -> Array:
        """Cov(E·a), of the noise E and a fixed vector a: (…, d, d)."""
        apart = self.variance - np.diag(np.diag(self.variance))
        outer = vector[..., :, None] * vector[..., None, :]
        return self.variance * outer + (vector**2 @ apart)[..., None] * np.eye(self.size)

    def least_eigenvalue(self) -> Array:
        """λ_min of the released matrix; it may be negative."""
        found: Array = np.linalg.eigvalsh(self.value)[..., 0]
        return found
