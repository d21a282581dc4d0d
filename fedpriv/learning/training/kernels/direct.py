"""Local training step by step on the weights themselves, compiled: for parties with many records.

A Gram matrix of n records has n² numbers; with more records than features it would be larger than
the records, and the weights of the first layer smaller than what `gram` keeps in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.training.kernels.head import descend
from fedpriv.learning.training.kernels.orders import batch_at
from fedpriv.learning.training.kernels.products import (
    ADDED,
    FRESH,
    TILE,
    add_products,
    fill_products,
    largest,
    padded,
)
from fedpriv.learning.training.kernels.steps import move

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.training.kernels.steps import Group, Records, Rules


@compiled(relaxed={"contract", "nsz"})
def train_directly(
    key: np.uint64,
    group: Group,
    records: Records,
    theta: NDArray[Any],
    shift: NDArray[Any],
    widths: NDArray[np.int64],
    activation: int,
    bias: bool,
    rules: Rules,
    rows: NDArray[Any],
) -> None:
    """Write the updates of some parties; arguments as in `train_on_grams`."""
    features = records.features
    number = features.dtype.type
    eta, plain = number(rules.rates[0]), rules.rates[1:].max() == 0 and len(shift) == 0
    p, h, d = features.shape[1], widths[0], len(theta)
    below = h * p + (h if bias else 0)
    most = largest(group.sizes)
    size = min(rules.batch_size, most) if rules.batch_size else most
    wide, deep = padded(largest(widths), TILE), padded(size, TILE)
    counting = np.arange(max(wide, deep))
    values = np.empty((len(widths), deep, wide), features.dtype)
    errors = np.empty((len(widths), deep, wide), features.dtype)
    order = np.empty(most, np.int64)
    slope, speed = np.empty(d, features.dtype), np.empty(d, features.dtype)
    for j in range(len(group.numbers)):
        n, row = group.sizes[j], rows[j, :d]
        own = features[group.starts[j] : group.starts[j] + n]
        for k in range(d):
            row[k], speed[k] = theta[k], 0
        weights, gradient = row[: h * p].reshape((h, p)), slope[: h * p].reshape((h, p))
        for step in range(group.steps[j]):
            batch = batch_at(key, group.numbers[j], step, rules.batch_size, order[:n])
            count = len(batch)
            fill_products(own, batch, weights, p, values[0])
            for i in range(count):
                for a in range(below - h * p):
                    values[0, i, a] += row[h * p + a]
            descend(
                widths,
                activation,
                rules,
                records,
                group.starts[j] + batch,
                counting,
                row[below:],
                slope[below:],
                values,
                errors,
            )
            for a in range(below - h * p):
                total = number(0)
                for i in range(count):
                    total += errors[0, i, a]
                slope[h * p + a] = total
            if plain:
                for i in range(count):
                    for a in range(h):
                        errors[0, i, a] *= -eta
                add_products(errors[0].T, counting, own, batch, p, weights, ADDED)
                for k in range(h * p, d):
                    row[k] -= eta * slope[k]
            else:
                add_products(errors[0].T, counting, own, batch, p, gradient, FRESH)
                push = shift[j] if len(shift) else theta[:0]
                move(rules.rates, slope, theta, push, speed, row)
        for k in range(d):
            row[k] -= theta[k]
