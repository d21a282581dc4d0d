"""Second moments: Σ z·zᵀ over each party's records, added up exactly, as integers.

A matrix product in floating point rounds differently with every record that joins, and this adds to
the sensitivity in proportion to their number. Here no sum is rounded. Every z, of norm at most R,
is truncated to multiples of R·2⁻²⁰, coordinate by coordinate and towards zero. In these units a
product is an integer of at most 2⁴⁰, and the sum of 4096 of them one of at most 2⁵²: float64 holds
all of them, in whatever order a BLAS adds them up, on however many threads. Pieces are added up as
integers. So the sums are those of the truncated records to the last bit, and the contribution of a
record depends neither on its position nor on other records. Truncation makes no z longer, and moves
it by at most √d·R·2⁻²⁰.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_positive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

UNITS = 2.0**20
"""In how many units R is cut."""

SLACK = 1 + 2.0**-30
"""‖z·zᵀ‖ ≤ R² times that, as it is added up: rounding of z and of R, before z is cut off."""

ROUNDING = 2.0**-50
"""Of a number that is returned: from the exact sum, in a few operations in float64."""

_LONGEST_PIECE = 4096  # records whose products add up to 2⁵² at most
_SHORTEST_PIECE = 1024  # of many coordinates: the matrix that they are added to is large
_PIECE_NUMBERS = 1 << 17  # in float64 at a time: about a megabyte, near the processor
_STRETCH = 1 << 22  # records whose products add up to 2⁶² at most
_LOW = 30  # bits: exact sums are kept as high·2³⁰ + low, whatever their number


def moment_sums(
    features: Floats,
    offsets: NDArray[np.int64],
    *,
    radius: float,
    last: Floats | None = None,
    factors: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Σ zᵢ·zᵢᵀ over the records of every party, as (m, width(d)): see `triangle`.

    Args:
        features: (n, d), the zᵢ before their factors, stacked party by party.
        offsets: (m+1,): party j owns records offsets[j] … offsets[j+1] − 1.
        radius: R. The caller ensures that no zᵢ, factors included, is longer, up to rounding.
        last: (n,), one more coordinate of every zᵢ.
        factors: (n,), by which zᵢ is multiplied.
    """
    require_positive(radius=radius)
    count = features.shape[1]
    size = count + (last is not None)
    length = max(_SHORTEST_PIECE, _PIECE_NUMBERS // size)
    buffer = np.empty((min(_LONGEST_PIECE, length), size))
    scale, upper = UNITS / radius, np.ravel_multi_index(np.triu_indices(size), (size, size))

    def products(piece: slice) -> NDArray[np.float64]:
        """Σ z·zᵀ over a piece, in units: integers of at most 2⁵²."""
        rows = buffer[: piece.stop - piece.start]
        np.multiply(features[piece], scale, out=rows[:, :count], dtype=np.float64)
        if last is not None:
            np.multiply(last[piece], scale, out=rows[:, count], dtype=np.float64)
        if factors is not None:
            rows *= factors[piece, np.newaxis]
        np.trunc(rows, out=rows)
        return rows.T @ rows

    sums = np.empty((len(offsets) - 1, width(size)))
    for party, (start, stop) in enumerate(pairwise(offsets.tolist())):
        total = np.zeros((size, size))
        if stop - start <= _LONGEST_PIECE:  # float64 holds all of it
            for piece in _pieces(start, stop, len(buffer)):
                total += products(piece)
        else:
            high, low = np.zeros((2, size, size), np.int64)
            for stretch in _pieces(start, stop, _STRETCH):
                exact = np.zeros((size, size), np.int64)
                for piece in _pieces(stretch.start, stretch.stop, len(buffer)):
                    exact += products(piece).astype(np.int64)
                high += exact >> _LOW
                low += exact & ((1 << _LOW) - 1)
            high += low >> _LOW
            total = high * 2.0**_LOW + (low & ((1 << _LOW) - 1))
        sums[party] = total.ravel()[upper]
    sums *= (radius / UNITS) ** 2 * isometry(size)
    return sums


def width(size: int) -> int:
    """How many numbers a symmetric matrix of ``size`` rows has: d(d+1)/2."""
    return size * (size + 1) // 2


def isometry(size: int) -> NDArray[np.float64]:
    """The weight of each entry of an upper triangle, row by row: 1 on the diagonal, else √2.

    The L2 norm of the triangle is then the Frobenius norm of the matrix.
    """
    rows, columns = np.triu_indices(size)
    return np.where(rows == columns, 1.0, np.sqrt(2.0))


def triangle(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scaled upper triangle of a symmetric matrix: an isometry of the Frobenius norm."""
    scaled: NDArray[np.float64] = matrix[np.triu_indices(len(matrix))] * isometry(len(matrix))
    return scaled


def symmetric(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric matrix of a scaled upper triangle: the inverse of `triangle`."""
    size = round((2 * len(numbers) + 0.25) ** 0.5 - 0.5)
    if width(size) != len(numbers):
        raise ValueError(f"numbers must be those of a triangle, d(d+1)/2, got {len(numbers)}.")
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = numbers / isometry(size)
    return matrix + np.triu(matrix, 1).T


def _pieces(start: int, stop: int, length: int) -> Iterator[slice]:
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))
