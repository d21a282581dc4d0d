"""Sequential networks as tables of numbers, for compiled local training.

Known are convolutions, max-pooling, dense layers, flattening and elementwise activations, one after
another: the convolutional networks of the literature on federated averaging. All others are trained
by vectorised autograd (`general`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from fedpriv.learning.network import NetworkModel
from fedpriv.learning.training.kernels.slopes import ACTIVATION_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.learning.models import Model

CONVOLUTION, DENSE, ACTIVATION, POOL, FLATTEN = range(5)
"""Kinds of layers."""

KIND, SIZES, WEIGHT, BIAS, CODE, SOURCE, RESULT, EXTRA, COLUMNS = 0, 1, 13, 14, 15, 16, 17, 18, 19
"""Columns of the table: see `Sequence`."""

_VECTOR = 16
_TILE = 4
_FUNCTIONS = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sequence:
    """A sequential network: one row of numbers a layer.

    Attributes:
        table: (L, columns) int64. Of every layer: its kind; the twelve sizes of
            `fedpriv.learning.training.kernels.images`; where its weights and its bias begin among
            the parameters (-1: none); the code of an activation; where its inputs and its outputs
            begin among the values of a batch; where its patches, or the places of its maxima,
            begin; of an activation, whether its values are images.
        rooms: Records that there is room for; numbers of inputs and outputs of all layers, of
            patches, of places of maxima; scores per record; whether records are images.
    """

    table: NDArray[np.int64]
    rooms: NDArray[np.int64]


def sequence_of(model: Model, *, records: int) -> Sequence | None:
    """The table of a model, with room for so many records at once; None if it has none."""
    if not isinstance(model, NetworkModel) or len(model.input_shape) not in (1, 3):
        return None
    builder = _Builder(model.input_shape, records)
    seen: set[int] = set()
    for layer in _layers(model.module):
        if id(layer) in seen or not builder.add(layer):
            return None
        if layer is not None and list(layer.parameters()):
            seen.add(id(layer))
    if builder.weights != model.dimension or builder.shape != (model.classes,):
        return None
    room = (records, builder.values, builder.patches, builder.maxima)
    rooms = np.array([*room, model.classes, len(model.input_shape) == 3], np.int64)
    return Sequence(table=np.array(builder.rows, np.int64), rooms=rooms)


def _layers(module: nn.Module) -> Iterator[nn.Module | None]:
    """The layers of nested sequences, in order; None for one whose behaviour may be customised."""
    hooked = any(
        getattr(module, name)
        for name in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
        )
    )
    if hooked or "forward" in vars(module):
        yield None
    elif type(module) is nn.Sequential:
        for child in module:
            yield from _layers(child)
    elif type(module) is not nn.Identity:
        yield module


class _Builder:
    """Adds layers to a table, and keeps account of shapes and places."""

    def __init__(self, shape: tuple[int, ...], records: int) -> None:
        self.shape, self._records = shape, records
        self.rows: list[list[int]] = []
        self.weights = self.patches = self.maxima = 0
        self.values = self._room(shape)
        self._newest = 0  # where the values of the newest layer begin

    def add(self, layer: nn.Module | None) -> bool:
        """Whether the layer could be added."""
        if type(layer) in _FUNCTIONS:
            code = ACTIVATION_CODES[_FUNCTIONS[type(layer)]]
            again = bool(self.rows) and self.rows[-1][KIND] == ACTIVATION
            self._row(ACTIVATION, self.shape, code=code, extra=int(len(self.shape) == 3))
            return not again  # the values of the first would be lost
        if isinstance(layer, nn.Flatten) and type(layer) is nn.Flatten:
            return self._flatten(layer)
        if type(layer) is nn.Linear and len(self.shape) == 1:
            return self._parametric(DENSE, layer, (layer.out_features,), [1] * 6)
        if type(layer) is nn.Conv2d and len(self.shape) == 3:
            return self._convolution(layer)
        if type(layer) is nn.MaxPool2d and len(self.shape) == 3:
            return self._pool(layer)
        return False

    def _flatten(self, layer: nn.Flatten) -> bool:
        if (layer.start_dim, layer.end_dim) != (1, -1):
            return False
        if len(self.shape) == 3:
            self._row(FLATTEN, (int(np.prod(self.shape)),))
        return True

    def _convolution(self, layer: nn.Conv2d) -> bool:
        padding = layer.padding
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
        if isinstance(padding, str) or not plain:
            return False
        windows = [*layer.kernel_size, *layer.stride, *padding]
        shape = (layer.out_channels, *self._positions(windows))
        patches = self.patches
        weights = self.shape[0] * layer.kernel_size[0] * layer.kernel_size[1]
        self.patches += weights * _padded(self._records * shape[1] * shape[2], _VECTOR)
        return self._parametric(CONVOLUTION, layer, shape, windows, extra=patches)

    def _pool(self, layer: nn.MaxPool2d) -> bool:
        plain = _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1)
        if not plain or layer.ceil_mode or layer.return_indices:
            return False
        windows = [*_pair(layer.kernel_size), *_pair(layer.stride), 0, 0]
        shape = (self.shape[0], *self._positions(windows))
        self._row(POOL, shape, windows, extra=self.maxima)
        self.maxima += self._room(shape)
        return True

    def _positions(self, windows: list[int]) -> tuple[int, int]:
        tall, broad, down, right, above, left = windows
        return (
            (self.shape[1] + 2 * above - tall) // down + 1,
            (self.shape[2] + 2 * left - broad) // right + 1,
        )

    def _parametric(
        self,
        kind: int,
        layer: nn.Linear | nn.Conv2d,
        shape: tuple[int, ...],
        windows: list[int],
        *,
        extra: int = 0,
    ) -> bool:
        """A layer with weights, all of them trainable, and perhaps a bias."""
        if not all(parameter.requires_grad for parameter in layer.parameters()):
            return False
        weight, bias = self.weights, -1
        self.weights += layer.weight.numel()
        if layer.bias is not None:
            bias = self.weights
            self.weights += layer.bias.numel()
        self._row(kind, shape, windows, extra=extra, weight=weight, bias=bias)
        return True

    def _row(
        self,
        kind: int,
        shape: tuple[int, ...],
        windows: list[int] | None = None,
        *,
        weight: int = -1,
        bias: int = -1,
        code: int = 0,
        extra: int = 0,
    ) -> None:
        source = self._newest
        if kind != ACTIVATION:  # which is computed in place
            self._newest = self.values
            self.values += self._room(shape)
        sizes = [*_image(self.shape), *_image(shape), *(windows or [1] * 6)]
        self.rows.append([kind, *sizes, weight, bias, code, source, self._newest, extra])
        self.shape = shape

    def _room(self, shape: tuple[int, ...]) -> int:
        if len(shape) == 1:
            return _padded(self._records, _TILE) * _padded(shape[0], _TILE)
        return shape[0] * _padded(self._records * shape[1] * shape[2], _VECTOR)


def _image(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) == 3 else (shape[0], 1, 1)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
