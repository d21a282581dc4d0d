"""Any PyTorch module as a model, and a small convolutional network."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad

from fedpriv._validate import require_count
from fedpriv.learning.clipping import vmap
from fedpriv.learning.clipping.dense import ROWS, filled_slopes
from fedpriv.learning.clipping.layers import LayerPlan, layer_factors, layer_plans, patches_size
from fedpriv.learning.clipping.spared import spared_rows
from fedpriv.learning.models import Model, flatten, require_width, unflatten
from fedpriv.learning.record_wise import (
    RECORDS_MEET,
    UNSEPARATED,
    require_own_gradients,
    require_record_wise,
)
from fedpriv.learning.replicas import Replicas, separate_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.factors import Factor
    from fedpriv.learning.losses import Loss

_PROBES = 3
_MOST_NUMBERS = 1 << 25  # of working memory for records that are computed together
_LEAST_SIDE, _LARGE_SIDE = 4, 24  # pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkModel(Model):
    """A `torch.nn.Module` that scores every record on its own.

    The module is copied, put in training mode and checked (`require_record_wise`, and its gradients
    by `require_own_gradients`); changing the original later changes nothing here. Its trainable
    parameters are the vector θ; parameters that do not require gradients, and buffers, are
    constants.

    **One computation.** While a module computes, θ replaces its parameters, its layers carry hooks,
    and ``forward`` may store intermediate values in attributes. Records of two computations would
    mix there. So each uses a fresh copy (`Replicas`), and threads may share a model. ``forward``
    must store nothing about a record in a global or a class attribute, which all copies share.

    **One record at a time.** Scores and gradients are computed by `torch.func.vmap`: to a module's
    code, a batch is one record, whose values it cannot branch on. So what a record contributes is
    its own, also where no check looked. The checks find modules that would compute something else
    than their author means, and an `autograd.Function` whose own rule for vmap lets records meet.
    Only local training, which bounds a party's update as a whole, shows a module several records.

    Gradients are computed layer by layer if all trainable parameters sit in layers with a rule and
    a run shows that the rules give the gradient of autograd; else by vectorised autograd.

    **Positions.** Kernels use other instructions for few records and for those left over by their
    tiles. Removing one record would then change the last digits of others, and more than that at a
    kink (ReLU, max-pooling). So records are padded with zeros to multiples of 192, or of a divisor
    of it where memory is short, as in `fedpriv.learning.clipping.dense`; vectorised autograd is the
    exception.

    Attributes:
        module: Maps (n, *input_shape) to scores (n, classes), or (n,) for one class. It is read
            and copied; only copies compute.
        input_shape: The shape of one record; features arrive flattened.
        classes: Scores a record.
        device: Where scores and clipped gradients are computed. Records and parameters come from
            the processor's memory, and results go back to it. Local training runs on the processor.
    """

    module: nn.Module
    input_shape: tuple[int, ...]
    classes: int = 1
    device: str = "cpu"
    _working: int = field(init=False)
    _multiple: int = field(init=False, repr=False)
    _copies: Replicas[tuple[nn.Module, LayerPlan | None]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_count(classes=self.classes)
        require_count(**{f"input_shape[{i}]": size for i, size in enumerate(self.input_shape)})
        module = separate_copy(self.module).train()
        for layer in module.modules():
            if getattr(layer, "inplace", False):
                vars(layer)["inplace"] = False  # it would overwrite what the rules of layers keep
        vmap.vectorise_recurrent(module)
        require_record_wise(deepcopy(module), self.input_shape)
        object.__setattr__(self, "module", module)
        if not _trainable(self.module):
            raise ValueError("module must have parameters that require gradients, got none.")
        object.__setattr__(self, "_working", self._measured_size())
        multiple = ROWS
        while multiple > 1 and multiple * self._working > _MOST_NUMBERS:
            multiple //= 2
        object.__setattr__(self, "_multiple", multiple)
        # Copied together: the plan names layers of the module.
        object.__setattr__(self, "_copies", Replicas((module, self._verified_plan())))

    @property
    def features(self) -> int:
        """Numbers in a record of the input shape."""
        return prod(self.input_shape)

    @property
    def outputs(self) -> int:
        """The classes."""
        return self.classes

    @cached_property
    def dimension(self) -> int:
        """All trainable parameters."""
        return sum(parameter.numel() for parameter in _trainable(self.module).values())

    @property
    def weights(self) -> Tensor:
        """The module's own parameters, float64 (d,): a pre-trained starting point."""
        parameters = [parameter.detach() for parameter in _trainable(self.module).values()]
        return flatten(parameters).to(torch.float64)

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Fresh parameters, whatever generator the module was built with.

        Matrices and kernels are uniform on ±1/√fan-in, biases beside them zero; all others, such
        as the scale of a normalisation, are the module's own.
        """
        drawn = {}
        for prefix, layer in self.module.named_modules():
            own = dict(layer.named_parameters(recurse=False))
            if any(parameter.ndim > 1 for parameter in own.values()):
                for name, parameter in own.items():
                    limit = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.0
                    values = torch.from_numpy(rng.uniform(-limit, limit, tuple(parameter.shape)))
                    drawn[f"{prefix}.{name}" if prefix else name] = values
        trainable = _trainable(self.module).items()
        return flatten([drawn.get(name, each.detach().double()) for name, each in trainable])

    def scores(self, theta: Tensor, features: Tensor) -> Tensor:
        """The module's output at ``theta``; not a number where it raises an error."""
        require_width(self, features)
        here = features.to(self.device)
        some = self._multiple * max(1, _MOST_NUMBERS // (self._multiple * self._working))

        def scored(rows: Tensor) -> Tensor:
            with self.differentiable() as forward:
                return vmap.one_by_one(forward, theta.to(here), rows)

        rows, shape = torch.split(self._filled(here), some), (self.classes,)
        scores = torch.cat([spared_rows(scored, part, shape=shape) for part in rows])
        scores = scores[: len(features)].to(features.device)
        return scores.squeeze(1) if self.classes == 1 else scores

    @contextmanager
    def differentiable(self) -> Iterator[Callable[[Tensor, Tensor], Tensor]]:
        """Parameters and features to scores (n, classes), for autograd, by a copy of the module."""
        with self._copies.one() as (module, _):
            yield partial(self._forward, module)

    def gradient_factors(self, theta: Tensor, batch: RecordBatch, loss: Loss) -> tuple[Factor, ...]:
        """Layer by layer where a run has verified that, else by vectorised autograd."""
        theta, count = theta.to(batch.features), len(batch)

        def errors_at(scores: Tensor) -> Tensor:
            return self._filled(filled_slopes(loss, scores[:count], batch.labels))

        with self._copies.one() as (module, plan):
            if plan is None:
                return vmap.vmap_factors(partial(self._forward, module), theta, batch, loss)
            features = self._filled(batch.features)
            factors = self._layer_factors(module, plan, theta, features, errors_at)
        return tuple(factor.first(count) for factor in factors)

    def working_size(self, *, materialised: bool) -> int:
        """Activations and their errors; patches, elsewhere than here; gradients written out."""
        written = self.dimension if materialised or self._plan is None else 0
        return self._working + 3 * written

    def _filled(self, rows: Tensor) -> Tensor:
        """The rows, padded with zeros to a multiple; at least one multiple."""
        missing = -len(rows) % self._multiple if len(rows) else self._multiple
        return pad(rows, (0, 0, 0, missing)) if missing else rows

    @property
    def _plan(self) -> LayerPlan | None:
        return self._copies.original[1]

    def _state(self, module: nn.Module, theta: Tensor) -> dict[str, Tensor]:
        """Everything a copy of the module computes with, θ in its place, where and as θ is.

        All of it is the computation's own: a module may write into its parameters.
        """
        state = {
            name: value.to(theta) if value.is_floating_point() else value.to(theta.device)
            for name, value in (*module.named_parameters(), *module.named_buffers())
            if not value.requires_grad
        }
        trainable = _trainable(module)
        pieces = unflatten(theta.clone(), [parameter.shape for parameter in trainable.values()])
        return {**state, **dict(zip(trainable, pieces, strict=True))}

    def _inputs(self, features: Tensor) -> Tensor:
        """A copy in the shape that the module takes: what it writes into must not be a record."""
        return features.clone().view(-1, *self.input_shape)

    def _forward(self, module: nn.Module, theta: Tensor, features: Tensor) -> Tensor:
        """Scores as (n, classes)."""
        inputs = self._inputs(features)
        scores: Tensor = functional_call(module, self._state(module, theta), (inputs,))
        if scores.numel() != len(features) * self.classes:
            raise ValueError(
                f"module must return {self.classes} scores per record, as classes says, "
                f"got shape {tuple(scores.shape[1:])}."
            )
        return scores.reshape(len(features), self.classes)

    def _layer_factors(
        self,
        module: nn.Module,
        plan: LayerPlan,
        theta: Tensor,
        features: Tensor,
        errors_at: Callable[[Tensor], Tensor],
    ) -> tuple[Factor, ...]:
        state = self._state(module, theta.detach())
        return layer_factors(module, plan, state, self._inputs(features), errors_at)

    def _verified_plan(self) -> LayerPlan | None:
        """The first plan with the scores and gradient of autograd; None for vectorised autograd.

        Raises:
            ValueError: vmap does not take the module; or records meet in the backward pass.
        """
        rng = np.random.default_rng(0)
        theta = torch.from_numpy(rng.normal(0.0, 0.3, self.dimension)).requires_grad_()
        features = torch.from_numpy(rng.normal(size=(_PROBES, self.features)))
        errors = torch.from_numpy(rng.normal(size=(_PROBES, self.classes)))
        scores = self._copied()(theta, features)
        (gradient,) = torch.autograd.grad(scores, theta, errors)
        expected = torch.cat([scores.detach().flatten(), gradient])
        reason = RECORDS_MEET
        for plan in (*layer_plans(self.module), None):
            rows = partial(self._rows, plan, theta.detach())
            try:
                alone = vmap.one_by_one(self._copied(), theta.detach(), features)
                found = torch.cat([alone.flatten(), rows(features, errors).sum(0)])
                if not torch.allclose(found, expected, rtol=1e-8, atol=1e-8):
                    continue
                require_own_gradients(rows, features=self.features, classes=self.classes)
            except RuntimeError as error:  # a layer used twice, or a view of another layout
                if plan is None:
                    reason = UNSEPARATED.format(str(error).partition("\n")[0].partition(". ")[0])
            except ValueError:
                continue
            else:
                return plan
        raise ValueError(reason)

    def _rows(
        self, plan: LayerPlan | None, theta: Tensor, features: Tensor, errors: Tensor
    ) -> Tensor:
        """The gradient of every record, as `gradient_factors` has it, by a fresh copy of all."""
        if plan is None:
            return vmap.vmap_rows(self._copied(), theta, features, errors, lambda _, error: error)
        module, layers = deepcopy((self.module, plan))
        factors = self._layer_factors(module, layers, theta, features, lambda _: errors)
        return torch.cat([factor.rows() for factor in factors], dim=1)

    def _copied(self) -> Callable[[Tensor, Tensor], Tensor]:
        return partial(self._forward, deepcopy(self.module))

    def _measured_size(self) -> int:
        """Working memory for one record, from the sizes seen in a run."""
        size = 16

        def add(layer: nn.Module, _: object, output: object) -> None:
            nonlocal size
            if isinstance(output, Tensor):
                size += 4 * output.numel()
                size += 2 * patches_size(layer, output) if self.device != "cpu" else 0
                size += sum(parameter.numel() for parameter in layer.parameters())

        module = deepcopy(self.module)  # thrown away, with its hooks
        for layer in module.modules():
            if not list(layer.children()):
                layer.register_forward_hook(add)
        with torch.no_grad():
            self._forward(module, self.weights, self.weights.new_zeros((1, self.features)))
        return size


def _trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def seeded_module(make: Callable[[], nn.Module], *, seed: int) -> nn.Module:
    """What ``make`` returns, the same in every process: layers draw from a generator of their own.

    PyTorch's global generator is restored. `NetworkModel.initial` redraws the trainable weights
    anyway; frozen weights must be equal at every party.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def small_cnn(*, shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10) -> NetworkModel:
    """Two convolutions and two dense layers: 26,010 parameters for 28 × 28 images of 10 classes.

    From 24 pixels on, it is the network of the DP-SGD tutorials. Smaller images, which its kernels
    and strides would reduce to nothing, get kernels of 3 × 3.

    Args:
        shape: Channels, height and width of an image; at least 4 × 4 pixels.
        classes: Scores per image.
    """
    channels, *sides = shape
    if min(sides) < _LEAST_SIDE:
        raise ValueError(f"shape must be at least {_LEAST_SIDE} pixels a side, got {shape}.")
    large = min(sides) >= _LARGE_SIDE
    first, second = ((8, 2, 3), (4, 2, 0)) if large else ((3, 1, 1), (3, 1, 1))
    pool = partial(nn.MaxPool2d, 2, 1 if large else 2)

    def make() -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(channels, 16, first[0], stride=first[1], padding=first[2]),
            relu1=nn.ReLU(),
            pool1=pool(),
            conv2=nn.Conv2d(16, 32, second[0], stride=second[1], padding=second[2]),
            relu2=nn.ReLU(),
            pool2=pool(),
            flatten=nn.Flatten(),
        )
        width = nn.Sequential(layers)(torch.zeros(1, *shape)).shape[1]
        layers |= {"dense1": nn.Linear(width, 32), "relu3": nn.ReLU()}
        layers["dense2"] = nn.Linear(32, classes)
        return nn.Sequential(layers)

    module = seeded_module(make, seed=0)
    return NetworkModel(module=module, input_shape=shape, classes=classes)
