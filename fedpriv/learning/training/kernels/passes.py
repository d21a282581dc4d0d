"""Forward and backward passes through the table of a sequential network, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv._compiled import compiled
from fedpriv.learning.training.kernels.images import (
    add_patches,
    fill_patches,
    pool,
    pool_back,
    to_images,
    to_vectors,
)
from fedpriv.learning.training.kernels.products import (
    ADDED,
    FRESH,
    add_products,
    fill_products,
    padded,
)
from fedpriv.learning.training.kernels.slopes import activate, pull_back
from fedpriv.learning.training.sequence import (
    ACTIVATION,
    BIAS,
    CODE,
    CONVOLUTION,
    DENSE,
    EXTRA,
    FLATTEN,
    KIND,
    POOL,
    RESULT,
    SIZES,
    SOURCE,
    WEIGHT,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@compiled()
def as_vectors(values: NDArray[Any], place: int, count: int, width: int) -> NDArray[Any]:
    """Values of a layer, one vector a record, padded in both directions."""
    high, wide = padded(count, 4), padded(width, 4)
    return values[place : place + high * wide].reshape((high, wide))


@compiled()
def as_images(
    values: NDArray[Any], place: int, count: int, sizes: NDArray[np.int64]
) -> NDArray[Any]:
    """Values of a layer as images, (channels, columns)."""
    wide = padded(count * sizes[1] * sizes[2], 16)
    return values[place : place + sizes[0] * wide].reshape((sizes[0], wide))


@compiled(relaxed={"contract", "nsz"})
def forward(
    table: NDArray[np.int64],
    weights: NDArray[Any],
    count: int,
    counting: NDArray[np.int64],
    values: NDArray[Any],
    patches: NDArray[Any],
    maxima: NDArray[np.int32],
    scratch: NDArray[Any],
) -> None:
    """Values of all layers, from those of the first layer's inputs."""
    for layer in range(len(table)):
        row = table[layer]
        kind, sizes = row[KIND], row[SIZES : SIZES + 12]
        source, result = row[SOURCE], row[RESULT]
        inputs, outputs = sizes[0], sizes[3]
        if kind == CONVOLUTION:
            images, maps = (
                as_images(values, source, count, sizes),
                as_images(values, result, count, sizes[3:]),
            )
            q, wide = inputs * sizes[6] * sizes[7], maps.shape[1]
            seen = patches[row[EXTRA] : row[EXTRA] + q * wide].reshape((q, wide))
            fill_patches(images, sizes, count, scratch, seen)
            for f in range(outputs):
                maps[f] = weights[row[BIAS] + f] if row[BIAS] >= 0 else values.dtype.type(0)
            kernels = weights[row[WEIGHT] : row[WEIGHT] + outputs * q].reshape((outputs, q))
            add_products(kernels, counting, seen, counting[:q], wide, maps, ADDED)
        elif kind == POOL:
            images, maps = (
                as_images(values, source, count, sizes),
                as_images(values, result, count, sizes[3:]),
            )
            pool(
                images, sizes, count, scratch, maps, as_images(maxima, row[EXTRA], count, sizes[3:])
            )
        elif kind == FLATTEN:
            images = as_images(values, source, count, sizes)
            to_vectors(
                images, sizes[1] * sizes[2], count, as_vectors(values, result, count, outputs)
            )
        elif kind == DENSE:
            vectors, scores = (
                as_vectors(values, source, count, inputs),
                as_vectors(values, result, count, outputs),
            )
            matrix = weights[row[WEIGHT] : row[WEIGHT] + outputs * inputs].reshape(
                (outputs, inputs)
            )
            fill_products(vectors, counting[:count], matrix, inputs, scores)
            if row[BIAS] >= 0:
                for i in range(count):
                    for j in range(outputs):
                        scores[i, j] += weights[row[BIAS] + j]
        else:
            used = _used(row, count)
            activate(row[CODE], values[source : source + used], used)


@compiled()
def _used(row: NDArray[np.int64], count: int) -> int:
    """Numbers in the values of an activation, which are images or vectors."""
    channels, pixels = row[SIZES], row[SIZES + 1] * row[SIZES + 2]
    if row[EXTRA]:
        return int(channels * padded(count * pixels, 16))
    return padded(count, 4) * padded(channels, 4)


@compiled(relaxed={"contract", "nsz"})
def backward(
    table: NDArray[np.int64],
    weights: NDArray[Any],
    count: int,
    counting: NDArray[np.int64],
    values: NDArray[Any],
    patches: NDArray[Any],
    maxima: NDArray[np.int32],
    errors: NDArray[Any],
    scratch: NDArray[Any],
    gradient: NDArray[Any],
) -> None:
    """Add the gradient of all layers, from the errors of the last one's outputs."""
    for layer in range(len(table) - 1, -1, -1):
        row = table[layer]
        kind, sizes = row[KIND], row[SIZES : SIZES + 12]
        source, result = row[SOURCE], row[RESULT]
        inputs, outputs = sizes[0], sizes[3]
        if kind == CONVOLUTION:
            above = as_images(errors, result, count, sizes[3:])
            q, wide = inputs * sizes[6] * sizes[7], above.shape[1]
            seen = patches[row[EXTRA] : row[EXTRA] + q * wide].reshape((q, wide))
            tile = scratch[: padded(outputs, 4) * padded(q, 4)].reshape(
                (padded(outputs, 4), padded(q, 4))
            )
            fill_products(above, counting[:outputs], seen, wide, tile)
            _accumulate(tile, outputs, q, gradient[row[WEIGHT] :])
            if row[BIAS] >= 0:
                for f in range(outputs):
                    gradient[row[BIAS] + f] += above[f].sum()
            if layer > 0:
                kernels = weights[row[WEIGHT] : row[WEIGHT] + outputs * q].reshape((outputs, q))
                add_products(kernels.T, counting, above, counting[:outputs], wide, seen, FRESH)
                below = as_images(errors, source, count, sizes)
                below[:] = 0
                add_patches(seen, sizes, count, scratch, below)
        elif kind == POOL:
            below = as_images(errors, source, count, sizes)
            below[:] = 0
            above = as_images(errors, result, count, sizes[3:])
            pool_back(above, sizes, count, as_images(maxima, row[EXTRA], count, sizes[3:]), below)
        elif kind == FLATTEN:
            below = as_images(errors, source, count, sizes)
            below[:] = 0
            to_images(as_vectors(errors, result, count, outputs), sizes[1] * sizes[2], count, below)
        elif kind == DENSE:
            above, vectors = (
                as_vectors(errors, result, count, outputs),
                as_vectors(values, source, count, inputs),
            )
            place = row[WEIGHT]
            slope = gradient[place : place + outputs * inputs].reshape((outputs, inputs))
            add_products(above.T, counting, vectors, counting[:count], inputs, slope, ADDED)
            if row[BIAS] >= 0:
                for i in range(count):
                    for j in range(outputs):
                        gradient[row[BIAS] + j] += above[i, j]
            if layer > 0:
                below = as_vectors(errors, source, count, inputs)
                below[:] = 0
                matrix = weights[place : place + outputs * inputs].reshape((outputs, inputs))
                add_products(
                    above, counting, matrix, counting[:outputs], inputs, below[:count], ADDED
                )
        elif kind == ACTIVATION:
            used = _used(row, count)
            pull_back(
                row[CODE], values[source : source + used], errors[source : source + used], used
            )


@compiled()
def _accumulate(tile: NDArray[Any], high: int, wide: int, gradient: NDArray[Any]) -> None:
    for i in range(high):
        for j in range(wide):
            gradient[i * wide + j] += tile[i, j]
