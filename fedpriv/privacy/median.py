"""Private median: the exponential mechanism on public candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fedpriv.privacy.randomness import RandomStream


def private_median(
    values: ArrayLike, *, candidates: ArrayLike, epsilon: float, stream: RandomStream
) -> float:
    """An ε-DP median of n numbers: one of ``candidates``, which must be public.

    Candidate c has the score -|#{x < c} - #{x > c}|, an integer that replacing a value moves by at
    most 2; it is chosen with probability ∝ exp(ε·score/4) (McSherry and Talwar 2007). So values
    need no bounds. For k candidates, if one of them has the score 0, the rank of the answer is off
    by more than (2/ε)·(ln k + t) with probability below e^-t.

    >>> from fedpriv.privacy.randomness import RandomStream
    >>> stream = RandomStream.seeded(1)
    >>> incomes = 30_000 + 9_000 * stream.normal(2_000)
    >>> grid = np.arange(0, 100_000, 500)
    >>> private_median(incomes, candidates=grid, epsilon=1.0, stream=stream)
    30000.0
    """
    numbers, grid = (np.asarray(given, dtype=np.float64) for given in (values, candidates))
    for name, array in (("values", numbers), ("candidates", grid)):
        if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
            raise ValueError(
                f"{name} must be a one-dimensional, non-empty array of finite numbers, got shape "
                f"{array.shape}."
            )
    ordered = np.sort(numbers)
    below = np.searchsorted(ordered, grid, side="left")
    above = numbers.size - np.searchsorted(ordered, grid, side="right")
    rule = ExponentialMechanism(adjacency=Adjacency.REPLACE_ONE, epsilon=epsilon, sensitivity=2.0)
    return float(grid[rule.select(-np.abs(below - above), stream)])
