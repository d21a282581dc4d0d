"""Attacks by queries of all shapes that a party's guard admits, on data sets that are neighbours.

Points, bounds, scales, grids and tolerances are drawn at random, far out of what a strategy asks
for; and so are tables, with up to twice as many records, or persons, as are declared. A party
answers on both of two neighbours, and its answers are no further apart than the query states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from fedpriv.data import Records
from fedpriv.data.persons import Persons
from fedpriv.federation.party.guard import (
    Policy,
    QueryRefused,
    check_certain,
    check_query,
    check_weighted,
)
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.bounds import certain_tolerance
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, LossQuery, MomentsQuery
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.batch import RecordBatch
from fedpriv.learning.losses import (
    HuberHinge,
    HuberRegression,
    Logistic,
    Loss,
    Softmax,
    Squared,
)
from fedpriv.learning.models import LinearModel, MlpModel, Model
from fedpriv.learning.network import small_cnn
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.learning.training.trainer import LocalTrainer
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query

TRIED = 400
LEAST = TRIED // 2  # of them are admitted by the guard
DECLARED, OTHERS = (1, 2, 5, 30, 150), (1, 40, 500)


@dataclass(frozen=True, kw_only=True)
class World:
    """A problem, and where its numbers come from."""

    rng: np.random.Generator
    task: Task
    adjacency: Adjacency
    unit: Unit

    @classmethod
    def drawn(cls, seed: int) -> World:
        rng = np.random.default_rng(seed)
        adjacency, unit = Adjacency(rng.choice([*Adjacency])), Unit.RECORD
        persons = None
        if rng.random() < 0.4:
            unit = Unit.PERSON
            persons = PersonBounds(
                records=int(rng.choice([1, 2, 4])), parties=int(rng.choice([1, 2]))
            )
        regulariser, width = float(rng.choice([1e-3, 0.1, 3])), int(rng.integers(1, 5))
        losses: list[Loss] = [
            Logistic(),
            HuberHinge(smoothing=float(rng.choice([0.5, 1e-6]))),
            HuberRegression(threshold=float(rng.choice([1, 0.01]))),
            Squared(radius=(2 / regulariser) ** 0.5, label_bound=1.0),
            Softmax(classes=3),
        ]
        loss = losses[rng.integers(len(losses))]
        model: Model = LinearModel(width=width, classes=loss.outputs)
        if isinstance(loss, Logistic) and rng.random() < 0.5:
            activation = str(rng.choice(["relu", "sigmoid"]))
            model = MlpModel(widths=(width, 3, 1), activation=activation)
        task = Task(
            model=model,
            loss=loss,
            regulariser=regulariser,
            feature_bound=float(rng.choice([1e-3, 1, 30])),
            sizes=(int(rng.choice(DECLARED)), int(rng.choice(OTHERS))),
            in_place=persons is None,
            persons=persons,
        )
        return cls(rng=rng, task=task, adjacency=adjacency, unit=unit)

    def records(self, count: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Short and long ones, some of them zero."""
        rng, bound = self.rng, self.task.feature_bound * (1 - 1e-6)
        X = rng.normal(size=(count, self.task.model.features))
        X *= bound / np.linalg.norm(X, axis=1, keepdims=True)
        X *= rng.choice([0, 1, 1, 1e-3, 0.5], size=(count, 1))
        if self.task.loss.outputs > 1:
            return X.astype(np.float32), rng.integers(0, self.task.loss.outputs, count)
        continuous = isinstance(self.task.loss, HuberRegression | Squared)
        labels = rng.choice([-1.0, 1.0, 0.0, 0.3] if continuous else [-1.0, 1.0], count)
        return X.astype(np.float32), labels.astype(np.float32)

    def neighbours(self) -> tuple[Records, Records]:
        """Data sets of one party that differ in a record, or in all records of a person."""
        rng, declared = self.rng, self.task.sizes[0]
        replaced = self.adjacency is Adjacency.REPLACE_ONE
        count = int(rng.integers(max(1, declared // 2), 2 * declared + 1))
        if self.unit is Unit.RECORD and replaced:
            count = declared
        whose = np.arange(count)
        if self.unit is Unit.PERSON:
            whose = rng.permutation(np.append(whose, rng.integers(0, count, 2 * count)))
        X, y = self.records(len(whose))
        left = int(rng.integers(count))
        places, rest = np.flatnonzero(whose == left), whose != left
        more = int(replaced) if self.unit is Unit.RECORD else int(rng.integers(1, 7)) * replaced
        newX, newy = self.records(more)
        at = int(places[0])
        at -= int(np.count_nonzero(~rest[:at]))
        changed = (
            np.insert(X[rest], [at] * more, newX, axis=0),
            np.insert(y[rest], [at] * more, newy),
            np.insert(whose[rest], [at] * more, count),
        )
        one, other = (self._of(*parts) for parts in ((X, y, whose), changed))
        return one, other

    def _of(self, X: NDArray[Any], y: NDArray[Any], whose: NDArray[Any]) -> Records:
        if self.unit is Unit.RECORD:
            return Records(X=X, y=y)
        return Records(X=X, y=y, person=Persons.named(whose, [f"p{i}" for i in range(10**3)]))

    def query(self) -> Query:
        """One that a server might make up."""
        rng, task = self.rng, self.task
        step, d = 2.0 ** int(rng.integers(-30, -8)), task.dimension
        terms: dict[str, Any] = {"adjacency": self.adjacency, "unit": self.unit}
        base: dict[str, Any] = {
            "run": "hostile",
            "round": 0,
            "grid": FixedPoint(step=step, bits=64),
            "event": GaussianEvent(relative_noise=10.0, **terms),
        }
        theta = rng.normal(size=d) * float(rng.choice([0, 1, 100, 1e10, 1e30]))
        kind = rng.choice(["gradient", "erm", "loss", "moments"], p=[0.45, 0.15, 0.15, 0.25])
        if kind == "moments":
            return MomentsQuery(**base, **self.moments())
        if kind == "erm":
            regulariser = float(rng.choice([task.regulariser, 1e6]))
            least = certain_tolerance(task, regulariser=regulariser) if task.convex else 1.0
            return ErmQuery(
                **base,
                regulariser=regulariser,
                tolerance=least * float(rng.choice([1, 1e3, 1e9])),
                weights=rng.choice(["equal", "proportional"]),
            )
        if kind == "loss":
            selection = {**base, "event": PureEvent(epsilon=0.1, **terms)}
            clip = float(rng.choice([0.01, 1, 50]))
            return LossQuery(**selection, points=np.stack([theta, theta / 7, 0 * theta]), clip=clip)
        shapes: list[dict[str, Any]] = [
            {},
            {"weights": "equal"},
            {"counting": 2 * step * int(rng.integers(1, 10**6))},
            {
                "centre": rng.normal(size=d) * float(rng.choice([0, 1, 1e20])),
                "scale": np.exp(rng.normal(size=d) * float(rng.choice([1, 40]))),
            },
        ]
        more = shapes[rng.integers(len(shapes))]
        clip = float(rng.choice([1e-6, 1e-2, 1, 100]))
        return GradientQuery(**base, theta=theta, clip_norm=clip, **more)

    def moments(self) -> dict[str, Any]:
        """Labels of any length, clipped anywhere; weights at points near and far."""
        rng, chosen = self.rng, dict[str, Any]()
        if rng.random() < 0.5:
            bound = float(rng.choice([1, 0.5, 1e-3, 1e-200, 1e5]))
            length = float(rng.choice([1, 1e-12, 1e3, 1e15])) * (1 - 1e-9)
            chosen |= {"label_bound": bound, "label_scale": length / bound}
        if rng.random() < 0.5:
            theta = rng.normal(size=self.task.model.features)
            theta *= float(rng.choice([0, 1, 100, 1e10, 1e30]))
            chosen |= {"weighting": "logistic", "theta": theta}
        return chosen

    def admits(self, query: Query) -> bool:
        try:
            check_query(query, self.task, Policy())
            check_certain(query, self.task)
            check_weighted(query, self.adjacency, self.unit)
        except QueryRefused:
            return False
        return True

    def limit(self, query: Query) -> float:
        """How far apart answers of neighbours may be, in steps: in L2, of losses by coordinate."""
        if isinstance(query, LossQuery):
            parties = 1 if self.task.persons is None else self.task.persons.parties
            return parties * query.clip / query.grid.step
        moved = query.sensitivity(self.task, sizes=self.task.sizes, adjacency=self.adjacency)
        assert moved is not None
        width = query.answer_width(self.task)
        return query.grid.l2_sensitivity(sensitivity=moved, dimension=width)


def test_no_query_that_is_admitted_tells_neighbours_apart_by_more_than_it_states() -> None:
    asked, nearest = 0, 0.0
    for seed in range(TRIED):
        world = World.drawn(seed)
        query, tables = world.query(), world.neighbours()
        if not world.admits(query):
            continue
        asked += 1
        one, other = (
            query.grid.decode(
                Party(
                    table,
                    task=world.task,
                    size=world.task.sizes[0],
                    sampling=lambda _: RandomStream.seeded(0),
                ).compute(query)
            )
            for table in tables
        )
        order = np.inf if isinstance(query, LossQuery) else 2
        apart = float(np.linalg.norm((one - other).astype(float), order))
        assert apart <= world.limit(query) * (1 + 1e-9), (seed, query.kind)
        nearest = max(nearest, apart / world.limit(query))
    assert asked > LEAST
    assert nearest > 0.99  # what nothing comes near would not see a sensitivity that is too small


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (LinearModel(width=36), Logistic()),
        (LinearModel(width=36, classes=3), Softmax(classes=3)),
        (MlpModel(widths=(36, 5, 1), activation="relu"), Logistic()),
        (small_cnn(shape=(1, 6, 6), classes=3), Softmax(classes=3)),
    ],
    ids=["linear", "softmax", "perceptron", "images"],
)
@pytest.mark.parametrize("batch_size", [3, None])
def test_a_party_that_diverges_leaves_nothing_behind_in_the_updates_of_others(
    model: Model, loss: Loss, batch_size: int | None
) -> None:
    """They are trained in the same memory, one after the other: infinite numbers might stay."""
    rng, sizes, diverging = np.random.default_rng(0), (9, 2, 5, 13, 1, 4), (0, 3)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(ends[-1], model.features)).astype(np.float32)
    for party in diverging:
        X[ends[party] : ends[party + 1]] *= 1e18
    labels = rng.integers(0, 3, ends[-1]) if loss.outputs > 1 else rng.choice([-1.0, 1.0], ends[-1])
    y = torch.from_numpy(labels if loss.outputs > 1 else labels.astype(np.float32))
    theta = torch.from_numpy(rng.normal(size=model.dimension))
    settings = LocalSgd(steps=3, batch_size=batch_size, learning_rate=1e10)

    def updates(first: int, last: int) -> NDArray[Any]:
        part = slice(ends[first], ends[last])
        batch = RecordBatch(
            features=torch.from_numpy(X[part]),
            labels=y[part],
            offsets=torch.from_numpy(ends[first : last + 1] - ends[first]),
        )
        trainer = LocalTrainer(
            model=model, loss=loss, batch=batch, settings=settings, first_party=first
        )
        return trainer.updates(theta, key=5)

    together = updates(0, len(sizes))
    assert not np.isfinite(together[list(diverging)]).all()
    for party in set(range(len(sizes))) - set(diverging):
        np.testing.assert_array_equal(updates(party, party + 1)[0], together[party])
