"""Matrix products that do not depend on the position of a record in a batch.

A matrix library uses other instructions for rows left over by its tiles, for few rows, and for
other memory layouts or alignments. Removing one record would then change the last digits of others,
and near a kink of a network these decide a gradient. Here a number adds up its products in their
order, each fused with its addition where the processor can
(`fedpriv.learning.training.kernels.tiles`): it follows from one row and the matrix alone, or from
one block of records alone. It takes one thread, and half as long as the library on narrow layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.nn.functional import pad

from fedpriv._compiled import compiled
from fedpriv.learning.segments import BLOCK
from fedpriv.learning.training.kernels.products import FRESH, add_products

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_LANES = 16
"""Columns that are computed together: for fewer, a pass over the rows takes as long."""


def row_products(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows·matrix, (n, p) by (p, k), as (n, k); detached from autograd."""
    count, width = len(rows), matrix.shape[1]
    if count == 1:  # a single row would be multiplied by other instructions
        return row_products(rows.repeat(2, 1), matrix)[:1]
    wide = pad(matrix.detach(), (0, -width % _LANES)).contiguous()
    products = wide.new_empty((count, wide.shape[1]))
    _fill(rows.detach().contiguous().numpy(), wide.numpy(), products.numpy())
    return products[:, :width].contiguous()


def add_outer_sums(
    left: Tensor, right: Tensor, offsets: Tensor, sums: Tensor, *, first: int, bias: bool
) -> None:
    """Add Σ leftᵢ ⊗ rightᵢ of every party to columns of ``sums``, float64 (m, ·), from a first.

    Blocks of at most `BLOCK` records are summed in the precision of the data, those of a party in
    float64. With a bias, Σ leftᵢ is added to the columns behind them, in float64 throughout.
    """
    factors, rows = left.contiguous().numpy(), right.contiguous().numpy()
    _add_outer_sums(factors, rows, offsets.numpy(), sums.numpy(), first, bias)


def patch_products(errors: Tensor, records: Tensor, indices: Tensor) -> Tensor:
    """Weight gradients of a convolution: errorsᵢ·recordᵢ[indices] for every record i, (n, k, p).

    Patches are written out for one record at a time, so that they stay in a cache.

    Args:
        errors: (n, k, positions).
        records: (n, ·).
        indices: (positions, p): which numbers of a record the kernel sees at a position.

    Raises:
        RuntimeError: The shapes do not fit: compiled code would read errors of other records.
    """
    if errors.shape[::2] != (len(records), len(indices)):
        raise RuntimeError(
            f"errors must have shape {(len(records), '·', len(indices))}, one number per record "
            f"and position, got {tuple(errors.shape)}: no hook may change a layer's output."
        )
    products = records.new_empty((len(records), errors.shape[1], indices.shape[1]))
    _fill_patch_products(
        errors.contiguous().numpy(),
        records.contiguous().numpy(),
        indices.contiguous().numpy(),
        products.numpy(),
    )
    return products


@compiled()
def _fill(rows: NDArray[Any], matrix: NDArray[Any], products: NDArray[Any]) -> None:
    places = np.arange(max(rows.shape))
    width = matrix.shape[1]
    add_products(rows, places, matrix, places[: len(matrix)], width, products, FRESH)


@compiled()
def _add_outer_sums(
    left: NDArray[Any],
    right: NDArray[Any],
    offsets: NDArray[np.int64],
    sums: NDArray[np.float64],
    first: int,
    bias: bool,
) -> None:
    k, p = left.shape[1], right.shape[1]
    places = np.arange(max(k, len(right)))
    block = np.empty((k, p), left.dtype)
    for party in range(len(offsets) - 1):
        total = sums[party, first:]
        for start in range(offsets[party], offsets[party + 1], BLOCK):
            stop = min(start + BLOCK, offsets[party + 1])
            own = places[start:stop]
            add_products(left[start:stop].T, places, right, own, p, block, FRESH)
            for j in range(k):
                for c in range(p):
                    total[j * p + c] += block[j, c]
        if bias:
            for i in range(offsets[party], offsets[party + 1]):
                for j in range(k):
                    total[k * p + j] += left[i, j]


@compiled()
def _fill_patch_products(
    errors: NDArray[Any],
    records: NDArray[Any],
    indices: NDArray[np.int64],
    products: NDArray[Any],
) -> None:
    positions, width = indices.shape
    places = np.arange(max(positions, errors.shape[1]))
    patches = np.empty(indices.shape, records.dtype)
    for i in range(len(records)):
        record = records[i]
        for place in range(positions):
            for k in range(width):
                patches[place, k] = record[indices[place, k]]
        add_products(errors[i], places, patches, places[:positions], width, products[i], FRESH)
