"""Plain local training in Python loops, by autograd, in float64; it shares no kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, huber_loss, softplus

from fedpriv.learning import (
    HuberHinge,
    HuberRegression,
    LinearModel,
    Logistic,
    MlpModel,
    NetworkModel,
    Softmax,
    Squared,
)
from fedpriv.learning.training.kernels.orders import shuffle

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.learning import Loss, Model, RecordBatch
    from fedpriv.learning.training.settings import LocalSgd

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "identity": lambda a: a,
}


def scores(model: Model, theta: Tensor, features: Tensor) -> Tensor:
    """(n, k)."""
    if isinstance(model, LinearModel):
        return features @ theta.view(model.classes, model.width).T
    if isinstance(model, MlpModel):
        place, rows = 0, features
        for depth, (p, k) in enumerate(pairwise(model.widths)):
            rows = ACTIVATIONS[model.activation](rows) if depth else rows
            weights = theta[place : place + p * k].view(k, p)
            rows = rows @ weights.T + theta[place + p * k : place + p * k + k]
            place += p * k + k
        return rows
    assert isinstance(model, NetworkModel)
    module: nn.Module = model.module
    pieces, place = {}, 0
    for name, parameter in module.named_parameters():
        pieces[name] = theta[place : place + parameter.numel()].view(parameter.shape)
        place += parameter.numel()
    inputs = features.view(-1, *model.input_shape)
    found: Tensor = torch.func.functional_call(module, pieces, (inputs,))
    return found.view(len(features), -1)


def value(loss: Loss, found: Tensor, labels: Tensor) -> Tensor:
    """The mean loss."""
    if isinstance(loss, Softmax):
        return cross_entropy(found, labels.long())
    score, y = found.squeeze(1), labels.double()
    if isinstance(loss, Logistic):
        return softplus(-y * score).mean()
    if isinstance(loss, Squared):
        return (score - y).square().mean() / 2
    if isinstance(loss, HuberRegression):
        return huber_loss(score, y, delta=loss.threshold)
    assert isinstance(loss, HuberHinge)
    margin, h = y * score, loss.smoothing
    bent = (1 + h - margin).square() / (4 * h)
    inside = torch.where((1 - margin).abs() <= h, bent, 1 - margin)
    return torch.where(margin > 1 + h, torch.zeros_like(margin), inside).mean()


def order_of(key: int, party: int, epoch: int, records: int) -> NDArray[np.int64]:
    order = np.empty(records, np.int64)
    shuffle(np.uint64(key), party, epoch, order)
    return order


def update(
    model: Model,
    loss: Loss,
    features: Tensor,
    labels: Tensor,
    theta: Tensor,
    settings: LocalSgd,
    *,
    key: int,
    party: int,
    shift: Tensor | None = None,
) -> Tensor:
    """w - θ of one party."""
    theta, features, count = theta.double(), features.double(), len(features)
    w, v = theta.clone(), torch.zeros_like(theta)
    step = epoch = 0
    while count:
        if settings.epochs is not None and epoch == settings.epochs:
            break
        order, size = order_of(key, party, epoch, count), settings.batch_size or count
        for left in range(0, count, size):
            if settings.steps is not None and step == settings.steps:
                return w - theta
            rows = torch.from_numpy(order[left : left + size])
            point = w.clone().requires_grad_()
            objective = value(loss, scores(model, point, features[rows]), labels[rows])
            (gradient,) = torch.autograd.grad(objective, point)
            v = settings.momentum * v + gradient
            v = v + settings.regulariser * w + settings.proximal * (w - theta)
            v = v if shift is None else v + shift.double()
            w = w - settings.learning_rate * v
            step += 1
        epoch += 1
    return w - theta


def updates(
    model: Model,
    loss: Loss,
    batch: RecordBatch,
    theta: Tensor,
    settings: LocalSgd,
    *,
    key: int,
    first_party: int = 0,
    shift: Tensor | None = None,
) -> NDArray[np.float64]:
    """(m, d), party by party."""
    offsets = batch.segments.offsets.tolist()
    rows = []
    for j, (start, stop) in enumerate(pairwise(offsets)):
        own = None if shift is None else shift[j]
        rows.append(
            update(
                model,
                loss,
                batch.features[start:stop],
                batch.labels[start:stop],
                theta,
                settings,
                key=key,
                party=first_party + j,
                shift=own,
            )
        )
    found: NDArray[np.float64] = torch.stack(rows).numpy()
    return found
