"""Settings of a perceptron that need no tuning: what the rule loses to the best of a grid.

Run with ``python -m benchmarks.networks [--fitting] [TABLE …]``, tables in ``FEDPRIV_DATA``. A
perceptron with 20 hidden units by gradient perturbation: 100 rounds, replace-one, δ = 1e-6, heavy
ball, λ = 1e-5. Tables and goals are those of `benchmarks.settings`, cut to 500 and 2,000 records,
but for tables of more than two classes; the *grid* is the best of 36 settings, three clip norms
times six travels, the last model or the mean of the last half, on the test records; *cross* is
chosen by one half of the seeds, and measured by the other. There were no fixed settings before: a
learning rate had to be named.

Noise is Gaussian in floating point, the same draw for all settings, as in `benchmarks.descents`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.settings import (
    EPSILONS,
    MOMENTUM,
    MOST_BEHIND_GRID,
    ROUNDS,
    TWO_CLASSES,
    cross,
    cut,
    paired,
    tables_of,
    task_of,
    whole,
)
from fedpriv.learning.models import MlpModel
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.strategies.common.auto import auto_averaging, auto_rate
from fedpriv.strategies.common.optimiser import OptimiserOptions
from fedpriv.strategies.common.shrinking import shrink_by_noise

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.data import Dataset
    from fedpriv.learning.losses import Loss

HIDDEN, SEEDS, L2 = 20, 16, 1e-5
CLIPS, TRAVELS = (0.3, 1.0, 3.0), (0.3, 1.0, 2.0, 4.0, 8.0, 16.0)
MOST_TESTED = 8000


def settings(
    data: Dataset, loss: Loss, epsilon: float
) -> tuple[list[tuple[float, float, float]], int, float]:
    """Clip norm, learning rate and noise of a sum, of the rule and the grid; which model it takes.

    That is 0 for the mean of the last half of the models, and 1 for the last. At the end, what the
    rule multiplies its scores by.
    """
    s = len(data.train.y) * gdp_mu(epsilon=epsilon, delta=1e-6) / 2
    task = replace(
        task_of(data, loss, L2), model=MlpModel(widths=(data.train.X.shape[1], HIDDEN, 1))
    )
    averaging = auto_averaging(s, task)
    ruled = auto_rate(s, task, clip_norm=1.0, rounds=ROUNDS, beta=MOMENTUM, averaging=averaging)
    chosen = [(1.0, ruled)]
    chosen += [(c, r * s * (1 - MOMENTUM) / (c * ROUNDS)) for c, r in product(CLIPS, TRAVELS)]
    noise = len(data.train.y) * ROUNDS**0.5 / s
    options = OptimiserOptions(
        optimiser="momentum", momentum=MOMENTUM, learning_rate=ruled, averaging=averaging
    )
    factors = shrink_by_noise(options, task, np.full(ROUNDS, noise / len(data.train.y))).factors
    settled = [(clip, rate, clip * noise) for clip, rate in chosen]
    return settled, int(averaging == "last"), float(factors[-1])


def descend(
    data: Dataset, loss: Loss, chosen: list[tuple[float, float, float]], *, seed: int, shrink: float
) -> tuple[Tensor, Tensor]:
    """Accuracy in percent and log-loss on test records: of both models, of all settings.

    Scores of the first setting, which is the rule's, are multiplied by ``shrink``.
    """
    X, y, tested, truth = (
        torch.from_numpy(np.array(each))
        for each in (data.train.X, data.train.y, data.test.X, data.test.y)
    )
    clip, rate, stddev = (torch.tensor(column)[:, None] for column in zip(*chosen, strict=True))
    width = X.shape[1]
    first = MlpModel(widths=(width, HIDDEN, 1)).initial(np.random.default_rng(seed))
    model = first.float().repeat(len(chosen), 1)
    velocity, total = torch.zeros_like(model), torch.zeros_like(model)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for index in range(ROUNDS):
            draw = stddev * torch.randn(1, model.shape[1], generator=random)
            sums = clipped_sums(model, X, y, loss, clip) + draw
            velocity = MOMENTUM * velocity + sums / len(y) + L2 * model
            model = model - rate * velocity
            if index >= ROUNDS // 2:
                total += model
        both = torch.cat([total / (ROUNDS - ROUNDS // 2), model])
        _, scores = _forward(both, tested[:MOST_TESTED])
        scores.view(2, len(chosen), -1)[:, 0] *= shrink
        labels = truth[:MOST_TESTED].expand(scores.shape)
        right = ((scores > 0) == (labels > 0)).float().mean(1)
        found = torch.stack([100 * right, loss.value(scores, labels).mean(1)])
        accuracy, losses = found.reshape(2, 2, len(chosen))
        return accuracy, losses


def clipped_sums(model: Tensor, X: Tensor, y: Tensor, loss: Loss, clip: Tensor) -> Tensor:
    """The sums of clipped gradients, one row a setting."""
    _, _, outer, _ = _layers(model, X.shape[1])
    active, scores = _forward(model, X)
    top = loss.slope(scores, y.expand(scores.shape))  # (settings, records)
    below = top[:, :, None] * outer[:, None] * active * (1 - active)
    squares = top**2 * ((active**2).sum(2) + 1) + (below**2).sum(2) * ((X**2).sum(1) + 1)
    factor = torch.clamp(clip / squares.sqrt().clamp_min(1e-30), max=1.0)
    top, below = top * factor, below * factor[:, :, None]
    parts = (
        (below.transpose(1, 2) @ X).flatten(1),
        below.sum(1),
        (top[:, None] @ active).squeeze(1),
        top.sum(1, keepdim=True),
    )
    return torch.cat(parts, dim=1)


def _layers(model: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights and biases of both layers, as `MlpModel` lays them out."""
    ends = [width * HIDDEN, HIDDEN, HIDDEN, 1]
    inner, bias, outer, top = torch.split(model, ends, dim=1)
    return inner.reshape(-1, HIDDEN, width), bias, outer, top


def _forward(model: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
    inner, bias, outer, top = _layers(model, X.shape[1])
    active = torch.sigmoid(X @ inner.transpose(1, 2) + bias[:, None])
    return active, (active @ outer[:, :, None]).squeeze(2) + top


def main(arguments: list[str]) -> int:
    torch.set_num_threads(1)
    behind: dict[float, list[tuple[float, ...]]] = {epsilon: [] for epsilon in EPSILONS}
    for table, records in product(tables_of(arguments), (500, 2000)):
        name = TWO_CLASSES.get(table, table)
        dataset, loss = whole(name)
        if records > 500 and len(dataset.train.y) < records:
            continue  # all of it was the first cut
        for epsilon in EPSILONS:
            chosen, last, shrink = settings(cut(dataset, records, 0), loss, epsilon)
            seen = [
                descend(cut(dataset, records, seed), loss, chosen, seed=seed, shrink=shrink)
                for seed in range(SEEDS)
            ]
            right, losses = (torch.stack([pair[k] for pair in seen]).double() for k in (0, 1))
            rule, grid = right[:, last, 0], right[:, :, 1:].flatten(1)
            best = int(grid.mean(0).argmax())
            ahead = [
                *paired((rule - grid[:, best]).numpy()),
                *paired(rule.numpy() - cross(grid.numpy())),
            ]
            behind[epsilon].append(tuple(ahead))
            loss_of = losses[:, last, 0], losses[:, :, 1:].flatten(1)[:, best]
            cells = [
                f"{a.mean():.1f}, {b.mean():.3f}"
                for a, b in zip((rule, grid[:, best]), loss_of, strict=True)
            ]
            cells += ["{:+.1f} ± {:.1f}".format(*ahead[k : k + 2]) for k in (0, 2)]
            count = min(records, len(dataset.train.y))
            print(f"| {' | '.join([name, f'{count:,}', f'{epsilon:g}', *cells])} |", flush=True)
    missed = 0
    for epsilon, rows in behind.items():
        told = []
        for place, what in ((0, "grid"), (2, "cross")):
            mean = np.mean([row[place] for row in rows])
            half = np.sqrt(np.sum([row[place + 1] ** 2 for row in rows])) / len(rows)
            told.append(f"{-mean:.2f} ± {half:.2f} behind the {what}")
        print(f"ε = {epsilon:g}, in the mean: {', '.join(told)}")
        missed += -float(np.mean([row[0] for row in rows])) > MOST_BEHIND_GRID[epsilon]
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
