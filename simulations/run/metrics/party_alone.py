"""Baseline party-alone: what a party has without anybody, a model from its own records.

Computed here and not by a strategy, because it needs the answer of every single party, which no
strategy can see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.optimisers import project

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.task import Task
    from fedpriv.simulations.run.metrics.evaluation import Evaluator

TOLERANCE = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alone:
    """Every party's own model, and how good they are on the common test set.

    Attributes:
        models: (m, d).
        accuracies: One per party; empty for a regression, and without test records.
        losses: One per party; empty without test records.
    """

    models: Tensor
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def accuracy(self) -> float | None:
        """The mean over parties: what a party can expect."""
        return sum(self.accuracies) / len(self.accuracies) if self.accuracies else None

    @property
    def loss(self) -> float | None:
        """The mean over parties; None without test records."""
        return sum(self.losses) / len(self.losses) if self.losses else None


def train_alone(data: PartitionedDataset, task: Task, evaluator: Evaluator) -> Alone:
    """Minimise every party's own regularised risk; nothing is shared, so nothing is noisy."""
    problem = ErmProblem(
        features=from_dlpack(data.dataset.train.X),
        labels=from_dlpack(data.dataset.train.y),
        offsets=from_dlpack(data.offsets),
        loss=task.loss,
        regulariser=task.regulariser,
        feature_bound=task.feature_bound,
    )
    models = solve(problem, tolerance=TOLERANCE).theta.reshape(task.parties, -1)
    if task.radius is not None:
        models = torch.stack([torch.from_numpy(project(m.numpy(), task.radius)) for m in models])
    scores = [score for model in models if (score := evaluator.score(model.numpy()))]
    return Alone(
        models=models,
        accuracies=tuple(s.accuracy for s in scores if s.accuracy is not None),
        losses=tuple(s.loss for s in scores),
    )
