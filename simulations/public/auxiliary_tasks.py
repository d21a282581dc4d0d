"""Auxiliary tasks from public data sets: what a protector is trained on, and judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv.data import Bounds, bound, load
from fedpriv.learning.losses import HuberHinge, Logistic, Squared
from fedpriv.learning.models import MlpModel
from fedpriv.learning.protector import AuxiliaryTask, NetworkTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.data import Records
    from fedpriv.learning.losses import Loss

MODELS = ("logistic", "huber-svm", "squared", "mlp")
"""Models of auxiliary tasks: linear with three losses, and a perceptron."""

_SMOOTHING = 0.5  # as in experiments
_RADIUS = 1000.0  # of no consequence: gradients are clipped, and no bound is derived from it


def auxiliary_tasks(
    names: Sequence[str], models: Sequence[str], *, hidden: int, clip: float, root: str | None
) -> list[tuple[AuxiliaryTask, AuxiliaryTask]]:
    """Of every data set and model, the records to train on and those to judge by.

    Norms are at most 1, with intercept. A clip norm means the same for linear models; a perceptron
    has longer gradients, and what is clipped of them is their length, not their direction.
    """
    pairs = []
    for name in names:
        dataset = bound(load(name, root=root), Bounds())
        if dataset.task != "binary":
            raise ValueError(
                f"--on must name a data set of two classes, {name!r} is {dataset.task}."
            )
        for model in models:
            train, test = (
                _task(records, model, hidden=hidden, clip=clip)
                for records in (dataset.train, dataset.test)
            )
            pairs.append((train, test))
    return pairs


def _task(records: Records, model: str, *, hidden: int, clip: float) -> AuxiliaryTask:
    features, labels = torch.tensor(records.X), torch.tensor(records.y)
    if model == "mlp":
        return NetworkTask(
            features=features,
            labels=labels,
            loss=Logistic(),
            clip_norm=clip,
            model=MlpModel(widths=(features.shape[1], hidden, 1)),
        )
    return AuxiliaryTask(features=features, labels=labels, loss=_loss(model), clip_norm=clip)


def _loss(model: str) -> Loss:
    losses: dict[str, Loss] = {
        "logistic": Logistic(),
        "huber-svm": HuberHinge(smoothing=_SMOOTHING),
        "squared": Squared(radius=_RADIUS, label_bound=1.0),
    }
    return losses[model]
