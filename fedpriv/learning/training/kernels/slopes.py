"""Slopes of losses and derivatives of activations, compiled, one record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._compiled import compiled
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Softmax, Squared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.losses import Loss

_LOGISTIC, _HINGE, _HUBER, _SQUARED, _SOFTMAX = range(5)
ACTIVATION_CODES = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}
"""What compiled code calls the activations."""


def loss_code(loss: Loss) -> tuple[int, float] | None:
    """What compiled code calls a loss, and its parameter; None if it does not know it."""
    if type(loss) is Logistic:
        return _LOGISTIC, 0.0
    if type(loss) is HuberHinge:
        return _HINGE, loss.smoothing
    if type(loss) is HuberRegression:
        return _HUBER, loss.threshold
    if type(loss) is Squared:
        return _SQUARED, 0.0
    return (_SOFTMAX, 0.0) if type(loss) is Softmax else None


@compiled(relaxed={"contract", "nsz"})
def write_slopes(
    code: int, parameter: float, scores: NDArray[Any], label: float, outputs: int
) -> None:
    """Overwrite the scores of a record by the derivatives of its loss."""
    number = scores.dtype.type
    one, constant = number(1), number(parameter)
    score = scores[0]
    if code == _SOFTMAX:
        for j in range(1, outputs):
            score = max(score, scores[j])
        total = number(0)
        for j in range(outputs):
            scores[j] = np.exp(scores[j] - score)
            total += scores[j]
        for j in range(outputs):
            scores[j] /= total
        scores[int(label)] -= one
    elif code == _LOGISTIC:
        scores[0] = -label / (one + np.exp(label * score))
    elif code == _HINGE:
        bend = (one + constant - label * score) / (constant + constant)
        scores[0] = -label * min(max(bend, number(0)), one)
    elif code == _HUBER:
        scores[0] = min(max(score - label, -constant), constant)
    else:
        scores[0] = score - label


@compiled(relaxed={"contract", "nsz"})
def activate(code: int, values: NDArray[Any], width: int) -> None:
    """Overwrite inputs of an activation by its values."""
    one = values.dtype.type(1)
    if code == 1:
        for j in range(width):
            values[j] = one / (one + np.exp(-values[j]))
    elif code == 2:
        for j in range(width):
            values[j] = np.tanh(values[j])
    elif code == 3:
        for j in range(width):
            # Not a maximum: NaN must stay.
            values[j] = values[j] if not values[j] < 0 else values.dtype.type(0)


@compiled(relaxed={"contract", "nsz"})
def pull_back(code: int, values: NDArray[Any], errors: NDArray[Any], width: int) -> None:
    """Multiply errors by the derivative of an activation, as a function of its values."""
    one, zero = values.dtype.type(1), values.dtype.type(0)
    if code == 1:
        for j in range(width):
            errors[j] *= values[j] * (one - values[j])
    elif code == 2:
        for j in range(width):
            errors[j] *= one - values[j] * values[j]
    elif code == 3:
        for j in range(width):
            errors[j] = errors[j] if values[j] > 0 else zero
