"""Private means of numbers and of bits: differential privacy in its smallest useful form.

Both are ε-DP when one of the n values is replaced; n itself is public. The values are rounded to an
integer grid and added up exactly, and the noise is an integer too (`DiscreteLaplaceMechanism`).
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import DiscreteLaplaceMechanism

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fedpriv.privacy.randomness import RandomStream

_GRID = 1 << 20  # steps from 0 to the clip


def clipped_mean(values: ArrayLike, *, clip: float, epsilon: float, stream: RandomStream) -> float:
    """An ε-DP mean of n numbers, each clipped to [-clip, clip].

    Replacing a value moves the clipped sum by at most 2·clip, so the noise on the mean is Laplace
    with scale 2·clip/(n·ε). `clip_for_deviation` chooses a clip from what is known beforehand;
    a clip chosen by looking at the values would leak.

    >>> from fedpriv.privacy.randomness import RandomStream
    >>> stream = RandomStream.seeded(1)
    >>> changes = 20 + 100 * stream.normal(10_000)
    >>> clip = clip_for_deviation(deviation=110, count=10_000, epsilon=0.5)
    >>> round(clip, 1)
    3889.1
    >>> round(clipped_mean(changes, clip=clip, epsilon=0.5, stream=stream), 1)
    18.3
    """
    numbers = _require_numbers(values=values)
    require_positive(clip=clip)
    total = np.rint(np.clip(numbers, -clip, clip) / clip * _GRID).astype(np.int64).sum()
    return _release(total, numbers.size, 2 * _GRID, epsilon, clip / _GRID, stream)


def clip_for_deviation(*, deviation: float, count: int, epsilon: float) -> float:
    """The clip τ = σ√(nε)/2 for ``count`` values whose root mean square is at most σ.

    Clipping at τ shifts the mean by at most σ²/(4τ) = σ/(2√(nε)), for |x| - τ ≤ x²/(4τ), and the
    noise then has scale 2τ/(nε) = σ/√(nε): neither error dominates, and both vanish with n.
    """
    require_positive(deviation=deviation, epsilon=epsilon)
    require_count(count=count)
    return deviation * sqrt(count * epsilon) / 2


def binary_mean(bits: ArrayLike, *, epsilon: float, stream: RandomStream) -> float:
    """An ε-DP mean of n bits: Laplace noise with scale 1/(n·ε), on the integer count.

    The answer is unbiased and may therefore leave [0, 1] by a little.

    >>> from fedpriv.privacy.randomness import RandomStream
    >>> smokers = [1, 0, 0, 1] * 250
    >>> round(binary_mean(smokers, epsilon=0.5, stream=RandomStream.seeded(11)), 3)
    0.504
    """
    numbers = _require_numbers(bits=bits)
    if not np.isin(numbers, (0.0, 1.0)).all():
        raise ValueError("bits must all be 0 or 1; use clipped_mean for other numbers.")
    return _release(numbers.astype(np.int64).sum(), numbers.size, 1, epsilon, 1.0, stream)


def _release(
    total: np.int64, count: int, sensitivity: int, epsilon: float, step: float, stream: RandomStream
) -> float:
    mechanism = DiscreteLaplaceMechanism(
        sensitivity=sensitivity, epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE
    )
    noisy = mechanism.release(np.array([total], dtype=np.int64), step=step, stream=stream)
    return float(noisy[0]) / count


def _require_numbers(**parameter: ArrayLike) -> NDArray[np.float64]:
    (name, values) = parameter.popitem()
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0 or not np.isfinite(numbers).all():
        raise ValueError(
            f"{name} must be a one-dimensional, non-empty array of finite numbers, "
            f"got shape {numbers.shape}. Fill or drop what is missing beforehand."
        )
    return numbers
