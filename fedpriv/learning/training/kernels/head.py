"""The layers above the first, compiled: their gradient, and the errors that they hand down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv._compiled import compiled
from fedpriv.learning.training.kernels.products import FRESH, add_products, fill_products
from fedpriv.learning.training.kernels.slopes import activate, pull_back, write_slopes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.learning.training.kernels.steps import Records, Rules


@compiled(relaxed={"contract", "nsz"})
def descend(
    widths: NDArray[np.int64],
    activation: int,
    rules: Rules,
    records: Records,
    places: NDArray[np.int64],
    counting: NDArray[np.int64],
    weights: NDArray[Any],
    gradient: NDArray[Any],
    values: NDArray[Any],
    errors: NDArray[Any],
) -> None:
    """From the outputs of the first layer to the errors there; and the gradient of the others.

    Args:
        widths: (L+1,): the outputs of every layer, from the first; the last are the scores.
        activation: Its code.
        rules: The loss.
        records: All records.
        places: (b,), which of them are in the batch.
        counting: 0, 1, …, at least as many as any dimension here.
        weights: Of all layers but the first, each followed by its bias, as one vector.
        gradient: Of the mean loss with respect to them; overwritten.
        values: (L+1, ≥ b, ≥ widest), padded as `fill_products` wants it. In: the outputs of the
            first layer. Out: activations.
        errors: The same shape; out: in the first, the errors at the outputs of the first layer,
            divided by the size of the batch.
    """
    count, layers = len(places), len(widths) - 1
    batch, number = counting[:count], values.dtype.type
    place = 0
    for layer in range(layers):
        q, k = widths[layer], widths[layer + 1]
        for i in range(count):
            activate(activation, values[layer, i], q)
        matrix = weights[place : place + q * k].reshape((k, q))
        place += q * k
        fill_products(values[layer], batch, matrix, q, values[layer + 1])
        for i in range(count):
            row = values[layer + 1, i]
            for j in range(k):
                row[j] += weights[place + j]
        place += k
    share = number(1) / number(count)
    outputs = widths[layers]
    for i in range(count):
        row = errors[layers, i]
        for j in range(outputs):
            row[j] = values[layers, i, j]
        write_slopes(rules.loss, rules.parameter, row, records.labels[places[i]], outputs)
        for j in range(outputs):
            row[j] = row[j] * share if records.usable[places[i]] else number(0)
    for layer in range(layers - 1, -1, -1):
        q, k = widths[layer], widths[layer + 1]
        above, below = errors[layer + 1], errors[layer]
        place -= k
        for j in range(k):
            total = number(0)
            for i in range(count):
                total += above[i, j]
            gradient[place + j] = total
        place -= q * k
        matrix = gradient[place : place + q * k].reshape((k, q))
        add_products(above.T, counting, values[layer], batch, q, matrix, FRESH)
        matrix = weights[place : place + q * k].reshape((k, q))
        add_products(above, batch, matrix, counting[:k], q, below[:count], FRESH)
        for i in range(count):
            pull_back(activation, values[layer, i], below[i], q)
