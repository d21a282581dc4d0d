"""From the model section of an experiment to a model and a loss that fit the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)
from fedpriv.learning.models import LinearModel, MlpModel, Model

if TYPE_CHECKING:
    from fedpriv.data import Dataset
    from fedpriv.simulations.experiment.sections import ModelSection

_TASKS = {
    "logistic": ("binary",),
    "huber-svm": ("binary",),
    "softmax": ("multiclass",),
    "huber-regression": ("regression",),
    "squared": ("regression",),
    "mlp": ("binary", "multiclass"),
}


def learner(
    section: ModelSection, dataset: Dataset, *, headroom: float = 1.0
) -> tuple[Model, Loss]:
    """The model and loss that ``section`` names, in the dimensions of ``dataset``.

    ``headroom`` is that of the task: how many times its size a party's records may be.
    """
    if dataset.task not in _TASKS[section.name]:
        fitting = ", ".join(name for name, tasks in _TASKS.items() if dataset.task in tasks)
        raise ValueError(
            f"model.name = {section.name!r} does not fit {dataset.name}, a {dataset.task} task. "
            f"Models for it: {fitting}."
        )
    width, classes = len(dataset.feature_names), len(dataset.classes)
    if section.name == "mlp":
        outputs = classes if dataset.task == "multiclass" else 1
        widths = (width, *section.hidden, outputs)
        network = MlpModel(widths=widths, activation=section.activation)
        return network, Softmax(classes=classes) if outputs > 1 else Logistic()
    loss = _convex_loss(section, classes, headroom)
    return LinearModel(width=width, classes=loss.outputs), loss


def _convex_loss(section: ModelSection, classes: int, headroom: float) -> Loss:
    match section.name:
        case "huber-svm":
            return HuberHinge(smoothing=section.smoothing)
        case "huber-regression":
            return HuberRegression(threshold=section.threshold)
        case "softmax":
            return Softmax(classes=classes)
        case "squared":
            if section.l2 == 0:
                raise ValueError("model.l2 must be positive for the squared loss: it bounds θ.")
            # ‖θ*‖ ≤ √headroom·label_bound/√λ: the smallest domain that holds every minimiser.
            radius = section.label_bound * (headroom / section.l2) ** 0.5
            return Squared(radius=radius, label_bound=section.label_bound)
        case _:
            return Logistic()
