"""Per-record gradients of a module, layer by layer, from one vectorised forward and backward pass.

Forward hooks keep the input of every layer that has parameters, and add an offset of zero to its
output; the derivative by the offset is the error at the output. The input and the error of a record
determine its gradient, by one rule per kind of layer. Unlike autograd by the parameters, this runs
PyTorch's batched kernels, and dense layers never write their gradients out.

**Records do not meet.** The module is run by `torch.func.vmap`: its code sees a batch of one
record, and cannot tell how many there are, sort them, or branch on their values. So inputs and
errors are those of the record alone, and not only on records that were tried. What vmap does not
hold apart by itself is in `fedpriv.learning.clipping.isolation`, with what stays open.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import group_norm, pad, unfold

from fedpriv.learning.clipping.factors import Dense, Factor, Rows
from fedpriv.learning.clipping.isolation import record_by_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class LayerUseError(RuntimeError):
    """A layer was not used once, on one tensor with a row a record: its rule does not hold."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerPlan:
    """How to differentiate a module layer by layer.

    Attributes:
        layers: Those that own the trainable parameters, in order; each has a rule.
        pools: Max-pooling layers to be fed with channels last: PyTorch's kernel for that layout
            is eight times faster. A module that reshapes by ``view`` may fail with it.
    """

    layers: tuple[nn.Module, ...]
    pools: tuple[nn.Module, ...]


def layer_plans(module: nn.Module) -> list[LayerPlan]:
    """Plans to try, fastest first; none if a layer with trainable parameters has no rule.

    Only a run can show that each layer is used once and that nothing else uses its parameters.
    """
    layers = [layer for layer in module.modules() if _trains(layer)]  # frozen ones need no rule
    owned = [id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)]
    trainable = [id(parameter) for parameter in module.parameters() if parameter.requires_grad]
    if owned != trainable or not all(_has_rule(layer) for layer in layers):
        return []
    pools = tuple(layer for layer in module.modules() if isinstance(layer, nn.MaxPool2d))
    return [LayerPlan(tuple(layers), choice) for choice in ((pools, ()) if pools else ((),))]


def layer_factors(
    module: nn.Module,
    plan: LayerPlan,
    state: dict[str, Tensor],
    inputs: Tensor,
    errors_at: Callable[[Tensor], Tensor],
) -> tuple[Factor, ...]:
    """The gradient of every record, in the order of the parameters of the plan's layers.

    Args:
        module: The network. During the call it carries the call's hooks and parameters, so nothing
            else may use it.
        plan: One of `layer_plans`.
        state: All parameters and buffers.
        inputs: The records, in the shape that the module takes.
        errors_at: From scores (n, k) to the derivatives of the loss, of the same shape.
    """
    offsets = [
        inputs.new_zeros((len(inputs), *shape)).requires_grad_()
        for shape in _output_shapes(module, plan, state, inputs)
    ]

    def scores_of(record: Tensor, *added: Tensor) -> tuple[Tensor, ...]:
        kept: dict[nn.Module, Tensor] = {}

        def keep(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            offset = added[plan.layers.index(layer)].unsqueeze(0)
            _require_one_row(layer, arguments, output, again=layer in kept)
            if output.shape != offset.shape:
                raise LayerUseError(f"{type(layer).__name__} has outputs of several shapes.")
            kept[layer] = arguments[0][0]
            return output + offset

        with _hooked(plan, keep):
            scores: Tensor = functional_call(module, state, (record.unsqueeze(0),))
        return scores.reshape(-1), *(kept[layer] for layer in plan.layers)

    with torch.enable_grad(), record_by_record():
        scores, *kept = vmap(scores_of)(inputs, *offsets)
    slopes = errors_at(scores.detach())  # it spares records itself
    with record_by_record():
        errors = torch.autograd.grad(scores, offsets, slopes, materialize_grads=True)
    # A norm is that of the numbers that are added up only in the precision of the records.
    return tuple(
        factor
        for layer, own, error in zip(plan.layers, kept, errors, strict=True)
        for factor in _factors(layer, own.detach().to(inputs.dtype), error)
    )


def _output_shapes(
    module: nn.Module, plan: LayerPlan, state: dict[str, Tensor], inputs: Tensor
) -> list[torch.Size]:
    """Of the layers, for one record: from a run on zeros."""
    shapes: dict[nn.Module, torch.Size] = {}

    def see(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        _require_one_row(layer, arguments, output, again=layer in shapes)
        shapes[layer] = output.shape[1:]

    with _hooked(plan, see), torch.no_grad():
        functional_call(module, state, (torch.zeros_like(inputs[:1]),))
    if len(shapes) != len(plan.layers):
        raise LayerUseError("a layer with parameters was not called.")
    return [shapes[layer] for layer in plan.layers]


def _require_one_row(
    layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor, *, again: bool
) -> None:
    if again or len(arguments) != 1:
        raise LayerUseError(f"{type(layer).__name__} must be called once, with one tensor.")
    if any(rows.ndim < 2 or len(rows) != 1 for rows in (arguments[0], output)):
        raise LayerUseError("a layer with parameters must see every record as one row.")


@contextmanager
def _hooked(plan: LayerPlan, hook: Callable[..., Tensor | None]) -> Iterator[None]:
    """With a hook on every layer of the plan."""
    hooks = [layer.register_forward_hook(hook) for layer in plan.layers]
    hooks += [pool.register_forward_pre_hook(_channels_last) for pool in plan.pools]
    try:
        yield
    finally:
        for hook_ in hooks:
            hook_.remove()


def patches_size(layer: nn.Module, output: Tensor) -> int:
    """How many numbers per record the rule of a convolution writes out, on an accelerator."""
    if not isinstance(layer, nn.Conv2d):
        return 0
    return layer.weight[0].numel() * output[0, 0].numel()


def _trains(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in layer.parameters(recurse=False))


def _has_rule(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return plain and not isinstance(layer.padding, str)
    return type(layer) in (nn.Linear, nn.GroupNorm)


def _factors(layer: nn.Module, inputs: Tensor, errors: Tensor) -> tuple[Factor, ...]:
    """The gradient with respect to the weight and, if there is one, the bias of a layer."""
    has_bias = getattr(layer, "bias", None) is not None
    if isinstance(layer, nn.Linear) and inputs.ndim == 2:
        return (Dense(inputs, errors, bias=has_bias),)
    if isinstance(layer, nn.Linear):  # applied at every position of a record
        inputs, errors = inputs.flatten(1, -2), errors.flatten(1, -2)
        weight, bias = torch.bmm(errors.transpose(1, 2), inputs), errors.sum(1)
    elif isinstance(layer, nn.Conv2d):  # a dense layer on the patches at every position
        errors = errors.flatten(2)
        weight, bias = _patch_products(layer, inputs, errors), errors.sum(2)
    else:
        norm = cast("nn.GroupNorm", layer)
        normalised = group_norm(inputs, norm.num_groups, eps=norm.eps)
        positions = (*inputs.shape[:2], -1)
        weight = (errors * normalised).reshape(positions).sum(2)
        bias = errors.reshape(positions).sum(2)
    return (Rows(weight.flatten(1)), Rows(bias)) if has_bias else (Rows(weight.flatten(1)),)


def _patch_products(layer: nn.Conv2d, inputs: Tensor, errors: Tensor) -> Tensor:
    """Of every record, errors (filters, positions) by what the kernel sees at every position.

    Patches are gathered by indices that a single image of indices yields: much faster than
    unfolding all images.
    """
    vertical, horizontal = cast("tuple[int, int]", layer.padding)
    if vertical or horizontal:
        inputs = pad(inputs, (horizontal, horizontal, vertical, vertical))
    numbers = torch.arange(inputs[0].numel(), dtype=torch.float64, device=inputs.device)
    image = numbers.view(1, *inputs.shape[1:])
    indices = unfold(image, layer.kernel_size, layer.dilation, 0, layer.stride)[0].T.long()
    if inputs.is_cpu:
        from fedpriv.learning.row_products import patch_products  # it loads a compiler

        return patch_products(errors, inputs.flatten(1), indices)
    patches = inputs.flatten(1).index_select(1, indices.flatten()).view(-1, *indices.shape)
    return torch.bmm(errors, patches)


def _channels_last(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    first, *others = arguments
    return first.movedim(1, -1).contiguous().movedim(-1, 1), *others
