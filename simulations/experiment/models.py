"""From the model section of an experiment to a model and a loss that fit the data."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from inspect import signature
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fedpriv.learning.device import resolve_device
from fedpriv.learning.loss_checks import require_not_refuted
from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import NetworkModel, seeded_module, small_cnn
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.experiment.named_files.guest_code import require_complete

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.data import Dataset, Task
    from fedpriv.simulations.experiment.model_section import ModelSection

_ANY = ("binary", "multiclass", "regression")
_TASKS = {
    "logistic": ("binary",),
    "huber-svm": ("binary",),
    "softmax": ("multiclass",),
    "huber-regression": ("regression",),
    "squared": ("regression",),
    "mlp": ("binary", "multiclass"),
    "cnn": ("binary", "multiclass"),
}
_KEPT = 16
_LOSS_OF = {"binary": "logistic", "multiclass": "softmax", "regression": "huber-regression"}


def learner(
    section: ModelSection,
    dataset: Dataset,
    *,
    headroom: float = 1.0,
    minimises: bool = False,
    seed: int = 0,
    pins: Mapping[str, str] | None = None,
) -> tuple[Model, Loss]:
    """The model and loss that ``section`` names, in the dimensions of ``dataset``.

    Args:
        section: Of the experiment.
        dataset: Whose public facts decide the dimensions.
        headroom: How many times its size a party's records may be, where a minimiser is of them.
        minimises: Whether it is for minimisers, which are looked for everywhere: ``model.radius``
            then bounds what is released, and no gradient.
        seed: Of the weights of a module of the user's own that are not trained.
        pins: The hashes that the experiment states for code of the user's own.
    """
    _require_fit("name", section.name, dataset)
    bounded = section.model_copy(update={"radius": None}) if minimises else section
    loss = _loss(bounded, dataset, headroom, pins or {})
    return _model(section, dataset, loss.outputs, seed, pins or {}), loss


def _model(
    section: ModelSection, dataset: Dataset, outputs: int, seed: int, pins: Mapping[str, str]
) -> Model:
    width = len(dataset.feature_names)
    if section.convex:
        return LinearModel(width=width, classes=outputs)
    if section.name == "mlp":
        return MlpModel(widths=(width, *section.hidden, outputs), activation=section.activation)
    if section.name == "cnn":
        shape = section.shape or dataset.image_shape or ()
        if len(shape) != 3:
            raise ValueError(
                f"model.shape must be given for 'cnn', as in [1, 8, 8]: {dataset.name} does not "
                "say what channels, height and width its images have."
            )
        _require_width(shape, dataset)
        return small_cnn(shape=shape, classes=outputs)
    return _own_model(section, dataset, outputs, seed, pins)


def placed(model: Model, device: str, *, trains: bool) -> Model:
    """The model, whose clipped gradients are computed on ``device`` if it is a module.

    Args:
        model: Of the experiment.
        device: A name of PyTorch's, or "auto": a GPU if there is one and it is of use.
        trains: Whether parties train it, step by step, and send no gradients.

    Raises:
        ValueError: The device is not there, or of no use here.
    """
    of_use = isinstance(model, NetworkModel) and not trains
    if device == "cpu" or (device == "auto" and not of_use):
        return model
    if trains:
        raise ValueError(
            f"run.device must be 'cpu' or 'auto' where parties train the model, got {device!r}: "
            "local training is computed by the processor. A device is for clipped gradients."
        )
    if not isinstance(model, NetworkModel):
        raise ValueError(
            f"run.device must be 'cpu' or 'auto' for a {type(model).__name__}, got {device!r}: its "
            "kernels are compiled for the processor. A device is for networks that are modules: "
            "'cnn', and your own."
        )
    chosen = resolve_device(device)
    return model if chosen == "cpu" else replace(model, device=chosen)


def _own_model(
    section: ModelSection, dataset: Dataset, outputs: int, seed: int, pins: Mapping[str, str]
) -> NetworkModel:
    """A module of the user's own, made twice to check that every party gets the same one."""
    guest, width = guests.load("model", section.name, pins), len(dataset.feature_names)
    if not callable(guest.value):
        raise ValueError(f"{guest.title!r} must be a class or function, got {guest.value!r}.")

    _require_constructor(guest, section.options)

    def make() -> nn.Module:
        made: Any = guest.value(features=width, classes=outputs, **section.options)
        if not isinstance(made, nn.Module):
            raise ValueError(f"{guest.title!r} must make a torch.nn.Module, got {made!r}.")
        return made

    with guest.blamed():
        module, again = (seeded_module(make, seed=seed) for _ in range(2))
        _require_same(module, again, guest.title)
        stated = getattr(module, "input_shape", None)
        shape = section.shape or (tuple(map(int, stated)) if stated else (width,))
        _require_width(shape, dataset)
        return NetworkModel(module=module, input_shape=shape, classes=outputs)


def _require_constructor(guest: guests.Guest, options: Mapping[str, Any]) -> None:
    """Refuse a class or function that cannot be called with features, classes and options."""
    try:
        takes = signature(guest.value)
        takes.bind(features=1, classes=1, **options)
    except TypeError as error:
        own = [name for name in takes.parameters if name not in ("features", "classes")]
        near = {
            key: found[0]
            for key in options
            if key not in own and (found := get_close_matches(key, own, n=1))
        }
        hint = "".join(f" Did you mean {name!r} by {key!r}?" for key, name in near.items())
        raise ValueError(
            f"{guest.title!r} must take features, classes and what model.options has, by name, and "
            f"takes {takes} ({error}). model.options has: {', '.join(options) or 'nothing'}.{hint}"
        ) from None
    except ValueError:  # it has no signature: the call itself will tell
        return


def _require_same(module: nn.Module, again: nn.Module, title: str) -> None:
    one, other = module.state_dict(), again.state_dict()
    differing = [key for key in one if key not in other or not torch.equal(one[key], other[key])]
    if differing or len(one) != len(other):
        raise ValueError(
            f"{title!r} must make the same module whenever it is called, and {differing[:1]} "
            "differs: parties would compute with different weights. Draw random numbers from "
            "torch's own generator, which fedpriv seeds, and read no clock."
        )


def _require_width(shape: tuple[int, ...], dataset: Dataset) -> None:
    width = len(dataset.feature_names)
    if prod(shape) == width:
        return
    extra = dataset.feature_names[-1] == "intercept" and prod(shape) == width - 1
    remedy = " The last one is the constant feature: set data.intercept = 0." if extra else ""
    raise ValueError(
        f"the shape of a record, {shape}, must have as many numbers as {dataset.name} has features,"
        f" {width}; got {prod(shape)}.{remedy}"
    )


def _require_fit(key: str, name: str | None, dataset: Dataset) -> None:
    """Refuse a built-in model or loss for another kind of task."""
    if dataset.task not in _TASKS.get(name or "", _ANY):
        fitting = ", ".join(known for known, tasks in _TASKS.items() if dataset.task in tasks)
        two = dataset.task == "multiclass" and len(dataset.classes) == 2
        one = " Or say in the schema which of the two labels is the positive one, as in positive ="
        hint = f"{one} {dataset.classes[1]!r}." if two and dataset.schema is not None else ""
        raise ValueError(
            f"model.{key} = {name!r} does not fit {dataset.name}, a {dataset.task} task. "
            f"Models for it: {fitting}.{hint}"
        )


def _loss(
    section: ModelSection, dataset: Dataset, headroom: float, pins: Mapping[str, str]
) -> Loss:
    """The loss that the section names; of a network, if it names none, that of the task."""
    name = section.loss or (section.name if section.convex else _LOSS_OF[dataset.task])
    _require_fit("loss", name, dataset)
    if name not in _TASKS:
        outputs = len(dataset.classes) if dataset.task == "multiclass" else 1
        return _own_loss(name, guests.pin_of("loss", name, pins), dataset.task, outputs)
    return _built_in_loss(name, section, len(dataset.classes), headroom)


@lru_cache(maxsize=_KEPT)
def _own_loss(name: str, pin: str | None, task: Task, outputs: int) -> Loss:
    """A loss of the user's own, whose declared constants a search did not refute.

    Kept: a comparison has many runs with one loss, and the search takes a second.
    """
    guest = guests.load("loss", name, {} if pin is None else guests.as_pins("loss", name, pin))
    require_complete(guest.value, guest.title)
    with guest.blamed():
        loss: Any = guest.value() if callable(guest.value) else guest.value
    if not isinstance(loss, Loss):
        raise ValueError(
            f"{guest.title!r} must be a loss, got {type(loss).__name__}: derive the class from "
            "MarginLoss, or Loss, of fedpriv.learning.losses."
        )
    if loss.outputs != outputs:
        raise ValueError(
            f"{guest.title!r} must have outputs = {outputs} for a {task} task with so many scores, "
            f"got {loss.outputs}."
        )
    with guest.blamed():
        require_not_refuted(loss, task=task, name=guest.title)
    return loss


def _built_in_loss(name: str, section: ModelSection, classes: int, headroom: float) -> Loss:
    match name:
        case "huber-svm":
            return HuberHinge(smoothing=section.smoothing)
        case "huber-regression":
            return HuberRegression(threshold=section.threshold)
        case "softmax":
            return Softmax(classes=classes)
        case "squared":
            if section.radius is not None:  # every model that a gradient is taken at lies in it
                return Squared(radius=section.radius, label_bound=section.label_bound)
            if section.regulariser == 0:
                raise ValueError(
                    "model.l2 must be positive for the squared loss, or model.radius given: one of "
                    "them bounds θ."
                )
            # ‖θ*‖ ≤ √headroom·label_bound/√λ: the smallest domain that holds every minimiser.
            radius = section.label_bound * (headroom / section.regulariser) ** 0.5
            return Squared(radius=radius, label_bound=section.label_bound)
        case _:
            return Logistic()
