"""Federated averaging and SCAFFOLD as one would write them down: one party, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedpriv.federation.strategy.base import Run
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.learning.network import NetworkModel, seeded_module
from fedpriv.learning.training.kernels.orders import shuffle
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.building import Setup
from tests.federation.worlds import streams
from tests.learning.differentiable import differentiable_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fedpriv.data.partition import PartitionedDataset
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.learning.models import Model
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.planning.shares import Sharing

SIZES = (13, 1, 30, 7)
WIDTH = 36
RUN = "run"


def _cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 1))


MODELS: dict[str, Model] = {
    "logistic": LinearModel(width=WIDTH),
    "mlp": MlpModel(widths=(WIDTH, 5, 1)),
    "cnn": NetworkModel(module=seeded_module(_cnn, seed=0), input_shape=(1, 6, 6)),
}


def task_of(model: str, sizes: tuple[int, ...] = SIZES, *, regulariser: float = 0.01) -> Task:
    return Task(
        model=MODELS[model],
        loss=Logistic(),
        regulariser=regulariser,
        feature_bound=1.0,
        sizes=sizes,
    )


def make(
    module: Any,
    task: Task,
    *,
    budget: Budget | None = None,
    adjacency: str = "add-remove",
    seed: int = 0,
    sharing: Sharing | None = None,
    ledger: Ledger | None = None,
    **options: Any,
) -> Any:
    """A strategy of ``module``; without a budget, one that promises nothing."""
    noise = streams(seed, "noise") if ledger is None else lambda _: RandomStream.from_os()
    setup = Setup(
        task=task,
        adjacency=Adjacency(adjacency),
        unit=Unit.PARTY,
        run=Run(name=RUN, noise=noise, ledger=ledger),
        allowance=budget,
        sharing=sharing,
    )
    return module.build(setup, module.INFO.options.model_validate(options))


@dataclass(frozen=True, kw_only=True)
class Plain:
    """One party's local SGD, written down once more.

    Attributes:
        task: The problem.
        data: Who holds which records.
        rate: η.
        epochs: Over all records of a party.
        batch: Records of a step.
        momentum: β.
        proximal: μ.
    """

    task: Task
    data: PartitionedDataset
    rate: float
    epochs: int = 1
    batch: int = 10
    momentum: float = 0.0
    proximal: float = 0.0

    def update(
        self,
        theta: NDArray[np.float64],
        party: int,
        round_: int,
        shift: NDArray[np.float64] | float = 0.0,
    ) -> tuple[NDArray[np.float64], int]:
        """w - θ, and in how many steps."""
        own = self.data.party(party)
        start = torch.tensor(theta)
        w, v = start.clone(), torch.zeros_like(start)
        steps = 0
        for rows in self._batches(party, round_, len(own.y)):
            w = w.detach().requires_grad_()
            inputs = torch.tensor(own.X[rows]).double()
            scores = differentiable_scores(self.task.model, w, inputs)
            loss = torch.nn.functional.softplus(-scores * torch.tensor(own.y[rows])).mean()
            (gradient,) = torch.autograd.grad(loss, w)
            w = w.detach()
            full = (
                gradient
                + self.task.regulariser * w
                + self.proximal * (w - start)
                + torch.as_tensor(shift)
            )
            v = self.momentum * v + full
            w = w - self.rate * v
            steps += 1
        return (w - start).numpy(), steps

    def _batches(self, party: int, round_: int, count: int) -> Iterator[NDArray[np.int64]]:
        key = RandomStream.seeded(0, "orders", RUN, round_).words(1)[0]
        for epoch in range(self.epochs):
            order = np.empty(count, np.int64)
            shuffle(key, party, epoch, order)
            yield from (order[at : at + self.batch] for at in range(0, count, self.batch))

    def average(
        self,
        theta: NDArray[np.float64],
        rounds: int,
        step: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
        *,
        weights: list[float],
    ) -> NDArray[np.float64]:
        """FedAvg: ``step`` makes the next model from the last and the mean update."""
        for round_ in range(rounds):
            updates = [self.update(theta, j, round_)[0] for j in range(self.task.parties)]
            mean = np.average(updates, axis=0, weights=weights)
            theta = step(theta, mean)
        return theta

    def scaffold(
        self, theta: NDArray[np.float64], rounds: int, *, weights: list[float]
    ) -> NDArray[np.float64]:
        """Karimireddy et al. 2020, Algorithm 1, option II, everybody in every round."""
        m = self.task.parties
        c, own = np.zeros_like(theta), [np.zeros_like(theta) for _ in range(m)]
        for round_ in range(rounds):
            moves, changes = [], []
            for j in range(m):
                update, steps = self.update(theta, j, round_, c - own[j])
                new = own[j] - c - update / (steps * self.rate)
                moves.append(weights[j] * update)
                changes.append(weights[j] * (new - own[j]))
                own[j] = new
            theta = theta + sum(moves) / sum(weights)
            c = c + sum(changes) / sum(weights)
        return theta


def trained(strategy: SumStrategy, federation: Any) -> NDArray[np.float64]:
    """The model after all rounds."""
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
    return strategy.theta
