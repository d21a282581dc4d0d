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
from fedpriv.learning.training.kernels.head import descend
from fedpriv.learning.training.kernels.orders import batch_at
from fedpriv.learning.training.kernels.products import (
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

LANES = 16
"""Rows of Gram matrices and of C are padded to multiples of this: whole vectors."""


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
    most = largest(sizes)
    products = np.empty((padded(most, TILE), padded(most, TILE)), features.dtype)
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
    group: Group,
    places: NDArray[np.int64],
    grams: NDArray[Any],
    records: Records,
    theta: NDArray[Any],
    shift: NDArray[Any],
    widths: NDArray[np.int64],
    activation: int,
    bias: bool,
    rules: Rules,
    rows: NDArray[Any],
) -> None:
    """Write the updates of some parties.

    Args:
        key: The key of the round.
        group: The parties.
        places: (m,), where their Gram matrices begin.
        grams: All Gram matrices: see `fill_grams`.
        records: The records of all.
        theta: (d,).
        shift: (m, d), or (0, 0) for none.
        widths: Of the outputs of all layers.
        activation: Its code.
        bias: Whether layers have biases.
        rules: What a party does.
        rows: (m, ≥ d), overwritten.
    """
    features = records.features
    number = features.dtype.type
    eta, beta = number(rules.rates[0]), number(rules.rates[1])
    mu, lam = number(rules.rates[2]), number(rules.rates[3])
    inert, shifted = beta + mu + lam == 0, len(shift) > 0
    p, h = features.shape[1], widths[0]
    below = h * p + (h if bias else 0)  # the parameters of the first layer
    weights, above = theta[: h * p].reshape((h, p)), theta[below:]
    most = largest(group.sizes)
    size = min(rules.batch_size, most) if rules.batch_size else most
    wide, deep = padded(largest(widths), LANES), padded(size, TILE)
    across = 1 if h == 1 else padded(h, LANES)
    counting = np.arange(max(most, wide, deep))
    values = np.empty((len(widths), deep, wide), features.dtype)
    errors = np.empty((len(widths), deep, wide), features.dtype)
    common = np.empty((padded(most, TILE), padded(h, TILE)), features.dtype)
    pulled = np.empty((padded(most, TILE), padded(h, TILE)), features.dtype)
    order = np.empty(most, np.int64)
    upper, speed = np.empty(len(above), features.dtype), np.empty(len(above), features.dtype)
    slope = np.empty(len(above), features.dtype)
    combinations = np.empty(padded(most, LANES) * across, features.dtype)
    motions = np.empty(padded(most, LANES) * across, features.dtype)
    for j in range(len(group.numbers)):
        start, n, row = group.starts[j], group.sizes[j], rows[j]
        lanes = padded(n, LANES)
        own, all_own = features[start : start + n], counting[:n]
        gram = grams[places[j] : places[j] + n * lanes].reshape((n, lanes))
        _first_layer(own, all_own, weights, theta[h * p : below], common)
        push = shift[j] if shifted else theta[:0]
        if shifted:
            _first_layer(own, all_own, push[: h * p].reshape((h, p)), push[h * p : below], pulled)
        combination = combinations[: lanes * across].reshape((lanes, across))  # C
        motion = motions[: lanes * across].reshape((lanes, across))  # the part of v in X's span
        combination[:] = 0
        motion[:] = 0
        kept, drift = number(1), number(0)  # a and s
        kept_speed, drift_speed = number(0), number(0)
        for k in range(len(upper)):
            upper[k] = above[k]
        speed[:] = 0
        for step in range(group.steps[j]):
            batch = batch_at(key, group.numbers[j], step, rules.batch_size, order[:n])
            count = len(batch)
            if step == 0:  # C is zero
                values[0, :count] = 0
            elif h == 1:
                fill_products(gram, batch, combination.reshape((1, lanes)), lanes, values[0])
            else:
                add_products(gram, batch, combination, all_own, h, values[0, :count], FRESH)
            for i in range(count):
                place = batch[i]
                for a in range(h):
                    values[0, i, a] += kept * common[place, a]
                if shifted:
                    for a in range(h):
                        values[0, i, a] += drift * pulled[place, a]
            descend(
                widths,
                activation,
                rules,
                records,
                start + batch,
                counting,
                upper,
                slope,
                values,
                errors,
            )
            move(rules.rates, slope, above, push[below:], speed, upper)
            kept_speed = beta * kept_speed + lam * kept + mu * (kept - number(1))
            drift_speed = beta * drift_speed + (lam + mu) * drift + number(1)
            kept -= eta * kept_speed
            drift -= eta * drift_speed
            if inert:
                for i in range(count):
                    place = batch[i]
                    for a in range(h):
                        combination[place, a] -= eta * errors[0, i, a]
                continue
            for i in range(n):
                for a in range(h):
                    motion[i, a] = beta * motion[i, a] + (lam + mu) * combination[i, a]
            for i in range(count):
                place = batch[i]
                for a in range(h):
                    motion[place, a] += errors[0, i, a]
            for i in range(n):
                for a in range(h):
                    combination[i, a] -= eta * motion[i, a]
        moved = row[: h * p].reshape((h, p))
        stayed = kept == 1 and not shifted  # nothing but C moved
        if not stayed:
            for k in range(h * p):
                row[k] = (kept - number(1)) * theta[k]
            if shifted:
                for k in range(h * p):
                    row[k] += drift * push[k]
        add_products(combination.T, counting, own, all_own, p, moved, stayed)
        for a in range(below - h * p):
            total = (kept - number(1)) * theta[h * p + a]
            if shifted:
                total += drift * push[h * p + a]
            for i in range(n):
                total += combination[i, a]
            row[h * p + a] = total
        for k in range(len(upper)):
            row[below + k] = upper[k] - above[k]


@compiled(relaxed={"contract", "nsz"})
def _first_layer(
    features: NDArray[Any],
    rows: NDArray[np.int64],
    weights: NDArray[Any],
    bias: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """The outputs of a dense layer; the bias may be empty."""
    fill_products(features, rows, weights, features.shape[1], out)
    for i in range(len(rows)):
        for a in range(len(bias)):
            out[i, a] += bias[a]
