"""Many private descents on the same records at once: one matrix product for all of their settings.

For studies of settings alone. Noise is Gaussian in floating point, the same draw for all settings,
which makes differences between them more precise than each is; the engines draw from the discrete
law of the plan, and `tests/benchmarks` holds this against them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.data import Dataset
    from fedpriv.learning.losses import Loss

_AT_ONCE = 64  # settings in one product: what stays in a cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """The settings of one descent: T rounds of heavy ball along noisy means of clipped gradients.

    Attributes:
        clip: C.
        noise: The standard deviation on a coordinate of the sum.
        rate: η.
        momentum: β; 0 for plain steps.
        l2: λ.
        tail: Whether the mean of the last half of the models is published, and not the last.
        shrink: What the published model is multiplied by.
    """

    clip: float
    noise: float
    rate: float
    momentum: float
    l2: float
    tail: bool
    shrink: float = 1.0


def descend(
    data: Dataset,
    loss: Loss,
    settings: Sequence[Descent],
    *,
    rounds: int,
    seed: int,
    sampling_rate: float = 1.0,
) -> Tensor:
    """The models of all settings, (settings, classes, features), in float32.

    With a ``sampling_rate`` below 1 every round has a Poisson sample of its own, the same for all
    settings.
    """
    records, labels = _tensor(data.train.X), _tensor(data.train.y)
    shape = (loss.outputs, records.shape[1])
    draws = np.random.default_rng(seed).standard_normal((rounds, *shape))
    noise = torch.from_numpy(draws.astype(np.float32))
    lengths = torch.linalg.vector_norm(records, dim=1).unsqueeze(1)
    paths = list(dict.fromkeys(replace(each, tail=False, shrink=1.0) for each in settings))
    found: dict[Descent, Tensor] = {}
    with torch.no_grad():
        for first in range(0, len(paths), _AT_ONCE):
            part = paths[first : first + _AT_ONCE]
            coins = np.random.default_rng((seed, 1))
            last, mean = _descend(records, lengths, labels, loss, part, noise, sampling_rate, coins)
            found |= dict(zip(part, last, strict=True))
            found |= {
                replace(each, tail=True): model for each, model in zip(part, mean, strict=True)
            }
    return torch.stack([each.shrink * found[replace(each, shrink=1.0)] for each in settings])


def _descend(
    records: Tensor,
    lengths: Tensor,
    labels: Tensor,
    loss: Loss,
    settings: Sequence[Descent],
    noise: Tensor,
    sampling_rate: float,
    coins: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """The last models, and the means of the last half, of all settings."""

    def column(name: str) -> Tensor:
        return torch.tensor([[[float(getattr(each, name))]] for each in settings])

    rate, beta, l2, stddev = map(column, ("rate", "momentum", "l2", "noise"))
    clip = column("clip").ravel()
    model = torch.zeros(len(settings), *noise.shape[1:])
    velocity, total = torch.zeros_like(model), torch.zeros_like(model)
    everyone, count = (records, lengths, labels), sampling_rate * len(labels)
    for index, draw in enumerate(noise):
        if sampling_rate < 1:
            chosen = torch.from_numpy(coins.random(len(everyone[2])) < sampling_rate)
            records, lengths, labels = (each[chosen] for each in everyone)
        slopes = _slopes(records, labels, loss, model)  # (records, settings, classes)
        norms = lengths * (
            slopes.abs().squeeze(2)
            if loss.outputs == 1
            else torch.linalg.vector_norm(slopes, dim=2)
        )
        slopes = slopes * torch.clamp(clip / norms.clamp_min(1e-30), max=1.0).unsqueeze(2)
        sums = (slopes.reshape(len(labels), -1).T @ records).reshape(model.shape)
        velocity = beta * velocity + (sums + stddev * draw) / count + l2 * model
        model = model - rate * velocity
        if index >= len(noise) // 2:
            total += model
    return model, total / (len(noise) - len(noise) // 2)


def _tensor(array: NDArray[Any]) -> Tensor:
    """As a tensor, which shares no memory that is not to be written."""
    return torch.from_numpy(np.array(array))


def _scores(records: Tensor, model: Tensor) -> Tensor:
    """(records, settings, classes)."""
    return (records @ model.reshape(-1, model.shape[2]).T).reshape(len(records), *model.shape[:2])


def _slopes(records: Tensor, labels: Tensor, loss: Loss, model: Tensor) -> Tensor:
    scores = _scores(records, model)
    if loss.outputs == 1:
        return loss.slope(scores.squeeze(2), labels.unsqueeze(1)).unsqueeze(2)
    return loss.slope(scores, labels.unsqueeze(1).expand(scores.shape[:2]))


def judged(data: Dataset, loss: Loss, models: Tensor) -> tuple[list[float], list[float]]:
    """Accuracy in percent and log-loss of every model on the test records."""
    from fedpriv.learning.classes import classes_of

    records, labels = _tensor(data.test.X), _tensor(data.test.y).unsqueeze(1)
    with torch.no_grad():
        scores = _scores(records, models)
        if loss.outputs == 1:
            scores = scores.squeeze(2)
            named = torch.stack([classes_of(each, loss) for each in scores.T], dim=1)
        else:
            named = scores.argmax(dim=2).to(labels.dtype)
        right = (named == labels).double().mean(dim=0)
        losses = loss.value(scores, labels.expand(scores.shape[:2])).double().mean(dim=0)
    return (100 * right).tolist(), losses.tolist()
