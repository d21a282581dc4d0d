"""Exact sums of neighbours at random points: hundreds of records, copies, kinks, long parameters.

The audits of whole releases have tables of some dozens of rows. Here parties have more than a block
of records, many of them alike, so that what one record does to the last digits of another would be
done to many; losses bend sharply, and points are as far away as a diverging run takes them. Every
kind of sum that a release is made of is asked for, and moves by no more than it states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import Dataset, Records
from fedpriv.data.dataset import no_records
from fedpriv.data.partition import PartitionedDataset
from fedpriv.data.persons import Persons
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.accuracy import lead_sensitivity
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import AccuracyQuery, GradientQuery, LossQuery, MomentsQuery
from fedpriv.federation.queries.loss import loss_sensitivity
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.classes import classifies
from fedpriv.learning.losses import HuberHinge, HuberRegression, Logistic, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.audit.examination import STRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.data.dataset import Task as Kind
    from fedpriv.federation.queries.base import Query

    Rng = np.random.Generator

PAIRS = 2000 if STRESS else 60
ROUNDING = 1e-12
CLASSES = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "regression": ()}
LOSSES: dict[str, list[Any]] = {
    "binary": [Logistic(), HuberHinge(smoothing=0.5), HuberHinge(smoothing=1e-6)],
    "multiclass": [Softmax(classes=3)],
    "regression": [HuberRegression(threshold=1e-6), Squared(radius=10.0, label_bound=1.0)],
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Records of some parties, in the order of a table."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    party: NDArray[np.int64]
    person: NDArray[np.int64]

    def take(self, rows: Any) -> Rows:
        fields = ("X", "y", "party", "person")
        return Rows(**{name: getattr(self, name)[rows] for name in fields})

    def joined(self, more: Rows) -> Rows:
        fields = ("X", "y", "party", "person")
        return Rows(**{n: np.concatenate([getattr(self, n), getattr(more, n)]) for n in fields})

    def partitioned(self, kind: Kind, parties: int, *, by_person: bool) -> PartitionedDataset:
        order = np.argsort(self.party, kind="stable")
        own = self.take(order)
        person = Persons.of(own.person) if by_person else None
        width = own.X.shape[1]
        dataset = Dataset(
            name="drawn",
            task=kind,
            train=Records(X=own.X, y=own.y, party=own.party, person=person),
            test=no_records(width, kind),
            feature_names=tuple(f"x{i}" for i in range(width)),
            max_norm=1.0,
            party_names=tuple(map(str, range(parties))),
            classes=CLASSES[kind],
        )
        sizes = np.bincount(own.party, minlength=parties)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return PartitionedDataset(dataset=dataset, kind="natural", offsets=offsets, order=order)


def drawn_rows(rng: Rng, kind: Kind, parties: int) -> Rows:
    count, width = int(rng.choice([5, 60, 300, 900])), int(rng.choice([1, 2, 5, 17, 70]))
    X = rng.normal(size=(count, width))
    X /= np.maximum(1, 1.001 * np.linalg.norm(X, axis=1, keepdims=True))
    if rng.random() < 0.5:  # copies of a few
        X = X[rng.integers(0, min(count, int(rng.integers(1, 8))), count)]
    labels = {
        "binary": np.where(rng.random(count) < 0.5, np.float32(1), np.float32(-1)),
        "multiclass": rng.integers(0, 3, count),
        "regression": rng.choice([1.0, -1.0, 0.3], count).astype(np.float32),
    }
    return Rows(
        X=X.astype(np.float32),
        y=labels[kind],
        party=rng.integers(0, parties, count) * (rng.random() < 0.7),
        person=rng.integers(0, max(1, count // 3), count),
    )


def neighbour(rng: Rng, rows: Rows, adjacency: Adjacency, *, by_person: bool) -> Rows:
    """Without one unit, or with another in its place: a person, with any number of records."""
    place = int(rng.integers(len(rows.y)))
    gone = rows.person == rows.person[place] if by_person else np.arange(len(rows.y)) == place
    if adjacency is Adjacency.ADD_REMOVE:
        return rows.take(~gone)
    if by_person:
        new = rows.take(rng.integers(0, len(rows.y), int(rng.integers(1, 5))))
        stranger = np.full(len(new.y), 10**6)
        new = Rows(X=-new.X, y=new.y, party=rng.permutation(new.party), person=stranger)
        return rows.take(~gone).joined(new)
    X, y = rows.X.copy(), rows.y.copy()
    X[place] *= -rng.choice([1.0, 0.1])
    y[place] = rng.choice(rows.y)
    return Rows(X=X, y=y, party=rows.party, person=rows.person)


def drawn_task(rng: Rng, kind: Kind, rows: Rows, parties: int, *, unit: Unit, fixed: bool) -> Task:
    """``fixed``: all records stay in place, and their numbers are public; else declared."""
    width, outputs = rows.X.shape[1], 3 if kind == "multiclass" else 1
    model: Any = LinearModel(width=width, classes=outputs)
    if kind != "regression" and rng.random() < 0.3:
        widths = (width, int(rng.integers(1, 20)), outputs)
        model = MlpModel(widths=widths, activation=str(rng.choice(["relu", "tanh", "sigmoid"])))
    sizes = np.maximum(1, np.bincount(rows.party, minlength=parties))
    if not fixed:
        sizes = np.maximum(1, (sizes * rng.choice([0.3, 0.6, 1.0])).astype(int))
    persons = None
    if unit is Unit.PERSON:
        persons = PersonBounds(records=(None, 1, 3)[rng.integers(3)], parties=parties)
    return Task(
        model=model,
        loss=LOSSES[kind][rng.integers(len(LOSSES[kind]))],
        regulariser=0.1,
        feature_bound=1.0,
        sizes=tuple(map(int, sizes)),
        in_place=persons is None,
        persons=persons,
    )


def questions(rng: Rng, task: Task, event: GaussianEvent) -> Iterator[tuple[str, Query, float]]:
    """What a release may ask at a point, and how far the sum may move: with the grid in it."""
    d, linear = task.dimension, isinstance(task.model, LinearModel)
    theta = rng.normal(size=d) * rng.choice([0.0, 1e-3, 1.0, 10.0, 1e3, 1e6])
    clip = float(rng.choice([2.0**-10, 0.1, 1.0, 10.0]))
    common: dict[str, Any] = {"run": "r", "round": 0}
    more: list[dict[str, Any]] = [
        {},
        {"counting": 2.0**-4},
        {"centre": rng.normal(size=d) / 10, "scale": np.exp(rng.normal(size=d))},
        *([{"clip_in": "l1"}] if task.persons is None else []),
    ]
    chosen = more[rng.integers(len(more))]
    step = 2.0 ** np.floor(np.log2(clip * 2.0**-30)) if "counting" not in chosen else 2.0**-40
    grid = grid_of(step=float(step), bound=2 * task.records * max(1.0, clip), parties=task.parties)
    gradient = GradientQuery(
        **common, grid=grid, event=event, theta=theta, clip_norm=clip, **chosen
    )
    stated = gradient.sensitivity(task, sizes=task.sizes, adjacency=event.adjacency) or 0.0
    rounded = float(d) if gradient.wide else np.sqrt(gradient.answer_width(task))
    yield "l1" if gradient.wide else "l2", gradient, stated + rounded * float(step)
    points = np.stack([theta, theta / 2, np.zeros(d)])
    losses = FixedPoint(step=2.0**-16, bits=64)
    asked = LossQuery(**common, grid=losses, event=None, points=points, clip=clip)
    yield "largest", asked, loss_sensitivity(task, clip=clip)
    if linear and task.persons is None and classifies(task.loss):
        counts = FixedPoint(step=2.0**-10, bits=64)
        right = AccuracyQuery(**common, grid=counts, event=None, theta=theta)
        yield "lead", right, lead_sensitivity(event.adjacency)
    if linear:
        fine = FixedPoint(step=2.0**-36, bits=64)
        weights: dict[str, Any] = {}
        if task.loss.outputs == 1 and rng.random() < 0.5:
            weights = {"weighting": "logistic", "theta": theta}
        moments = MomentsQuery(**common, grid=fine, event=event, **weights)
        stated = moments.sensitivity(task, sizes=task.sizes, adjacency=event.adjacency) or 0.0
        yield "l2", moments, stated + np.sqrt(moments.answer_width(task)) * fine.step


def apart(norm: str, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    moved = one - other
    match norm:
        case "lead":
            return float(abs(moved[0] - moved[1]))
        case "largest":
            return float(np.abs(moved).max())
    return float(np.linalg.norm(moved, 1 if norm == "l1" else 2))


def test_no_unit_moves_a_sum_by_more_than_is_stated() -> None:
    reached: dict[str, float] = {}
    for seed in range(PAIRS):
        rng = np.random.default_rng(seed)
        kind: Kind = rng.choice(["binary", "multiclass", "regression"])
        parties, unit = int(rng.integers(1, 6)), rng.choice([Unit.RECORD, Unit.PERSON])
        adjacency = rng.choice([Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
        by_person = unit == Unit.PERSON
        rows = drawn_rows(rng, kind, parties)
        others = neighbour(rng, rows, Adjacency(adjacency), by_person=by_person)
        if not len(others.y):
            continue
        fixed = adjacency == Adjacency.REPLACE_ONE and not by_person
        task = drawn_task(rng, kind, rows, parties, unit=Unit(unit), fixed=fixed)
        federations = [
            VectorizedFederation(
                each.partitioned(kind, parties, by_person=by_person),
                task=task,
                sampling=lambda number: RandomStream.seeded(0, "sample", number),
                workers=workers,
            )
            for each, workers in ((rows, 2), (others, 1))
        ]
        event = GaussianEvent(relative_noise=1.0, adjacency=adjacency, unit=unit)
        for norm, query, most in questions(rng, task, event):
            here, there = (each.sum(query).value for each in federations)
            share = apart(norm, here, there) / most
            assert share <= 1 + ROUNDING, (seed, query.kind, share)
            reached[query.kind] = max(reached.get(query.kind, 0.0), share)
    assert min(reached.values()) > 0.9  # with half of a sensitivity it would have been found
    assert set(reached) == {"gradient", "loss", "accuracy", "moments"}
