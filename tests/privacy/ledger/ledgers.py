"""A ledger to test with, and events to charge it."""

from pathlib import Path

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.ledger import Ledger

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(relative_noise=noise, adjacency=A)


def pure(epsilon: float) -> PureEvent:
    return PureEvent(epsilon=epsilon, adjacency=A)


def fresh(directory: Path, budget: Budget = BUDGET, composition: str = "auto") -> Ledger:
    return Ledger.create(
        directory / "test.ledger",
        data_name="clinic",
        budget=budget,
        adjacency=A,
        composition=composition,
    )


def kinds(ledger: Ledger) -> list[str]:
    return [row.kind for row in ledger.rows()]
