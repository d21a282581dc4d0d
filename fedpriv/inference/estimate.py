"""Estimate: coefficients with their covariance, or the reason why there is no covariance.

Refusal rules. The covariances of this package are of the first order: in the noise, and for
logistic models in the pull of the ridge as well. So intervals are given only where both are small.

*Noise.* The least eigenvalue of the released matrix must be beyond its noise,

    λ_min(M̃) > σ·max(k·√(2d), 6).

The spectral norm of the noise is about σ√(2d), and k = 2 for linear models, so that it is at most
half of what is left of the least eigenvalue. For logistic models k is 2.5: with k = 2, the runs
that passed only by a lucky draw of the noise, one in forty, covered the truth in only 92 % of
cases. With few coefficients σ√(2d) says little: a single direction has noise σ, and where it
carries the whole effect, a threshold below six σ let wrong intervals through in up to 11 % of all
runs.

*Pull.* See `logistic`: the correction for the ridge neglects at most τ standard errors of any
combination of coefficients, and τ must be below 0.35.

The rules keep small the chance that an interval is given *and* wrong: 5 %, and 7 to 8 % at their
edge (`benchmarks.coverage_edges`). No rule based on released numbers can promise 95 % coverage for
the intervals that pass by a lucky draw, since the same draw moves the estimate.
`benchmarks.coverage` measures how often intervals cover the truth. An interval is never widened
instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.inference.noisy_matrix import NoisyMatrix

    Array = NDArray[np.floating[Any]]

LINEAR_RULE, LOGISTIC_RULE = 2.0, 2.5
"""How many times the norm of the noise the least eigenvalue must be."""

LEAST_NOISES = 6.0
"""How many times the noise of one entry it must be, however few coefficients there are."""

MOST_PULL = 0.35
"""τ: how many standard errors the correction for a ridge may neglect."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curvature:
    """The input of the refusal rule: the least eigenvalue against the noise. Post-processing.

    Attributes:
        least: λ_min of the released matrix, (…).
        noise: σ√(2d).
        needed: What λ_min must exceed.
        rounding: The largest value that float64 cannot distinguish from zero, (…).
    """

    least: Array
    noise: float
    needed: float
    rounding: Array

    @classmethod
    def of(cls, matrix: NoisyMatrix, *, rule: float) -> Curvature:
        """That of a released matrix."""
        trace = np.trace(matrix.value, axis1=-2, axis2=-1)
        return cls(
            least=matrix.least_eigenvalue(),
            noise=matrix.noise_norm,
            needed=max(rule * matrix.noise_norm, LEAST_NOISES * matrix.stddev),
            rounding=np.asarray(_ROUNDING * np.abs(trace)),
        )

    @property
    def enough(self) -> NDArray[np.bool_]:
        """Whether intervals are given, (…)."""
        return np.asarray(self.least > np.maximum(self.needed, self.rounding))

    @property
    def missing_factor(self) -> float:
        """The factor on the number of records, or on μ, that would suffice; infinite if unknown.

        λ_min grows with the number of records N and σ falls with μ, so the rule holds for
        N·factor, or μ·factor, if λ_min(M̃)/N is the true least curvature per record. The noise
        moves λ_min by up to its norm: where λ_min is no larger than that, nothing can be said.
        """
        least = float(self.least)
        return self.needed / least if least > self.noise else inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """An estimate of d coefficients, on the scale that the records were summed in.

    Attributes:
        values: (…, d).
        covariance: Over sampling and noise, (…, d, d); None if intervals are refused.
        curvature: What the rule for the noise saw.
        pull: τ, what the rule for the ridge saw, (…); 0 without a ridge.
    """

    values: Array
    covariance: Array | None
    curvature: Curvature
    pull: Array = field(default_factory=lambda: np.zeros(()))

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
            pull=self.pull,
        )
