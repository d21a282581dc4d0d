"""Stacks of dense layers as plain numbers: a dense model as local training needs it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from torch.nn.functional import linear

from fedpriv.learning.clipping.dense import ACTIVATIONS
from fedpriv.learning.models import LinearModel, MlpModel, unflatten

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.learning.models import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseStack:
    """Dense layers with one activation between them; parameters in the order of the model.

    Attributes:
        widths: Features, hidden layers, outputs.
        bias: Whether layers have biases.
        activation: A name in `ACTIVATIONS`.
    """

    widths: tuple[int, ...]
    bias: bool
    activation: str

    @property
    def dimension(self) -> int:
        """The number of parameters."""
        return sum((p + self.bias) * k for p, k in pairwise(self.widths))

    def scores(self, theta: Tensor, features: Tensor) -> Tensor:
        """Scores (n, k), differentiable: no care is taken of where in the batch a record is."""
        shapes: list[tuple[int, ...]] = []
        for inputs, outputs in pairwise(self.widths):
            shapes += [(outputs, inputs), (outputs,)] if self.bias else [(outputs, inputs)]
        tensors, rows = unflatten(theta, shapes), features
        stride = 2 if self.bias else 1
        for place in range(0, len(tensors), stride):
            if place > 0:
                rows = ACTIVATIONS[self.activation].value(rows)
            rows = linear(rows, tensors[place], tensors[place + 1] if self.bias else None)
        return rows


def dense_stack(model: Model) -> DenseStack | None:
    """The layers of a linear model or a multi-layer perceptron; None for other models."""
    if isinstance(model, LinearModel):
        widths = (model.width, model.classes)
        return DenseStack(widths=widths, bias=False, activation="identity")
    if isinstance(model, MlpModel):
        return DenseStack(widths=model.widths, bias=True, activation=model.activation)
    return None
