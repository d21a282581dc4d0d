"""Compiled sums of rounded vectors, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv._compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDTH = 1024  # coordinates at a time: they stay in the nearest cache


@compiled()
def add_rounded(
    answers: NDArray[np.float64],
    scale: float,
    limit: float,
    rows: int,
    total: NDArray[np.int64],
) -> bool:
    """Add round(scale·answer) of every row to ``total``, modulo 2^64, ties to even.

    ``rows`` rows at a time are added up in float64, which has vector instructions for every step
    where int64 has none; float64 must hold a sum of that many integers up to ``limit`` exactly.

    Returns:
        Whether every scaled coordinate lies within ±``limit``. If not, the total means nothing.
    """
    parties, dimension = answers.shape
    within = True
    partial = np.empty(_WIDTH)
    for left in range(0, dimension, _WIDTH):
        width = min(_WIDTH, dimension - left)
        for top in range(0, parties, rows):
            partial[:] = 0.0
            for j in range(top, min(top + rows, parties)):
                answer = answers[j, left : left + width]
                for k in range(width):
                    scaled = scale * answer[k]
                    within &= abs(scaled) <= limit  # false for NaN
                    partial[k] += np.rint(scaled)
            if not within:  # it may not even fit int64
                return False
            for k in range(width):
                total[left + k] += np.int64(partial[k])
    return True
