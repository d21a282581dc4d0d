"""Federated averaging on small data: parties to train it on, and the same with a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.privacy.budget import Budget
from fedpriv.strategies import federated_averaging as averaging
from tests.federation.worlds import random_data, streams
from tests.strategies.plain_training import SIZES, WIDTH, make

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

DATA = random_data(SIZES, WIDTH)
BUDGET = Budget(epsilon=3.0, delta=1e-5)
MANY = (3,) * 60  # parties


def federation(task: Task, **more: Any) -> VectorizedFederation:
    data = DATA if task.sizes == SIZES else random_data(task.sizes, task.model.features)
    return VectorizedFederation(data, task=task, sampling=streams(0, "parties"), **more)


def private(task: Task, **options: Any) -> Any:
    chosen: dict[str, Any] = {"budget": BUDGET, "allow_swamped": True, "rounds": 3, **options}
    return make(averaging, task, **chosen)
