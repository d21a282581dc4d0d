"""Gaussian shift: a lower bound on μ from pairs of runs, for normal statistics.

If a release is μ-GDP, no test tells two neighbours apart better than one tells N(0, 1) from
N(μ, 1) (Dong, Roth and Su 2022). A statistic with laws N(a, s²) on one neighbour and N(b, s²) on
the other shows (a - b)/s, so the release is μ-GDP for no smaller μ.

**Pairs.** a, b and s are parameters of two laws, one on each neighbour, however the two runs of a
pair depend on each other. An auditor may therefore draw the same noise for both: then the
difference of a pair hardly varies, a - b is measured almost without error, and only s remains to be
estimated. An adversary, who sees one run, could not do this; it is a way to measure, not to attack.

**The bound.** Over n independent pairs the difference D and the sum S are normal, with variances d²
and e², and s² = (d² + e²)/4: as the variance of either side, or as the mean of the two if they
differ. Student's law bounds a - b from below, χ² bounds d² and e² from above, each with a share of
the failure probability, so that the three hold jointly however D and S depend on each other:
nothing is assumed about the correlation between the runs of a pair, nor its sign. With equal noise,
D is constant, and its two shares are lost: of audits with 95 % confidence at most 4 % of true
claims that are reached raise a false alarm. With independent runs the bound holds too, but is worse
than that of two separate samples.

**Assumes** that pairs are independent of one another, and that the two statistics of a pair are
jointly normal. They are, where Gaussian releases are projected on a fixed direction, and their
noise is equal or independent. `normality` tests each side; the joint law it does not test. Pairs
that are normal on either side only, such as equal noise with a sign that is random, or that follows
from how long it is, were contradicted in at most 2 % of 4,000 audits where 5 % are allowed. Where
statistics are not normal, use `fedpriv.audit.threshold`, which needs many times the runs for the
same and assumes nothing.

**Sees** noise along one statistic, and nothing else of it: what is missing beside it, or cancels
between releases, `fedpriv.audit.noise_law` looks for.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammainc, gammaincinv, stdtrit
from scipy.stats import kstest

from fedpriv._validate import require_open_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OF_SUMS = 0.8  # of the failure; the rest is for mean and spread of the differences
_MOST_PAIRS = 10**7


def shift_lower_bound(
    first: NDArray[np.float64], second: NDArray[np.float64], *, confidence: float
) -> float:
    """The μ below which no μ-GDP release has these statistics, except with 1 - confidence.

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=150)
    >>> round(shift_lower_bound(1 + noise, noise, confidence=0.95), 2)
    0.93

    Args:
        first: A statistic of independent releases on one neighbour, larger there.
        second: The same of releases on the other: each belongs to the one of the same place.
        confidence: The probability, over the draws, that the bound is true.
    """
    require_open_unit(confidence=confidence)
    _require_pairs(first, second)
    n, failure = first.size, 1 - confidence
    few = (1 - _OF_SUMS) / 2 * failure
    apart, together = first - second, first + second
    half = float(stdtrit(n - 1, 1 - few)) * float(np.std(apart, ddof=1)) / sqrt(n)
    shift = float(np.mean(apart)) - half
    if shift <= 0:
        return 0.0
    most = _most_variance(apart, failure=few)
    most += _most_variance(together, failure=_OF_SUMS * failure)
    return 2 * shift / sqrt(most) if most else float("inf")  # without noise, one draw suffices


def pairs_for(share: float, *, confidence: float, frequency: float = 0.95) -> int | None:
    """How many equal-noise pairs show ``share`` of a shift this often; None if 10⁷ do not.

    It is the same for every μ: with equal noise only the spread is estimated. It is exact.

    >>> pairs_for(0.8, confidence=0.95)
    119

    Args:
        share: Of what can be shown: of a claim that the neighbours reach to 90 %, 80 % are 0.8/0.9.
        confidence: Of the bound.
        frequency: Of audits that show so much.
    """
    require_open_unit(share=share, confidence=confidence, frequency=frequency)

    def enough(n: int) -> bool:
        limit = _chi_squared(_OF_SUMS * (1 - confidence), n - 1)
        return bool(gammainc((n - 1) / 2, limit / (2 * share**2)) >= frequency)

    low, high = 1, 2
    while not enough(high):
        if high > _MOST_PAIRS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def normality(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """A p-value of the assumption: Kolmogorov and Smirnov on either side, the smaller one, doubled.

    Each side is compared with its own mean and the spread of both, so that different spreads are
    detected. Both are estimated, which makes p too large, so the test finds gross faults only: a
    small p rejects, a large one proves nothing. The sides are tested separately, since paired
    values repeat the same information.
    """
    _require_pairs(first, second)
    spread = sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    if spread == 0:
        return 0.0
    each = (float(kstest((side - side.mean()) / spread, "norm").pvalue) for side in (first, second))
    return min(1.0, 2 * min(each))


def _most_variance(values: NDArray[np.float64], *, failure: float) -> float:
    """An upper limit of the variance of normal values."""
    freedom = values.size - 1
    return freedom * float(np.var(values, ddof=1)) / _chi_squared(failure, freedom)


def _chi_squared(probability: float, freedom: int) -> float:
    """The quantile of χ²."""
    return 2 * float(gammaincinv(freedom / 2, probability))


def _require_pairs(first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
    if first.size != second.size or first.size < 2:
        raise ValueError(
            f"first and second must be 2 pairs of draws or more, got {first.size} and "
            f"{second.size} draws."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("first and second must be finite.")
