"""Local training on Gram matrices: the first layer of a party never leaves the span of its records.

A step adds multiples of records, of θ and of the shift to the weights W of the first layer:

    W = a·W₀ + CᵀX + s·S

so its outputs on the party's records are a·XW₀ᵀ + KC + s·XSᵀ with K = XXᵀ, which is computed once
for all rounds. A round needs the first product once, steps on matrices of the size of the party,
and CᵀX for the update, however many epochs there are. A bias is the weight of a feature that is
always 1: K + 1. Momentum, proximal term and regulariser are linear, and act on a, C and s alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.training.head import descend
from fedpriv.learning.training.orders import shuffle
from fedpriv.learning.training.products import add_products, fill_products

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 16
"""Rows of Gram matrices are padded with zeros to multiples of this: whole vectors."""


@compiled()
def padded(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple


@compiled()
def fill_grams(
    features: NDArray[Any],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    places: NDArray[np.int64],
    constant: float,
    grams: NDArray[Any],
) -> None:
    """Write XXᵀ + constant of every party, (n, padded n), one behind another."""
    most = sizes.max() if len(sizes) else 0
    products = np.empty((padded(most, 4), padded(most, 4)), features.dtype)
    counting = np.arange(most)
    for j in range(len(sizes)):
        n, wide = sizes[j], padded(sizes[j], LANES)
        own = features[starts[j] : starts[j] + n]
        fill_products(own, counting[:n], own, features.shape[1], products)
        gram = grams[places[j] : places[j] + n * wide].reshape((n, wide))
        gram[:] = 0
        for i in range(n):
            for k in range(n):
                gram[i, k] = products[i, k] + constant


@compiled(relaxed={"contract", "nsz"})
def train_on_grams(
    key: np.uint64,
    parties: NDArray[np.int64],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    steps: NDArray[np.int64],
    places: NDArray[np.int64],
    grams: NDArray[Any],
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
    """Write the updates of some parties, (m, d).

    Args:
        key: The key of the round.
        parties: (m,), indices among all parties, for their orders.
        starts: (m,), their first records.
        sizes: (m,), their numbers of records, at least 1.
        steps: (m,), their numbers of steps.
        places: (m,), where their Gram matrices begin.
        grams: All Gram matrices: see `fill_grams`.
        features: (n, p).
        labels: (n,).
        usable: (n,).
        theta: (d,).
        shift: (m, d), or (0, 0) for none.
        widths: (L+1,), of the outputs of all layers.
        codes: Of the loss and of the activation.
        numbers: η, β, μ, λ, and the parameter of the loss.
        batch_size: Records in a batch; 0 for all of a party.
        bias: Whether layers have biases.
        rows: Overwritten.
    """
    number = features.dtype.type
    eta, beta, mu, lam = (
        number(numbers[0]),
        number(numbers[1]),
        number(numbers[2]),
        number(numbers[3]),
    )
    heavy, shifted = beta > 0, len(shift) > 0
    rich = heavy or mu + lam > 0
    p, h = features.shape[1], widths[0]
    below = h * p + (h if bias else 0)  # the parameters of the first layer
    weights = theta[: h * p].reshape((h, p))
    most = sizes.max()
    size = min(batch_size, most) if batch_size else most
    wide, deep = padded(widths.max(), 4), padded(size, 4)
    counting = np.arange(max(most, wide, deep))
    values = np.empty((len(widths), deep, wide), features.dtype)
    errors = np.empty((len(widths), deep, wide), features.dtype)
    common = np.empty((padded(most, 4), padded(h, 4)), features.dtype)
    pulled = np.empty((padded(most, 4) if shifted else 0, padded(h, 4)), features.dtype)
    order = np.empty(most, np.int64)
    batch_labels, batch_usable = np.empty(size, labels.dtype), np.empty(size, np.bool_)
    upper, speed = (
        np.empty(len(theta) - below, theta.dtype),
        np.empty(len(theta) - below, theta.dtype),
    )
    slope = np.empty(len(theta) - below, theta.dtype)
    for j in range(len(parties)):
        n, lanes = sizes[j], padded(sizes[j], LANES)
        own = features[starts[j] : starts[j] + n]
        gram = grams[places[j] : places[j] + n * lanes].reshape((n, lanes))
        row = rows[j]
        fill_products(own, counting[:n], weights, p, common)
        if bias:
            for i in range(n):
                for a in range(h):
                    common[i, a] += theta[h * p + a]
        if shifted:
            fill_products(own, counting[:n], shift[j, : h * p].reshape((h, p)), p, pulled)
            if bias:
                for i in range(n):
                    for a in range(h):
                        pulled[i, a] += shift[j, h * p + a]
        combination = np.zeros((h, lanes), features.dtype)
        motion = np.zeros((h if heavy else 0, lanes), features.dtype)
        kept, drift = number(1), number(0)  # a and s
        kept_speed, drift_speed = number(0), number(0)
        upper[:] = theta[below:]
        speed[:] = 0
        full = batch_size if batch_size else n
        batches = (n + full - 1) // full
        for step in range(steps[j]):
            if step % batches == 0:
                shuffle(key, parties[j], step // batches, order[:n])
            first = step % batches * full
            batch = order[first : min(first + full, n)]
            count = len(batch)
            if step > 0:
                fill_products(gram, batch, combination, lanes, values[0])
            else:
                values[0, :count, :h] = 0
            for i in range(count):
                value, known = values[0, i], common[batch[i]]
                for a in range(h):
                    value[a] += kept * known[a]
                if shifted:
                    for a in range(h):
                        value[a] += drift * pulled[batch[i], a]
                batch_labels[i] = labels[starts[j] + batch[i]]
                batch_usable[i] = usable[starts[j] + batch[i]]
            descend(
                widths,
                codes,
                numbers[4],
                batch_labels[:count],
                batch_usable[:count],
                counting,
                upper,
                slope,
                values,
                errors,
            )
            for k in range(len(upper)):
                pull = slope[k] + lam * upper[k] + mu * (upper[k] - theta[below + k])
                if shifted:
                    pull += shift[j, below + k]
                speed[k] = beta * speed[k] + pull
                upper[k] -= eta * speed[k]
            kept_speed = beta * kept_speed + lam * kept + mu * (kept - number(1))
            drift_speed = beta * drift_speed + (lam + mu) * drift + number(1)
            if heavy:
                for a in range(h):
                    for i in range(lanes):
                        motion[a, i] = beta * motion[a, i] + (lam + mu) * combination[a, i]
                    for i in range(count):
                        motion[a, batch[i]] += errors[0, i, a]
                    for i in range(lanes):
                        combination[a, i] -= eta * motion[a, i]
            else:
                if rich:
                    for a in range(h):
                        for i in range(lanes):
                            combination[a, i] -= eta * (lam + mu) * combination[a, i]
                for i in range(count):
                    for a in range(h):
                        combination[a, batch[i]] -= eta * errors[0, i, a]
            kept -= eta * kept_speed
            drift -= eta * drift_speed
        lost = kept - number(1)
        for k in range(below):
            row[k] = lost * theta[k]
        if shifted:
            for k in range(below):
                row[k] += drift * shift[j, k]
        add_products(combination, own, counting[:n], p, row[: h * p].reshape((h, p)))
        if bias:
            for a in range(h):
                total = number(0)
                for i in range(n):
                    total += combination[a, i]
                row[h * p + a] += total
        for k in range(len(upper)):
            row[below + k] = upper[k] - theta[below + k]
