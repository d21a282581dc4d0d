"""Local training step by step on the weights themselves, compiled: for parties with many records.

A Gram matrix of n records has n² numbers; with more records than features it would be larger than
the records, and the weights of the first layer smaller than what `gram` keeps in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.training.gram import padded
from fedpriv.learning.training.head import descend
from fedpriv.learning.training.orders import shuffle
from fedpriv.learning.training.products import add_products, fill_products

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled(relaxed={"contract", "nsz"})
def train_directly(
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
    widths: NDArray[np.int64],
    codes: NDArray[np.int64],
    numbers: NDArray[np.float64],
    batch_size: int,
    bias: bool,
    rows: NDArray[Any],
) -> None:
    """Write the updates of some parties, (m, d); arguments as in `train_on_grams`."""
    number = features.dtype.type
    eta, beta, mu, lam = (
        number(numbers[0]),
        number(numbers[1]),
        number(numbers[2]),
        number(numbers[3]),
    )
    shifted = len(shift) > 0
    plain = beta == 0 and mu == 0 and lam == 0 and not shifted
    p, h, d = features.shape[1], widths[0], len(theta)
    below = h * p + (h if bias else 0)
    most = sizes.max()
    size = min(batch_size, most) if batch_size else most
    wide, deep = padded(widths.max(), 4), padded(size, 4)
    counting = np.arange(max(wide, deep))
    values = np.empty((len(widths), deep, wide), features.dtype)
    errors = np.empty((len(widths), deep, wide), features.dtype)
    order = np.empty(most, np.int64)
    batch_labels, batch_usable = np.empty(size, labels.dtype), np.empty(size, np.bool_)
    slope, speed = np.empty(d, theta.dtype), np.empty(d, theta.dtype)
    for j in range(len(parties)):
        n = sizes[j]
        own = features[starts[j] : starts[j] + n]
        row = rows[j]
        row[:] = theta
        speed[:] = 0
        first_layer = row[: h * p].reshape((h, p))
        full = batch_size if batch_size else n
        batches = (n + full - 1) // full
        for step in range(steps[j]):
            if step % batches == 0:
                shuffle(key, parties[j], step // batches, order[:n])
            first = step % batches * full
            batch = order[first : min(first + full, n)]
            count = len(batch)
            fill_products(own, batch, first_layer, p, values[0])
            for i in range(count):
                if bias:
                    for a in range(h):
                        values[0, i, a] += row[h * p + a]
                batch_labels[i] = labels[starts[j] + batch[i]]
                batch_usable[i] = usable[starts[j] + batch[i]]
            descend(
                widths,
                codes,
                numbers[4],
                batch_labels[:count],
                batch_usable[:count],
                counting,
                row[below:],
                slope[below:],
                values,
                errors,
            )
            if bias:
                for a in range(h):
                    total = number(0)
                    for i in range(count):
                        total += errors[0, i, a]
                    slope[h * p + a] = total
            if plain:
                for i in range(count):
                    for a in range(h):
                        errors[0, i, a] *= -eta
                add_products(errors[0, :count].T, own, batch, p, first_layer)
                for k in range(h * p, d):
                    row[k] -= eta * slope[k]
                continue
            slope[: h * p] = 0
            add_products(errors[0, :count].T, own, batch, p, slope[: h * p].reshape((h, p)))
            for k in range(d):
                pull = slope[k] + lam * row[k] + mu * (row[k] - theta[k])
                if shifted:
                    pull += shift[j, k]
                speed[k] = beta * speed[k] + pull
                row[k] -= eta * speed[k]
        for k in range(d):
            row[k] -= theta[k]
