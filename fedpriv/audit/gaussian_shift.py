"""Gaussian shift: a lower bound on μ by Student's exact law, for normal statistics.

If a release is μ-GDP, no test tells two neighbours apart better than one tells N(0, 1) from
N(μ, 1) (Dong, Roth and Su 2022). A statistic with laws N(a, s²) on one neighbour and N(b, s²) on
the other shows |b - a|/s, so the release is μ-GDP for no smaller μ.

With n and m draws, t = (x̄₁ - x̄₀)/(s·√(1/n + 1/m)) has a noncentral t law of n + m - 2 degrees of
freedom, whose noncentrality is the true shift over √(1/n + 1/m). The bound is the shift at which a
t as large as the one seen has a probability of 1 - confidence: exact, for any number of draws.

**Assumes** that the statistic is normal with one variance. It is, where a Gaussian release is
projected on a fixed direction; `normality` tests it. Where it is not, use
`fedpriv.audit.threshold`, which needs four times the draws and assumes nothing.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import nctdtrinc
from scipy.stats import kstest

from fedpriv._validate import require_open_unit, require_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray


def shift_lower_bound(
    first: NDArray[np.float64], second: NDArray[np.float64], *, confidence: float
) -> float:
    """The μ below which no μ-GDP release has these statistics, except with 1 - confidence.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> round(shift_lower_bound(rng.normal(1, 1, 482), rng.normal(0, 1, 482), confidence=0.95), 2)
    0.95

    Args:
        first: A statistic of independent releases on one neighbour, larger there.
        second: The same of releases on the other.
        confidence: The probability, over the draws, that the bound is true.
    """
    require_open_unit(confidence=confidence)
    _require_draws(first, second)
    n, m = first.size, second.size
    freedom = n + m - 2
    pooled = (n - 1) * np.var(first, ddof=1) + (m - 1) * np.var(second, ddof=1)
    scale = sqrt(1 / n + 1 / m)
    apart = float(np.mean(first) - np.mean(second))
    if pooled == 0:  # without any noise, one draw tells all
        return float("inf") if apart > 0 else 0.0
    t = apart / (sqrt(float(pooled) / freedom) * scale)
    return max(0.0, float(nctdtrinc(freedom, confidence, t)) * scale)


def draws_for(mu: float, *, confidence: float, share: float = 0.8) -> int:
    """How many draws on each side show ``share`` of μ at the median outcome, about.

    The variance of the estimate is (2 + μ²/4)/n to first order, and the bound lies z(confidence) of
    its standard deviations below it.

    >>> draws_for(1.0, confidence=0.95)
    153
    """
    from scipy.special import ndtri

    require_positive(mu=mu)
    require_open_unit(confidence=confidence, share=share)
    return int(np.ceil((2 + mu**2 / 4) * (ndtri(confidence) / ((1 - share) * mu)) ** 2))


def normality(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """A p-value of the assumption: Kolmogorov and Smirnov, both sides standardised together.

    Mean and variance are estimated, which makes it too large, and the test one of gross faults: a
    small p rejects, a large one proves nothing.
    """
    _require_draws(first, second)
    spread = sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    if spread == 0:
        return 0.0
    each = (first - np.mean(first), second - np.mean(second))
    return float(kstest(np.concatenate(each) / spread, "norm").pvalue)


def _require_draws(first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
    if min(first.size, second.size) < 2:
        raise ValueError(
            f"first and second must have 2 draws or more, got {first.size} and {second.size}."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite.")
