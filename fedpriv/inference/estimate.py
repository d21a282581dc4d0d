"""Estimate: coefficients with their covariance, or the reason why there is no covariance.

Refusal rule. The covariances of this package follow the noise to the first order. That is void
where the noise is as large as the least curvature, so intervals are given only if

    λ_min(M̃) > k·σ·√(2d),

M̃ being the released matrix: the spectral norm of its noise is about σ√(2d), and k = 2 for linear
models, so that it is at most half of what is left of the least eigenvalue. For logistic ones k is
2.5: with 2, what is let through by a lucky draw of the noise alone, in one run of forty, held the
truth in 92 % only. `benchmarks.coverage` measures how often such intervals hold
the truth. An interval is never widened instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.inference.noisy_matrix import NoisyMatrix

    Array = NDArray[np.floating[Any]]

LINEAR_RULE, LOGISTIC_RULE = 2.0, 2.5
"""How many times the norm of the noise the least eigenvalue must be."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curvature:
    """What the refusal rule looks at: the least eigenvalue against the noise. Post-processing.

    Attributes:
        least: λ_min of the released matrix, (…).
        noise: σ√(2d).
        rule: k.
        rounding: What float64 cannot tell from zero, (…).
    """

    least: Array
    noise: float
    rule: float
    rounding: Array

    @classmethod
    def of(cls, matrix: NoisyMatrix, *, rule: float) -> Curvature:
        """That of a released matrix."""
        trace = np.trace(matrix.value, axis1=-2, axis2=-1)
        return cls(
            least=matrix.least_eigenvalue(),
            noise=matrix.noise_norm,
            rule=rule,
            rounding=np.asarray(_ROUNDING * np.abs(trace)),
        )

    @property
    def enough(self) -> NDArray[np.bool_]:
        """Whether intervals are given, (…)."""
        return np.asarray(self.least > np.maximum(self.rule * self.noise, self.rounding))

    @property
    def missing_factor(self) -> float:
        """By how much more the records, or μ, would do; infinite if the noise hides it.

        λ_min grows with the number of records N and σ falls with μ, so the rule holds for
        N·factor, or μ·factor, if λ_min(M̃)/N is what the least curvature of a record really is. The
        noise moves λ_min by up to its norm: where it is no larger than that, nothing can be said.
        """
        least = float(self.least)
        return self.rule * self.noise / least if least > self.noise else inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """An estimate of d coefficients, on the scale that the records were summed in.

    Attributes:
        values: (…, d).
        covariance: Over sampling and noise, (…, d, d); None if intervals are refused.
        curvature: What the refusal rule saw.
    """

    values: Array
    covariance: Array | None
    curvature: Curvature

    @property
    def stderr(self) -> Array | None:
        """Standard errors, (…, d)."""
        if self.covariance is None:
            return None
        found: Array = np.sqrt(np.diagonal(self.covariance, axis1=-2, axis2=-1))
        return found

    def mapped(self, matrix: Array, offset: Array) -> Estimate:
        """The estimate of T·β + t: in other units, say."""
        covariance = None if self.covariance is None else matrix @ self.covariance @ matrix.T
        return Estimate(
            values=self.values @ matrix.T + offset,
            covariance=covariance,
            curvature=self.curvature,
        )
