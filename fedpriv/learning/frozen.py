"""Frozen layers: parameters of a network that stay as they are, and are no part of θ.

    f(θ, c; x),  θ the trainable parameters, c the frozen ones

Gradients are with respect to θ alone: they are clipped over the trainable coordinates, and only
these get noise. Every party computes with the frozen parameters, and anybody may read them in the
released model. They must therefore be public, for example pre-trained on public data.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from fedpriv.learning.models import MlpModel, Model
from fedpriv.learning.network import NetworkModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_ACTIVATIONS = {
    "identity": nn.Identity,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frozen:
    """A network with frozen layers, and how its parameters lie in those of the whole network.

    Attributes:
        model: Whose parameters are the trainable ones.
        parameters: Of the whole network; at frozen positions, the constants of the model.
        trainable: Which of these the model's parameters are, in order.
    """

    model: NetworkModel
    parameters: Vector
    trainable: NDArray[np.bool_]

    @property
    def start(self) -> Vector:
        """The trainable ones among the parameters."""
        return self.parameters[self.trainable]

    def whole(self, theta: Vector) -> Vector:
        """All parameters of the network, with ``theta`` at the trainable positions."""
        parameters = self.parameters.copy()
        parameters[self.trainable] = theta
        return parameters


def freeze(model: Model, *, layers: Sequence[str], parameters: Vector) -> Frozen:
    """The same network, with the named layers fixed at their values in ``parameters``.

    Args:
        model: A multi-layer perceptron, whose layers are dense1, dense2, …; or any other network,
            whose layers are called as PyTorch does (``named_modules``). A layer stands for all that
            is inside it.
        layers: What to freeze.
        parameters: Of the whole network, (d,).
    """
    network = _network(model)
    if parameters.shape != (network.dimension,):
        raise ValueError(
            f"parameters must have shape {(network.dimension,)}, got {parameters.shape}."
        )
    places = dict(_places(network.module))
    module, trainable = deepcopy(network.module), np.ones(network.dimension, dtype=bool)
    named = dict(module.named_parameters())
    for layer in layers:
        inside = [name for name in places if name.startswith(f"{layer}.")]
        if not inside:
            known = dict.fromkeys(name.rpartition(".")[0] for name in places)
            raise ValueError(
                f"frozen must name layers with parameters, got {layer!r}. This network has "
                f"{', '.join(filter(None, known))}."
            )
        for name in inside:
            trainable[places[name]] = False
            values = torch.from_numpy(parameters[places[name]]).view(named[name].shape)
            with torch.no_grad():
                named[name].requires_grad_(False).copy_(values)
    if not trainable.any():
        raise ValueError(f"frozen must leave a layer to train, got {', '.join(layers)}: all.")
    return Frozen(
        model=NetworkModel(module=module, input_shape=network.input_shape, classes=network.classes),
        parameters=parameters.copy(),
        trainable=trainable,
    )


def _network(model: Model) -> NetworkModel:
    """The model as a PyTorch module: a perceptron has the same parameters in the same order."""
    if isinstance(model, NetworkModel):
        return model
    if not isinstance(model, MlpModel):
        raise ValueError(f"frozen layers are for networks, got a {type(model).__name__}.")
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for depth, (inputs, outputs) in enumerate(pairwise(model.widths), 1):
        if depth > 1:
            layers[f"activation{depth - 1}"] = _ACTIVATIONS[model.activation]()
        layers[f"dense{depth}"] = nn.Linear(inputs, outputs)
    return NetworkModel(
        module=nn.Sequential(layers), input_shape=(model.features,), classes=model.outputs
    )


def _places(module: nn.Module) -> Iterator[tuple[str, slice]]:
    """Where each trainable parameter lies in the vector of all of them."""
    begin = 0
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield name, slice(begin, begin + parameter.numel())
            begin += parameter.numel()
