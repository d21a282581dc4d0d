"""Compiled products of small matrices: the arithmetic of local training and of clipped sums.

A party has a handful of records in a batch: too few for the product of a matrix library, which
spends more on packing and on its call than on numbers. Tiles of rows are multiplied together, their
columns in vector instructions; an incomplete tile repeats a row, which is not counted. So the
result of a row does not depend on other rows, nor a party's update on other parties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite.binding import get_host_cpu_features

from fedpriv._compiled import compiled
from fedpriv.learning.training.kernels.tiles import tile_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

TILE = 4
"""Results of `fill_products` are padded to multiples of this, in both directions."""

# Four rows of the widest tile fill half of the vector registers that the processor has.
_WIDEST = 64 if get_host_cpu_features().get("avx512f") else 32
_TILE_WIDEST, _TILE_32, _TILE_16, _TILE_8, _TILE_4, _TILE_1 = (
    tile_of(lanes) for lanes in (_WIDEST, 32, 16, 8, 4, 1)
)

ADDED, FRESH = np.bool_(False), np.bool_(True)
"""Whether `add_products` overwrites; numpy's, as it is compiled anew for constants of Python."""


@compiled()
def padded(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple


@compiled()
def largest(counts: NDArray[np.int64]) -> int:
    """The largest of some counts, 0 if there are none: quicker to compile than numpy's."""
    most = 0
    for k in range(len(counts)):
        most = max(most, counts[k])
    return most


@compiled(relaxed={"reassoc", "contract", "nsz"})
def fill_products(
    left: NDArray[Any],
    rows: NDArray[np.int64],
    right: NDArray[Any],
    width: int,
    out: NDArray[Any],
) -> None:
    """Write left[rows[i]]·right[j] over ``width`` columns into out[i, j], and more beside it.

    Args:
        left: (·, ≥ width).
        rows: (n,), which rows of it.
        right: (k, ≥ width).
        width: The number of columns.
        out: At least n by k, either filled up to a multiple of `TILE`; overwritten up to there,
            but only in its first column for k = 1.
    """
    count, outputs, zero = len(rows), len(right), left.dtype.type(0)
    for i in range(0, count, 4):
        last = count - 1
        a, b = left[rows[i]], left[rows[min(i + 1, last)]]
        c, d = left[rows[min(i + 2, last)]], left[rows[min(i + 3, last)]]
        if outputs == 1:
            q = right[0]
            z00 = z10 = z20 = z30 = zero
            for k in range(width):
                z00 += a[k] * q[k]
                z10 += b[k] * q[k]
                z20 += c[k] * q[k]
                z30 += d[k] * q[k]
            out[i, 0], out[i + 1, 0], out[i + 2, 0], out[i + 3, 0] = z00, z10, z20, z30
            continue
        for j in range(0, outputs, 4):
            end = outputs - 1
            q, r = right[j], right[min(j + 1, end)]
            s, t = right[min(j + 2, end)], right[min(j + 3, end)]
            z00 = z01 = z02 = z03 = z10 = z11 = z12 = z13 = zero
            z20 = z21 = z22 = z23 = z30 = z31 = z32 = z33 = zero
            for k in range(width):
                z00 += a[k] * q[k]
                z01 += a[k] * r[k]
                z02 += a[k] * s[k]
                z03 += a[k] * t[k]
                z10 += b[k] * q[k]
                z11 += b[k] * r[k]
                z12 += b[k] * s[k]
                z13 += b[k] * t[k]
                z20 += c[k] * q[k]
                z21 += c[k] * r[k]
                z22 += c[k] * s[k]
                z23 += c[k] * t[k]
                z30 += d[k] * q[k]
                z31 += d[k] * r[k]
                z32 += d[k] * s[k]
                z33 += d[k] * t[k]
            w, x, y, z = out[i], out[i + 1], out[i + 2], out[i + 3]
            w[j], w[j + 1], w[j + 2], w[j + 3] = z00, z01, z02, z03
            x[j], x[j + 1], x[j + 2], x[j + 3] = z10, z11, z12, z13
            y[j], y[j + 1], y[j + 2], y[j + 3] = z20, z21, z22, z23
            z[j], z[j + 1], z[j + 2], z[j + 3] = z30, z31, z32, z33


@compiled()
def add_products(
    factors: NDArray[Any],
    picked: NDArray[np.int64],
    left: NDArray[Any],
    rows: NDArray[np.int64],
    width: int,
    out: NDArray[Any],
    fresh: bool | np.bool_,
) -> None:
    """Add Σᵢ factors[picked[j], i]·left[rows[i]] over ``width`` columns to out[j], or write it.

    Args:
        factors: (·, ≥ n).
        picked: (≥ k,), which rows of it.
        left: (·, ≥ width), contiguous columns.
        rows: (n,), which rows of it.
        width: The number of columns.
        out: (k, ≥ width), contiguous columns.
        fresh: `FRESH` to write the sums, whatever was there; `ADDED` to add them.
    """
    if len(out) == 1:
        _add_row(factors[picked[0]], left, rows, width, out[0], fresh)
        return
    for j in range(0, len(out), TILE):
        k = 0
        while k + _WIDEST <= width:
            _TILE_WIDEST(factors, picked, left, rows, out, j, k, fresh)
            k += _WIDEST
        if k + 32 <= width:
            _TILE_32(factors, picked, left, rows, out, j, k, fresh)
            k += 32
        if k + 16 <= width:
            _TILE_16(factors, picked, left, rows, out, j, k, fresh)
            k += 16
        if k + 8 <= width:
            _TILE_8(factors, picked, left, rows, out, j, k, fresh)
            k += 8
        if k + 4 <= width:
            _TILE_4(factors, picked, left, rows, out, j, k, fresh)
            k += 4
        while k < width:
            _TILE_1(factors, picked, left, rows, out, j, k, fresh)
            k += 1


@compiled(relaxed={"contract", "nsz"})
def _add_row(
    factors: NDArray[Any],
    left: NDArray[Any],
    rows: NDArray[np.int64],
    width: int,
    out: NDArray[Any],
    fresh: bool | np.bool_,
) -> None:
    """`add_products` for one row: reading takes longer than sums, so rows are read one by one."""
    count, zero = len(rows), left.dtype.type(0)
    last = count - 1
    if fresh:
        for k in range(width):
            out[k] = zero
    for i in range(0, count, 4):
        a, b = left[rows[i]], left[rows[min(i + 1, last)]]
        c, d = left[rows[min(i + 2, last)]], left[rows[min(i + 3, last)]]
        f0, f1 = factors[i], factors[i + 1] if i + 1 < count else zero
        f2 = factors[i + 2] if i + 2 < count else zero
        f3 = factors[i + 3] if i + 3 < count else zero
        for k in range(width):
            out[k] += f0 * a[k] + f1 * b[k] + f2 * c[k] + f3 * d[k]
