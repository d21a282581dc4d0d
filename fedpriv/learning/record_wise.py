"""Does a module score every record on its own? If not, clipping per record bounds nothing.

A layer that lets records meet (batch normalisation is the usual one) makes the gradient of one
record depend on the others. Removing a record then changes the contributions of all of them, and a
sum of clipped gradients no longer has sensitivity C.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RECORDS_MEET = (
    "module must treat every record on its own; one record of a batch changes the gradients of "
    "others, though not their scores, so clipping could not bound what one record contributes. Let "
    "no hook, and no backward pass of your own, compute anything over a batch."
)

UNSEPARATED = (
    "module must be computable one record at a time, by torch.func.vmap, which finds: {}. Let no "
    "`if`, loop, index or .item() depend on the values of a record: use torch.where. Give an "
    "autograd.Function setup_context and generate_vmap_rule = True, and put no hook on gradients."
)

_PROBES = 5
_TOLERANCE = 1e-9  # float64 products of different batch sizes may differ in their last bits


def require_record_wise(module: nn.Module, input_shape: Sequence[int]) -> None:
    """Refuse a module that mixes records, remembers them, or draws random numbers.

    Two checks. Layers known to do so are refused by name, with what to use instead. Then the module
    is run in training mode, in float64, on random records and random parameters: replacing a record
    (by another, by NaN, by a much larger one) or taking it out of the batch must leave the
    scores of the others as they were; two runs must agree; no buffer may change. All but the last
    is tried twice: with a fresh copy of the module for every batch, which reveals a module that
    takes its scale from the first records it sees, and with one copy that has seen other records.
    The second check is a test, not a proof: a module can be written to deceive it.

    Randomness within a record, such as dropout, does not break privacy, since the gradient is
    clipped after it. It is refused because layers draw from PyTorch's global generator, so that a
    run could not be repeated, nor a query be answered alike by every engine.
    """
    for name, layer in module.named_modules():
        reason = _refusal(layer)
        if reason:
            raise ValueError(
                f"module must treat every record on its own; layer {name or 'itself'!r} "
                f"({type(layer).__name__}) {reason}"
            )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _probe(module, tuple(input_shape))
        _probe(module, tuple(input_shape), used=deepcopy(module))


def require_own_gradients(
    gradients: Callable[[Tensor, Tensor], Tensor], *, features: int, classes: int
) -> None:
    """Refuse a module in whose backward pass records meet, though in its scores they do not.

    An `autograd.Function` with a rule of its own for vmap may do to gradients what it likes: divide
    them by their norm over the batch, or take off their mean. A record then moves the gradients of
    all others, and a sum of clipped ones by as much as they are long together. So gradients are
    held against those that records have with another one before or behind them, and without.

    Args:
        gradients: From features (n, p) and derivatives by the scores (n, k) to gradients (n, d), in
            float64.
        features: p.
        classes: k.
    """
    rng = np.random.default_rng(0)
    records = torch.from_numpy(rng.normal(size=(_PROBES, features)))
    errors = torch.from_numpy(rng.normal(size=(_PROBES, classes)))
    expected = gradients(records, errors)
    for altered, others in ((0, slice(1, None)), (-1, slice(-1))):
        for longer, steeper in ((1.0, 1e3), (1e3, 1.0), (1.0, 0.0)):
            longer_records, steeper_errors = records.clone(), errors.clone()
            longer_records[altered] *= longer
            steeper_errors[altered] *= steeper
            _require_apart(gradients(longer_records, steeper_errors)[others], expected[others])
        _require_apart(gradients(records[others], errors[others]), expected[others])


def _require_apart(found: Tensor, expected: Tensor) -> None:
    if not _same(found, expected):
        raise ValueError(RECORDS_MEET)


def _refusal(layer: nn.Module) -> str | None:
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "has no parameters yet. Run it once, or state its sizes."
    if isinstance(layer, _BatchNorm):
        return (
            "normalises with statistics of the batch, so one record changes the gradients of all. "
            "Use torch.nn.GroupNorm."
        )
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        return (
            "keeps running statistics of all records outside of any privacy accounting. "
            "Set track_running_stats=False, or use torch.nn.GroupNorm."
        )
    if isinstance(layer, _DropoutNd) and layer.p > 0:
        return (
            "draws from PyTorch's global generator, so that a run cannot be repeated. "
            "Leave it out, or set p=0: the noise regularises already."
        )
    return None


def _probe(
    module: nn.Module, input_shape: tuple[int, ...], *, used: nn.Module | None = None
) -> None:
    """Try fresh copies of a module; or, if given, one copy, after records that are not tried."""
    rng = np.random.default_rng(0)
    state = {
        name: value.detach().clone().to(torch.float64 if value.is_floating_point() else value.dtype)
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }
    for name, value in module.named_parameters():  # zero weights would hide what they multiply
        state[name] += torch.from_numpy(rng.normal(0.0, 0.3, tuple(value.shape)))
    buffers = {name: state[name].clone() for name, _ in module.named_buffers()}

    def scores(records: Tensor) -> Tensor:
        one = deepcopy(module) if used is None else used  # a module may have a length, and be false
        result: Tensor = functional_call(one, state, (records,))
        return result

    records = torch.from_numpy(rng.normal(size=(_PROBES, *input_shape)))
    fresh: Tensor = functional_call(deepcopy(module), state, (records,))
    if not isinstance(fresh, Tensor):
        raise ValueError(
            "module must return a tensor, one row of scores per record, got "
            f"{type(fresh).__name__}: does its forward end with the return of one?"
        )
    scores(torch.from_numpy(rng.normal(size=(_PROBES, *input_shape))))
    expected = scores(records)
    if len(expected) != _PROBES:
        raise ValueError(
            "module must return one row of scores per record, "
            f"got shape {tuple(expected.shape)} for {_PROBES} records."
        )
    if not _same(scores(records), expected):
        raise ValueError(
            "module must be deterministic: two runs on the same records disagree. "
            "Remove the layers that draw random numbers, or keep state."
        )
    if not _same(expected, fresh):
        raise ValueError(
            "module must not remember records: its scores depend on those that it has seen before. "
            "Let it keep nothing between two calls."
        )
    changed = [name for name, value in buffers.items() if not torch.equal(state[name], value)]
    if changed:
        raise ValueError(
            f"module must not remember records: running it changed its buffer {changed[0]!r}. "
            "Use layers without running statistics, such as torch.nn.GroupNorm."
        )
    for one in range(_PROBES):
        others = torch.arange(_PROBES) != one
        for substitute in (
            torch.full_like(records[one], torch.nan),
            1e3 * records[one],
            -records[one],
        ):
            altered = records.clone()
            altered[one] = substitute
            _require_same(scores(altered)[others], expected[others])
        _require_same(scores(records[others]), expected[others])
        _require_same(scores(records[one : one + 1]), expected[one : one + 1])


def _require_same(found: Tensor, expected: Tensor) -> None:
    if not _same(found, expected):
        raise ValueError(
            "module must treat every record on its own; changing one record of a batch changed the "
            "scores of others, so clipping could not bound what one record contributes. Normalise "
            "within a record, for example with torch.nn.GroupNorm, and keep records on dimension 0."
        )


def _same(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(
        found, expected, rtol=_TOLERANCE, atol=_TOLERANCE
    )
