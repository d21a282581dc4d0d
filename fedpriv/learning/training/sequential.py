"""Local training of sequential networks, compiled: forward and back through a table of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.training.gram import padded
from fedpriv.learning.training.images import (
    add_patches,
    fill_patches,
    planes_size,
    to_vectors,
    pool,
    pool_back,
    to_images,
)
from fedpriv.learning.training.orders import shuffle
from fedpriv.learning.training.products import add_products, fill_products
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
from fedpriv.learning.training.slopes import activate, pull_back, write_slopes

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled()
def _vectors(values: NDArray[Any], place: int, count: int, width: int) -> NDArray[Any]:
    """Values of a layer, one vector a record, padded in both directions."""
    high, wide = padded(count, 4), padded(width, 4)
    return values[place : place + high * wide].reshape((high, wide))


@compiled()
def _images(values: NDArray[Any], place: int, count: int, sizes: NDArray[np.int64]) -> NDArray[Any]:
    """Values of a layer as images, (channels, columns)."""
    wide = padded(count * sizes[1] * sizes[2], 16)
    return values[place : place + sizes[0] * wide].reshape((sizes[0], wide))


@compiled(relaxed={"contract", "nsz"})
def _forward(
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
                _images(values, source, count, sizes),
                _images(values, result, count, sizes[3:]),
            )
            q, wide = inputs * sizes[6] * sizes[7], maps.shape[1]
            seen = patches[row[EXTRA] : row[EXTRA] + q * wide].reshape((q, wide))
            fill_patches(images, sizes, count, scratch, seen)
            for f in range(outputs):
                maps[f] = weights[row[BIAS] + f] if row[BIAS] >= 0 else values.dtype.type(0)
            kernels = weights[row[WEIGHT] : row[WEIGHT] + outputs * q].reshape((outputs, q))
            add_products(kernels, seen, counting[:q], wide, maps)
        elif kind == POOL:
            images, maps = (
                _images(values, source, count, sizes),
                _images(values, result, count, sizes[3:]),
            )
            pool(images, sizes, count, scratch, maps, _images(maxima, row[EXTRA], count, sizes[3:]))
        elif kind == FLATTEN:
            images = _images(values, source, count, sizes)
            to_vectors(images, sizes[1] * sizes[2], count, _vectors(values, result, count, outputs))
        elif kind == DENSE:
            vectors, scores = (
                _vectors(values, source, count, inputs),
                _vectors(values, result, count, outputs),
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
        return channels * padded(count * pixels, 16)
    return padded(count, 4) * padded(channels, 4)


@compiled(relaxed={"contract", "nsz"})
def _backward(
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
            above = _images(errors, result, count, sizes[3:])
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
                seen[:] = 0
                add_products(kernels.T, above, counting[:outputs], wide, seen)
                below = _images(errors, source, count, sizes)
                below[:] = 0
                add_patches(seen, sizes, count, scratch, below)
        elif kind == POOL:
            below = _images(errors, source, count, sizes)
            below[:] = 0
            above = _images(errors, result, count, sizes[3:])
            pool_back(above, sizes, count, _images(maxima, row[EXTRA], count, sizes[3:]), below)
        elif kind == FLATTEN:
            below = _images(errors, source, count, sizes)
            below[:] = 0
            to_images(_vectors(errors, result, count, outputs), sizes[1] * sizes[2], count, below)
        elif kind == DENSE:
            above, vectors = (
                _vectors(errors, result, count, outputs),
                _vectors(values, source, count, inputs),
            )
            place = row[WEIGHT]
            slope = gradient[place : place + outputs * inputs].reshape((outputs, inputs))
            add_products(above.T, vectors, counting[:count], inputs, slope)
            if row[BIAS] >= 0:
                for i in range(count):
                    for j in range(outputs):
                        gradient[row[BIAS] + j] += above[i, j]
            if layer > 0:
                below = _vectors(errors, source, count, inputs)
                below[:] = 0
                matrix = weights[place : place + outputs * inputs].reshape((outputs, inputs))
                add_products(above, matrix, counting[:outputs], inputs, below[:count])
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


@compiled(relaxed={"contract", "nsz"})
def train_sequence(
    key: np.uint64,
    parties: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    steps: NDArray[np.int64],
    features: NDArray[Any],
    labels: NDArray[Any],
    usable: NDArray[np.bool_],
    theta: NDArray[Any],
    shift: NDArray[Any],
    table: NDArray[np.int64],
    rooms: NDArray[np.int64],
    loss: int,
    numbers: NDArray[np.float64],
    batch_size: int,
    rows: NDArray[Any],
) -> None:
    """Write the updates of some parties, (m, d).

    Args:
        key: The key of the round.
        parties: (m,), indices among all parties, for their orders.
        starts: (m,), their first records.
        sizes: (m,), their numbers of records, at least 1.
        steps: (m,), their numbers of steps.
        features: (n, p).
        labels: (n,).
        usable: (n,).
        theta: (d,).
        shift: (m, d), or (0, 0) for none.
        table: Of a `Sequence`.
        rooms: Its records, values, patches, maxima, outputs, whether it has images.
        loss: The code of the loss.
        numbers: η, β, μ, λ, and the parameter of the loss.
        batch_size: Records in a batch; 0 for all of a party.
        rows: Overwritten.
    """
    number = features.dtype.type
    eta, beta, mu, lam = (
        number(numbers[0]),
        number(numbers[1]),
        number(numbers[2]),
        number(numbers[3]),
    )
    shifted, d, outputs = len(shift) > 0, len(theta), rooms[4]
    values, errors = np.zeros(rooms[1], features.dtype), np.zeros(rooms[1], features.dtype)
    patches, maxima = np.zeros(rooms[2], features.dtype), np.zeros(rooms[3], np.int32)
    widest = max(rooms[0], table[:, SIZES].max(), table[:, SIZES + 3].max(), 1)
    most = 4 * d + 64  # for tiles of gradients; and for planes and windows of one channel
    for layer in range(len(table)):
        most = max(most, planes_size(table[layer, SIZES:], rooms[0]))
        widest = max(
            widest, table[layer, SIZES] * table[layer, SIZES + 6] * table[layer, SIZES + 7]
        )
    counting = np.arange(widest)
    scratch = np.empty(most, features.dtype)
    slope, speed = np.empty(d, theta.dtype), np.empty(d, theta.dtype)
    order = np.empty(sizes.max(), np.int64)
    channels, pixels = table[0, SIZES], table[0, SIZES + 1] * table[0, SIZES + 2]
    final = table[len(table) - 1, RESULT]
    for j in range(len(parties)):
        n, row = sizes[j], rows[j]
        row[:] = theta
        speed[:] = 0
        full = batch_size if batch_size else n
        batches = (n + full - 1) // full
        for step in range(steps[j]):
            if step % batches == 0:
                shuffle(key, parties[j], step // batches, order[:n])
            first = step % batches * full
            batch = order[first : min(first + full, n)]
            share = number(1) / number(len(batch))
            slope[:] = 0
            pieces = (len(batch) + rooms[0] - 1) // rooms[0]
            for piece in range(pieces):
                some = batch[len(batch) * piece // pieces : len(batch) * (piece + 1) // pieces]
                count = len(some)
                if rooms[5]:
                    images = _images(values, 0, count, table[0, SIZES:])
                    for c in range(channels):
                        for i in range(count):
                            record = features[starts[j] + some[i]]
                            for k in range(pixels):
                                images[c, k * count + i] = record[c * pixels + k]
                else:
                    vectors = _vectors(values, 0, count, features.shape[1])
                    for i in range(count):
                        vectors[i, : features.shape[1]] = features[starts[j] + some[i]]
                _forward(table, row, count, counting, values, patches, maxima, scratch)
                scores = _vectors(values, final, count, outputs)
                above = _vectors(errors, final, count, outputs)
                above[:] = scores
                for i in range(count):
                    place = starts[j] + some[i]
                    write_slopes(loss, numbers[4], above[i], labels[place], outputs)
                    for k in range(outputs):
                        above[i, k] = above[i, k] * share if usable[place] else number(0)
                _backward(
                    table, row, count, counting, values, patches, maxima, errors, scratch, slope
                )
            for k in range(d):
                pull = slope[k] + lam * row[k] + mu * (row[k] - theta[k])
                if shifted:
                    pull += shift[j, k]
                speed[k] = beta * speed[k] + pull
                row[k] -= eta * speed[k]
        for k in range(d):
            row[k] -= theta[k]
