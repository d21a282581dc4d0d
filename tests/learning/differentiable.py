"""Scores that autograd can go through, of any model: what gradients are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.learning.training.stacks import dense_stack

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.models import Model


def differentiable_scores(model: Model, theta: Tensor, features: Tensor) -> Tensor:
    """(n,) for one output, else (n, outputs)."""
    stack = dense_stack(model)
    if stack is None:
        return model.scores(theta, features)
    scores = stack.scores(theta, features)
    return scores.squeeze(1) if model.outputs == 1 else scores
