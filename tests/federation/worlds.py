"""Small federations whose answers are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv import strategies
from fedpriv.data.dataset import Dataset, Records
from fedpriv.data.partition import PartitionedDataset
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.draws import draw_local_noise
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.randomness import RandomStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Federation
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.learning.losses import Loss

PRIVATE = [name for name, info in strategies.STRATEGIES.items() if info.private]


def streams(seed: int, purpose: str) -> Callable[[int], RandomStream]:
    return lambda index: RandomStream.seeded(seed, purpose, index)


def linear_task(
    sizes: tuple[int, ...],
    width: int,
    *,
    loss: Loss | None = None,
    regulariser: float = 0.01,
) -> Task:
    return Task(
        model=LinearModel(width=width),
        loss=loss or Logistic(),
        regulariser=regulariser,
        feature_bound=1.0,
        sizes=sizes,
    )


def party_data(
    X: NDArray[np.floating[Any]], y: NDArray[np.floating[Any]], sizes: tuple[int, ...]
) -> PartitionedDataset:
    """Records in the order of their parties; regression unless all labels are -1 or +1."""
    m, (_, width) = len(sizes), X.shape
    records = Records(
        X=X.astype(np.float32), y=y.astype(np.float32), party=np.repeat(np.arange(m), sizes)
    )
    binary = bool((np.abs(y) == 1).all())
    dataset = Dataset(
        name="made",
        task="binary" if binary else "regression",
        train=records,
        test=records.take(slice(0, 0)),
        feature_names=tuple(f"x{i}" for i in range(width)),
        max_norm=1.0,
        party_names=tuple(f"party-{j}" for j in range(m)),
        classes=("no", "yes") if binary else (),
    )
    return PartitionedDataset(
        dataset=dataset,
        kind="natural",
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        order=np.arange(len(records)),
    )


def random_data(sizes: tuple[int, ...], width: int, *, seed: int = 0) -> PartitionedDataset:
    """Records of norm at most 1 with labels that a linear model can half explain."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), width))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-6))
    y = np.where(X @ np.linspace(-3, 3, width) + rng.normal(size=len(X)) > 0, 1.0, -1.0)
    return party_data(X, y, sizes)


class SilentFederation:
    """Parties whose exact answer to every query is zero: what remains is the noise they add."""

    def __init__(self, task: Task, *, sampling: Callable[[int], RandomStream]) -> None:
        self.task = task
        self.sizes = task.sizes
        self.sampling = sampling

    def sum(self, query: Query) -> Sum:
        noise = draw_local_noise(query, self.task, self.sizes, self.sampling(query.round))
        zero = np.zeros(query.answer_width(self.task), np.int64)
        return Sum(total=zero if noise is None else noise, step=query.grid.step, sizes=self.sizes)


def build(
    name: str,
    task: Task,
    *,
    seed: int = 0,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    adjacency: str = "replace-one",
    unit: str | None = None,
    ledger: Ledger | None = None,
    release: bool = False,
    run: str = "run",
    sharing: Mapping[str, Any] | None = None,
    noise_free: bool = False,
    twin_of: Budget | None = None,
    **options: Any,
) -> SumStrategy:
    private = strategies.STRATEGIES[name].private and not noise_free
    return strategies.build(
        name,
        task=task,
        budget=Budget(epsilon=epsilon, delta=delta) if private else None,
        adjacency=adjacency,
        unit=unit or strategies.STRATEGIES[name].units[0],
        options=options,
        noise=streams(seed, "noise") if ledger is None else lambda _: RandomStream.from_os(),
        run=run,
        ledger=ledger,
        release=release,
        noise_free=noise_free,
        twin_of=twin_of,
        **({} if sharing is None else {"noise_at": "parties", **sharing}),
    )


def ledger_at(
    folder: Path, *, epsilon: float = 1.0, delta: float = 1e-6, **settings: Any
) -> Ledger:
    return Ledger.create(
        folder / "ledger.db",
        data_name="data",
        budget=Budget(epsilon=epsilon, delta=delta),
        adjacency="replace-one",
        **settings,
    )


def train(strategy: SumStrategy, federation: Federation) -> SumStrategy:
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
    return strategy
