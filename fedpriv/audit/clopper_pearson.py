"""Clopper-Pearson limits of a probability: exact, whatever the number of draws.

Clopper and Pearson 1934. Each limit is one-sided, and holds with a probability of at least
1 - failure over independent draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainccinv, betaincinv

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def lower_limit(hits: ArrayLike, draws: int, *, failure: float) -> NDArray[np.float64]:
    """The largest p with P(Bin(draws, p) ≥ hits) ≤ failure; 0 if nothing was hit."""
    hits = np.asarray(hits)
    low = betaincinv(np.maximum(hits, 1), draws - hits + 1, failure)
    return np.where(hits > 0, low, 0.0)


def upper_limit(hits: ArrayLike, draws: int, *, failure: float) -> NDArray[np.float64]:
    """The smallest p with P(Bin(draws, p) ≤ hits) ≤ failure; 1 if all were hit."""
    hits = np.asarray(hits)
    high = betainccinv(hits + 1, np.maximum(draws - hits, 1), failure)
    return np.where(hits < draws, high, 1.0)
