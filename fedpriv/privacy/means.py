"""Private means and variances: differential privacy in its smallest useful form.

They are private when one of the n values is replaced; n itself is public. The values are rounded to
an integer grid and added up exactly, and the noise is an integer too.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count, require_positive
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms import DiscreteLaplaceMechanism, GaussianMechanism

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from fedpriv.privacy.randomness import RandomStream

_GRID = 1 << 20  # steps from 0 to the clip
_ROUNDED = 1 + 2.0**-40  # the factor by which rounding may leave a vector longer than the clip


def clipped_mean(values: ArrayLike, *, clip: float, epsilon: float, stream: RandomStream) -> float:
    """An ε-DP mean of n numbers, each clipped to [-clip, clip].

    Replacing a value moves the clipped sum by at most 2·clip, so the noise on the mean is Laplace
    with scale 2·clip/(n·ε). `clip_for_deviation` chooses a clip from prior knowledge; a clip chosen
    by looking at the values would leak.

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


def clipped_variance(
    values: ArrayLike, *, clip: float, epsilon: float, stream: RandomStream
) -> float:
    """An ε-DP variance of n numbers, each clipped to [-clip, clip]: mean of squares - squared mean.

    Two releases of ε/2 each: the mean, and the mean of squares, which replacing a value moves by
    clip²/n at most. Shift values by a public centre first: only the spread should be in the clip.
    Never negative. Biased by what clipping takes away, and by the squared noise of the mean.

    >>> from fedpriv.privacy.randomness import RandomStream
    >>> stream = RandomStream.seeded(1)
    >>> heights = 9 * stream.normal(10_000)
    >>> bool(75 < clipped_variance(heights, clip=40, epsilon=1.0, stream=stream) < 87)
    True
    """
    numbers = _require_numbers(values=values)
    require_positive(clip=clip, epsilon=epsilon)
    mean = clipped_mean(numbers, clip=clip, epsilon=epsilon / 2, stream=stream) / clip
    squares = np.rint(np.square(np.clip(numbers, -clip, clip) / clip) * _GRID).astype(np.int64)
    second = _release(squares.sum(), numbers.size, _GRID, epsilon / 2, 1 / _GRID, stream)
    return clip**2 * max(0.0, second - mean**2)


def vector_mean(
    rows: ArrayLike, *, clip: float, epsilon: float, delta: float, stream: RandomStream
) -> NDArray[np.float64]:
    """An (ε, δ)-DP mean of n vectors, each clipped to norm ``clip``, by exact Gaussian noise.

    Replacing a vector moves the clipped sum by at most 2·clip, plus √d steps on the grid. The sum
    may be one over many parties: with m of them the error is √m times smaller than that of one
    alone, with `clip_for_norm` for all n.

    >>> from fedpriv.privacy.randomness import RandomStream
    >>> stream = RandomStream.seeded(1)
    >>> rows = stream.normal(40_000).reshape(10_000, 4) + [1.0, 0.0, 0.0, 0.0]
    >>> how = {"epsilon": 1.0, "delta": 1e-6}
    >>> clip = clip_for_norm(deviation=2.3, dimension=4, count=10_000, **how)
    >>> found = vector_mean(rows, clip=clip, **how, stream=stream)
    >>> bool(np.abs(found - [1, 0, 0, 0]).max() < 0.1)
    True
    """
    vectors = np.asarray(rows, dtype=np.float64)
    if vectors.ndim != 2 or vectors.size == 0 or not np.isfinite(vectors).all():
        raise ValueError(f"rows must be a finite matrix that is not empty, got {vectors.shape}.")
    require_positive(clip=clip)
    # In units of the clip: squares of a tiny one would underflow, and nothing would be clipped.
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = vectors / clip
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        kept = scaled / np.maximum(1.0, lengths)
    # A vector too long for its square to be finite counts as zero.
    total = np.rint(np.where(lengths < inf, kept, 0.0) * _GRID).astype(np.int64).sum(axis=0)
    mechanism = GaussianMechanism(
        sensitivity=(moved := 2 * _ROUNDED + sqrt(vectors.shape[1]) / _GRID),
        stddev=moved / gdp_mu(epsilon=epsilon, delta=delta),
        adjacency=Adjacency.REPLACE_ONE,
    )
    return clip * mechanism.release(total, step=1 / _GRID, stream=stream) / len(vectors)


def clip_for_norm(
    *, deviation: float, dimension: int, count: int, epsilon: float, delta: float
) -> float:
    """The clip τ = σ·d^(-1/4)·√(nμ/8) for vectors whose norm has a root mean square of at most σ.

    Clipping at τ shifts the mean by at most σ²/(4τ), and the noise, 2τ/(nμ) per coordinate, has
    length √d·2τ/(nμ): both are σ·d^(1/4)/√(2nμ), with μ of the exact Gaussian rule. The more
    coordinates, the shorter the clip: noise grows with d, and the bias does not.
    """
    require_positive(deviation=deviation)
    require_count(dimension=dimension, count=count)
    mu = gdp_mu(epsilon=epsilon, delta=delta)
    return deviation * sqrt(count * mu / 8) / sqrt(sqrt(dimension))


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
            f"got shape {numbers.shape}. Fill or drop missing values beforehand."
        )
    return numbers
