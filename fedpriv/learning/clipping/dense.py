"""Per-record gradients of stacks of dense layers: one forward and one backward pass, by hand.

With inputs a₀ = x, a_l = φ(W_l·a_{l-1} + b_l) and errors δ_L = slope, δ_{l-1} = φ′∘(W_lᵀδ_l), the
gradient of record i with respect to (W_l, b_l) is (δ_l ⊗ a_{l-1}, δ_l). Its norm needs no gradient
(*ghost* clipping; Goodfellow 2015; Li et al. 2022, arXiv:2110.05679), and because errors are per
record the clipped sum needs no second backward pass: only the last product carries the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import torch

from fedpriv.learning.clipping.factors import Dense
from fedpriv.learning.clipping.isolation import slopes_one_by_one, values_one_by_one
from fedpriv.learning.losses import PROVED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.losses import Loss


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """A dense layer: weights (k, p) and a bias (k,)."""

    weights: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """An elementwise function, and its derivative as a function of its value."""

    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


ROWS = 192
"""Rows that go through a function together: whole vectors, and whole tiles of all heights in use,
4 to 48, 64, for modules that multiply on their own."""

ACTIVATIONS = {
    "identity": Activation(value=lambda a: a, derivative=torch.ones_like),
    "sigmoid": Activation(value=torch.sigmoid, derivative=lambda a: a * (1 - a)),
    "tanh": Activation(value=torch.tanh, derivative=lambda a: 1 - a.square()),
    "relu": Activation(value=torch.relu, derivative=lambda a: (a > 0).to(a.dtype)),
}


def dense_scores(layers: Sequence[Layer], activation: Activation, features: Tensor) -> Tensor:
    """The outputs of the last layer, (n, k)."""
    return _forward(layers, activation, features)[-1]


def dense_factors(
    layers: Sequence[Layer], activation: Activation, batch: RecordBatch, loss: Loss
) -> tuple[Dense, ...]:
    """The gradient of every record, one factor per layer."""
    from fedpriv.learning.row_products import row_products  # it loads a compiler

    *inputs, scores = _forward(layers, activation, batch.features)
    errors = filled_slopes(loss, scores, batch.labels)
    factors = []
    for depth in reversed(range(len(layers))):
        factors.append(
            Dense(
                inputs[depth],
                errors,
                bias=True,
                input_squares=batch.squares if depth == 0 else None,
            )
        )
        if depth > 0:
            back = row_products(errors, layers[depth].weights)
            errors = activation.derivative(inputs[depth]).mul_(back)
    return tuple(reversed(factors))


def slopes(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """dℓ/dscore as (n, k); not a number where a class index is out of range.

    Such a record is then rejected like any other without a finite gradient; an index error would
    stop the whole computation. A loss of a user's own is shown one record at a time
    (`slopes_one_by_one`).
    """
    slope = loss.slope if type(loss) in PROVED else partial(slopes_one_by_one, loss)
    if loss.outputs == 1:
        return slope(scores.squeeze(1), labels).unsqueeze(1)
    known = (labels >= 0) & (labels < loss.outputs)
    derivatives = slope(scores, labels.clamp(0, loss.outputs - 1))
    return derivatives.masked_fill(~known.unsqueeze(1), nan)


def filled_slopes(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """`slopes`, computed for each record by the same instructions, whatever its position.

    Not a number where a loss of a user's own raises an error.
    """
    compute = partial(filled, partial(slopes, loss))
    return _spared_if_own(compute, loss, scores, labels, shape=scores.shape[1:])


def filled_values(loss: Loss, scores: Tensor, labels: Tensor) -> Tensor:
    """The losses of records, as `filled_slopes` has slopes; scores are as the loss takes them.

    Each of a loss of a user's own follows from one score and label: sums of them are released.
    """
    value = loss.value if type(loss) in PROVED else partial(values_one_by_one, loss)
    compute = partial(filled, value)
    return _spared_if_own(compute, loss, scores, labels, shape=labels.shape[1:])


def _spared_if_own(
    compute: Callable[..., Tensor], loss: Loss, scores: Tensor, labels: Tensor, *, shape: torch.Size
) -> Tensor:
    """Rows of the given shape, not a number where a loss of a user's own raises an error."""
    from fedpriv.learning.clipping.spared import spared_rows  # which knows models

    own = type(loss) not in PROVED
    return spared_rows(compute, scores, labels, shape=shape) if own else compute(scores, labels)


def filled(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """``function`` of tensors with a row a record, each computed by the same instructions.

    Elementwise kernels use other instructions for the numbers left over when the length is not a
    multiple of the vector width. The last digit of a sigmoid, which may decide whether a gradient
    is clipped, would then depend on the number of records. So the inputs are padded with copies of
    the first record to a multiple of `ROWS`; if no padding is needed they are copied, so that the
    memory layout is always the same.
    """
    count = len(inputs[0])
    missing = -count % ROWS
    return function(
        *(torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])]) for rows in inputs)
    )[:count]


def _forward(layers: Sequence[Layer], activation: Activation, features: Tensor) -> list[Tensor]:
    """The input of every layer, and the output of the last."""
    from fedpriv.learning.row_products import row_products  # it loads a compiler

    values = [features]
    for depth, layer in enumerate(layers):
        if depth > 0:
            values[-1] = filled(activation.value, values[-1])
        values.append(row_products(values[-1], layer.weights.T).add_(layer.bias))
    return values
