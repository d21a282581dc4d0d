"""Models whose parameters are one vector: what a query names and a sum of gradients adds up to.

The order of the parameters is fixed: layer by layer, weights (row by row) before bias, as PyTorch
enumerates them. `scores` and gradients are computed in the precision of the features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpriv._validate import require_choice, require_count
from fedpriv.learning.clipping.dense import (
    ACTIVATIONS,
    Layer,
    dense_factors,
    dense_scores,
    filled_slopes,
)
from fedpriv.learning.clipping.factors import Dense
from fedpriv.learning.segments import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.factors import Factor
    from fedpriv.learning.losses import Loss

_CACHE = 1 << 22  # bytes


class Model(ABC):
    """A map from parameters and one record's features to scores. Use a subclass.

    Every record is scored on its own; all gradient clipping relies on that. It holds across
    threads, too: engines share one model between their workers, so a method must leave nothing in
    the model that another call could read.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def features(self) -> int:
        """Numbers in a record's features; an image is flattened."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Scores a record: 1, or the number of classes."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number d of parameters."""

    @property
    def device(self) -> str:
        """Where gradients are computed and clipped: a name of PyTorch's."""
        return "cpu"

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> Tensor:
        """Parameters to start from, float64 (d,); they depend on nothing but the generator."""

    @abstractmethod
    def scores(self, theta: Tensor, features: Tensor) -> Tensor:
        """Scores of n records: (n,) for one output, else (n, outputs)."""

    @abstractmethod
    def gradient_factors(self, theta: Tensor, batch: RecordBatch, loss: Loss) -> tuple[Factor, ...]:
        """The per-record gradients of the loss, layer by layer in the order of the parameters."""

    @abstractmethod
    def working_size(self, *, materialised: bool) -> int:
        """Numbers of working memory a record: for plain clipping, or with gradients written out."""

    def records_at_once(self, memory_limit: int, *, number_bytes: int, materialised: bool) -> int:
        """How many records to compute together within so many bytes; at least one."""
        numbers = self.working_size(materialised=materialised)
        return max(1, memory_limit // (number_bytes * numbers))


def require_width(model: Model, features: Tensor) -> None:
    """Refuse features that have not as many columns as the model."""
    if features.shape[1] != model.features:
        raise ValueError(
            f"features must have {model.features} columns, as the model, got {features.shape[1]}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModel(Model):
    """Scores θx, without a bias: the features carry their own intercept.

    One score has parameters (width,); k scores have (k, width), flattened row by row.
    """

    width: int
    classes: int = 1

    def __post_init__(self) -> None:
        require_count(width=self.width, classes=self.classes)

    @property
    def features(self) -> int:
        """The width."""
        return self.width

    @property
    def outputs(self) -> int:
        """The classes."""
        return self.classes

    @property
    def dimension(self) -> int:
        """Width times classes."""
        return self.width * self.classes

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Zero: the problem is convex."""
        return torch.zeros(self.dimension, dtype=torch.float64)

    def scores(self, theta: Tensor, features: Tensor) -> Tensor:
        """Xθ."""
        return _one_or_many(self._scores(theta, features))

    def gradient_factors(self, theta: Tensor, batch: RecordBatch, loss: Loss) -> tuple[Factor, ...]:
        """slopeᵢ ⊗ xᵢ: nothing but the slopes is computed, each from its record alone."""
        errors = filled_slopes(loss, self._scores(theta, batch.features), batch.labels)
        return (Dense(batch.features, errors, bias=False, input_squares=batch.squares),)

    def working_size(self, *, materialised: bool) -> int:
        """A few numbers a record beyond the features, unless gradients are written out."""
        return 16 + 4 * self.classes + (3 * self.dimension if materialised else 0)

    def records_at_once(self, memory_limit: int, *, number_bytes: int, materialised: bool) -> int:
        """At most a cacheful, if that is many records: features are read twice."""
        near = max(BLOCK, _CACHE // (number_bytes * self.width))
        numbers = self.working_size(materialised=materialised)
        return max(1, min(near, memory_limit // (number_bytes * numbers)))

    def _scores(self, theta: Tensor, features: Tensor) -> Tensor:
        from fedpriv.learning.row_scores import row_scores  # it loads a compiler

        return row_scores(features, theta.detach().reshape(self.classes, self.width))


@dataclass(frozen=True, kw_only=True)
class MlpModel(Model):
    """A multi-layer perceptron: dense layers with biases, one activation between them.

    ``MlpModel(widths=(784, 20, 1))`` is the 784-20-1 sigmoid network of the DP literature.
    """

    widths: tuple[int, ...]
    activation: str = "sigmoid"

    def __post_init__(self) -> None:
        if len(self.widths) < 2:
            raise ValueError(
                f"widths must name the features and the outputs at least, got {self.widths!r}."
            )
        require_count(**{f"widths[{i}]": width for i, width in enumerate(self.widths)})
        require_choice(ACTIVATIONS, activation=self.activation)

    @property
    def features(self) -> int:
        """The first width."""
        return self.widths[0]

    @property
    def outputs(self) -> int:
        """The last width."""
        return self.widths[-1]

    @cached_property
    def dimension(self) -> int:
        """Weights and biases of all layers."""
        return sum(prod(shape) for shape in self._shapes)

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Uniform weights of variance 2/(inputs + outputs), zero biases (Glorot and Bengio)."""
        tensors = []
        for shape in self._shapes:
            limit = (6 / sum(shape)) ** 0.5 if len(shape) == 2 else 0.0
            tensors.append(torch.from_numpy(rng.uniform(-limit, limit, shape)))
        return flatten(tensors)

    def scores(self, theta: Tensor, features: Tensor) -> Tensor:
        """The output of the last layer, before any activation."""
        layers = self._layers(theta, features)
        return _one_or_many(dense_scores(layers, ACTIVATIONS[self.activation], features))

    def gradient_factors(self, theta: Tensor, batch: RecordBatch, loss: Loss) -> tuple[Factor, ...]:
        """One outer product a layer."""
        layers = self._layers(theta, batch.features)
        return dense_factors(layers, ACTIVATIONS[self.activation], batch, loss)

    def working_size(self, *, materialised: bool) -> int:
        """Activations, errors and block sums, or the gradients written out."""
        per_record = 16 + 8 * sum(self.widths[1:])
        return per_record + (3 * self.dimension if materialised else self.dimension // 16)

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [
            shape
            for inputs, outputs in pairwise(self.widths)
            for shape in ((outputs, inputs), (outputs,))
        ]

    def _layers(self, theta: Tensor, features: Tensor) -> list[Layer]:
        tensors = iter(unflatten(theta.to(features.dtype), self._shapes))
        return [Layer(weights=weights, bias=next(tensors)) for weights in tensors]


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All numbers of some tensors as one vector, in order."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Views of a vector in the given shapes; inverts `flatten`."""
    sizes = [prod(shape) for shape in shapes]
    if tuple(vector.shape) != (sum(sizes),):
        raise ValueError(f"vector must have shape {(sum(sizes),)}, got {tuple(vector.shape)}.")
    pieces = torch.split(vector, sizes)
    return [piece.view(tuple(shape)) for piece, shape in zip(pieces, shapes, strict=True)]


def _one_or_many(scores: Tensor) -> Tensor:
    return scores.squeeze(1) if scores.shape[1] == 1 else scores
