"""Statistical assertions with a stated probability of rejecting a correct sampler.

The bounds are exact or proved inequalities, not asymptotic ones, so the stated probability holds
at every sample size. It is a probability over the draws: with a seeded stream a test is repeatable.
"""

from __future__ import annotations

from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom, chi2

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

FALSE_FAILURE = 1e-9


def assert_counts_follow(
    counts: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    *,
    false_failure: float = FALSE_FAILURE,
) -> None:
    """Every cell's count is plausible for its probability; a correct law fails with ≤ the stated.

    Each count is binomial, whatever the others are: an exact two-sided test per cell, and the
    union bound over cells. The cells must be all there are.
    """
    assert abs(probabilities.sum() - 1) < 1e-9, "the cells must cover everything"
    draws = int(counts.sum())
    share = false_failure / (2 * counts.size)
    low = binom.ppf(share, draws, probabilities)
    high = binom.isf(share, draws, probabilities)
    wrong = np.flatnonzero((counts < low) | (counts > high))
    assert wrong.size == 0, (
        f"cells {wrong[:5].tolist()} hold {counts[wrong[:5]].tolist()} of {draws} draws, outside "
        f"{low[wrong[:5]].tolist()} to {high[wrong[:5]].tolist()}"
    )


def assert_distribution_follows(
    draws: NDArray[np.float64] | NDArray[np.int64],
    cdf: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    *,
    false_failure: float = FALSE_FAILURE,
) -> None:
    """The empirical distribution stays within the band of Dvoretzky, Kiefer and Wolfowitz.

    P(sup |F_n - F| > ε) ≤ 2·exp(-2nε²) for every law, discrete ones included (Massart 1990).
    ``cdf(x)`` is P(X ≤ x). Taking the distance at the draws only can but make it smaller.
    """
    values, counts = np.unique(draws, return_counts=True)
    empirical = np.cumsum(counts) / draws.size
    distance = float(np.abs(empirical - cdf(values.astype(np.float64))).max())
    band = sqrt(log(2 / false_failure) / (2 * draws.size))
    assert distance <= band, f"distance {distance:.2e} outside the band {band:.2e}"


def assert_gaussian_scale(
    noise: NDArray[np.float64], stddev: float, *, false_failure: float = FALSE_FAILURE
) -> None:
    """Σx²/σ² is chi-squared with as many degrees of freedom as there are draws: exact."""
    statistic = float(np.square(noise).sum()) / stddev**2
    low, high = (tail(false_failure / 2, noise.size) for tail in (chi2.ppf, chi2.isf))
    assert low <= statistic <= high, f"{statistic:.0f} outside [{low:.0f}, {high:.0f}]"


def assert_mean_is(draws: NDArray[np.float64], mean: float, variance: float) -> None:
    """The sample mean is within 7 standard errors: 3e-12 by the central limit theorem.

    For sums of a million terms with moments of all orders, the one place where an asymptotic
    statement is used.
    """
    error = sqrt(variance / draws.size)
    assert abs(draws.mean() - mean) <= 7 * error, (
        f"mean {draws.mean():.6g} outside {mean:.6g} ± {7 * error:.2g}"
    )
