"""Number of trials of a private tuning: the truncated negative binomial distribution of K.

    P[K = k] = (1 − γ)^k/(γ^−η − 1) · Π_{l<k} (l + η)/(l + 1),   k = 1, 2, …,   η > −1, 0 < γ < 1.

η = 0, its limit, is the logarithmic law (1 − γ)^k/(k·ln(1/γ)), and η = 1 the geometric one. The
mean is η(1 − γ)/(γ(1 − γ^η)); (1/γ − 1)/ln(1/γ) at η = 0. A fixed number of trials is no such law:
whoever keeps the best of K fixed ones pays for all K (Papernot and Steinke 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, log
from typing import TYPE_CHECKING

from fedpriv._validate import require_above, require_open_unit

if TYPE_CHECKING:
    from fedpriv.privacy.randomness import RandomStream

MOST_EXPECTED = 1000.0
"""The largest mean allowed: some runs would have tens of times as many trials."""

_ROUNDING = 1 + 1e-14  # many times what comparison of the mean with mpmath shows
_LEAST_LOG_GAMMA = -30.0
_LARGEST_POWER = 700.0
_BYTES = 32  # of the uniform variable behind K: the law is within about 2^-256 of the stated one
_DIGITS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCount:
    """The distribution of the number of trials.

    >>> law = TrialCount.with_mean(10.0)
    >>> round(law.gamma, 9), round(law.mean, 9)
    (0.02691826, 10.0)

    Attributes:
        eta: η, above -1: 0 for the logarithmic law, 1 for the geometric one.
        gamma: γ, between 0 and 1: the smaller, the more trials.
    """

    eta: float = 0.0
    gamma: float

    def __post_init__(self) -> None:
        require_law(eta=self.eta, gamma=self.gamma)

    @classmethod
    def with_mean(cls, mean: float, *, eta: float = 0.0) -> TrialCount:
        """The law with this η and mean."""
        if not 1 < mean <= MOST_EXPECTED:
            raise ValueError(
                f"expected_trials must be above 1 and at most {MOST_EXPECTED:g}, got {mean!r}: one "
                "trial chooses nothing, and the number of trials that are run may be many times "
                "what is expected."
            )
        require_law(eta=eta, gamma=0.5)
        from scipy.optimize import brentq  # slow to import, and the command line names this file

        def beyond(log_gamma: float) -> float:
            return log(_mean(eta, exp(log_gamma)) / mean)

        low = -1.0
        while beyond(low) < 0:
            low *= 2
            if low < _LEAST_LOG_GAMMA:
                raise ValueError(f"eta must be farther from -1, got {eta!r}, for a mean of {mean}.")
        high = low / 2
        while beyond(high) > 0:
            high /= 2
        return cls(eta=eta, gamma=exp(brentq(beyond, low, high, xtol=1e-15)))

    @property
    def mean(self) -> float:
        """E K; rounded up."""
        grown = max(0.0, self.eta * log(self.gamma))  # an exponent, whose rounding γ^η multiplies
        return _mean(self.eta, self.gamma) * (_ROUNDING + 2.0**-52 * grown)

    def draw(self, stream: RandomStream) -> int:
        """K, by inversion of its distribution in high precision.

        There is no largest K. Stopping before the last trial would be another law.
        """
        from mpmath import mp, mpf

        with mp.workdps(_DIGITS):
            eta, rest = mpf(self.eta), 1 - mpf(self.gamma)
            uniform = (int.from_bytes(stream.bytes(_BYTES)) + mpf(0.5)) / mpf(2) ** (8 * _BYTES)
            scale = eta / mp.expm1(-eta * mp.log(self.gamma)) if eta else -1 / mp.log(self.gamma)
            chance = below = scale * rest
            count = 1
            while below < uniform:
                chance *= rest * (count + eta) / (count + 1)
                below += chance
                count += 1
        return count


def require_law(*, eta: float, gamma: float) -> None:
    """Refuse parameters that are not those of a truncated negative binomial law."""
    require_open_unit(gamma=gamma)
    require_above(-1, eta=eta)


def _mean(eta: float, gamma: float) -> float:
    """E K, without the cancellation of 1 - γ^η, and of ln(1/γ) where γ is near 1."""
    spread = -log(gamma)
    power = -eta * spread
    if power > _LARGEST_POWER:  # of an η near -1 and a γ that is no choice of anybody's
        return inf
    tail = spread * (expm1(power) / power if power else 1.0)
    return (1 - gamma) / gamma / tail
