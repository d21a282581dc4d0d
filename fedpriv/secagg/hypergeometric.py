"""Upper tails of the hypergeometric distribution, in logarithms.

Terms are summed directly, smallest first, without any subtraction, so a tail of 2^-200 is as
accurate as one of 1/2. `scipy.stats` has the same function, but importing it takes longer than
everything here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def log_choose(n: ArrayLike, k: ArrayLike) -> NDArray[np.float64]:
    """ln of the number of k-subsets of n; minus infinity where there is none."""
    n, k = np.broadcast_arrays(np.asarray(n, np.float64), np.asarray(k, np.float64))
    possible = (k >= 0) & (k <= n)
    k = np.where(possible, k, 0.0)
    n = np.where(possible, n, 0.0)
    counted = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.where(possible, counted, -np.inf)


def log_tails(*, population: int, marked: ArrayLike, drawn: int) -> NDArray[np.float64]:
    """ln P[X ≥ x] for x = 0 … drawn + 1, of X marked ones among ``drawn`` of a population.

    Args:
        population: The size of the population.
        marked: How many of them are marked: one number, or an array (s,).
        drawn: How many are drawn, without replacement.

    Returns:
        (drawn + 2,), or (s, drawn + 2) for an array; the last entry is minus infinity.
    """
    marked = np.asarray(marked)[..., np.newaxis]
    x = np.arange(drawn + 1)
    terms = log_choose(marked, x) + log_choose(population - marked, drawn - x)
    terms = terms - log_choose(population, drawn)
    tails = np.logaddexp.accumulate(terms[..., ::-1], axis=-1)[..., ::-1]
    nothing = np.full((*tails.shape[:-1], 1), -np.inf)
    return np.concatenate([np.minimum(tails, 0.0), nothing], axis=-1)
