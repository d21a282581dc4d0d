"""Local training of sequential networks, compiled: a loop over parties and steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.training.kernels.images import planes_size, to_images
from fedpriv.learning.training.kernels.orders import batch_at
from fedpriv.learning.training.kernels.passes import as_images, as_vectors, backward, forward
from fedpriv.learning.training.kernels.products import largest
from fedpriv.learning.training.kernels.slopes import write_slopes
from fedpriv.learning.training.kernels.steps import move
from fedpriv.learning.training.sequence import RESULT, SIZES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.training.kernels.steps import Group, Records, Rules


@compiled(relaxed={"contract", "nsz"})
def train_sequence(
    key: np.uint64,
    group: Group,
    records: Records,
    theta: NDArray[Any],
    shift: NDArray[Any],
    table: NDArray[np.int64],
    rooms: NDArray[np.int64],
    rules: Rules,
    rows: NDArray[Any],
) -> None:
    """Write the updates of some parties.

    A batch goes through the network in pieces, as many records at a time as there is room for.

    Args:
        key: The key of the round.
        group: The parties.
        records: The records of all.
        theta: (d,).
        shift: (m, d), or (0, 0) for none.
        table: Of a `Sequence`.
        rooms: Of a `Sequence`.
        rules: What a party does.
        rows: (m, ≥ d), overwritten.
    """
    features = records.features
    number, d, outputs = features.dtype.type, len(theta), rooms[4]
    values, errors = np.zeros(rooms[1], features.dtype), np.zeros(rooms[1], features.dtype)
    patches, maxima = np.zeros(rooms[2], features.dtype), np.zeros(rooms[3], np.int32)
    most, widest = 4 * d + 64, rooms[0]  # tiles of gradients may be as large
    for layer in range(len(table)):
        sizes = table[layer, SIZES:]
        most = max(most, planes_size(sizes, rooms[0]))
        widest = max(widest, sizes[0] * sizes[6] * sizes[7], sizes[3])
    counting, scratch = np.arange(widest), np.empty(most, features.dtype)
    slope, speed = np.empty(d, features.dtype), np.empty(d, features.dtype)
    order, wide = np.empty(largest(group.sizes), np.int64), features.shape[1]
    inputs = np.empty((rooms[0], wide), features.dtype)
    pixels, final = table[0, SIZES + 1] * table[0, SIZES + 2], table[len(table) - 1, RESULT]
    for j in range(len(group.numbers)):
        row = rows[j, :d]
        for k in range(d):
            row[k], speed[k] = theta[k], 0
        push = shift[j] if len(shift) else theta[:0]
        for step in range(group.steps[j]):
            own = order[: group.sizes[j]]
            batch = batch_at(key, group.numbers[j], step, rules.batch_size, own)
            share = number(1) / number(len(batch))
            slope[:] = 0
            pieces = (len(batch) + rooms[0] - 1) // rooms[0]
            for piece in range(pieces):
                begin, end = len(batch) * piece // pieces, len(batch) * (piece + 1) // pieces
                places, count = group.starts[j] + batch[begin:end], end - begin
                vectors = inputs if rooms[5] else as_vectors(values, 0, count, wide)
                for i in range(count):
                    for k in range(wide):
                        vectors[i, k] = features[places[i], k]
                if rooms[5]:
                    to_images(inputs, pixels, count, as_images(values, 0, count, table[0, SIZES:]))
                forward(table, row, count, counting, values, patches, maxima, scratch)
                scores = as_vectors(values, final, count, outputs)
                above = as_vectors(errors, final, count, outputs)
                for i in range(len(above)):
                    for k in range(above.shape[1]):
                        above[i, k] = scores[i, k]
                for i in range(count):
                    label = records.labels[places[i]]
                    write_slopes(rules.loss, rules.parameter, above[i], label, outputs)
                    for k in range(outputs):
                        known = records.usable[places[i]]
                        above[i, k] = above[i, k] * share if known else number(0)
                backward(
                    table, row, count, counting, values, patches, maxima, errors, scratch, slope
                )
            move(rules.rates, slope, theta, push, speed, row)
        for k in range(d):
            row[k] -= theta[k]
