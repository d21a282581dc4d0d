"""Counts of right and wrong answers: what they are, and how far one record moves them."""

from __future__ import annotations

from itertools import product
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data.dataset import Records
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.stack import stack
from fedpriv.federation.queries.accuracy import count_sensitivity
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.kinds import AccuracyQuery
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, random_data, streams

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONE = Adjacency.REPLACE_ONE
EVENT = GaussianEvent(relative_noise=5.0, adjacency=ONE)


def asked(theta: Any) -> AccuracyQuery:
    grid = FixedPoint(step=2.0**-10, bits=64)
    return AccuracyQuery(run="r", round=0, grid=grid, event=EVENT, theta=np.array(theta, float))


def counts(
    X: NDArray[Any], y: NDArray[Any], task: Task, theta: NDArray[Any], offsets: list[int]
) -> NDArray[np.float64]:
    records = Records(X=X.astype(np.float32), y=y)
    batch = stack(records, np.array(offsets), task)
    holdings = Holdings(task, batch, sizes=task.sizes)
    return holdings.answer(asked(theta), Draws()).vectors


def test_the_counts_are_those_of_a_plain_loop_over_the_records() -> None:
    data = random_data((30, 50), 4)
    task, theta = linear_task((30, 50), 4), np.linspace(-3, 3, 4)
    X, y = data.dataset.train.X, data.dataset.train.y
    right = [bool(x.astype(float) @ theta >= 0) == (y[i] > 0) for i, x in enumerate(X)]
    found = counts(X, y, task, theta, [0, 30, 80])
    expected = [[sum(part), len(part) - sum(part)] for part in (right[:30], right[30:])]
    assert found.tolist() == expected
    federation = VectorizedFederation(data, task=task, sampling=streams(0, "p"))
    total = federation.sum(asked(theta))
    assert (total.total * total.step).tolist() == np.sum(expected, axis=0).tolist()


def test_of_more_than_two_classes_the_highest_score_counts() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 3)) / 4, rng.integers(0, 4, 60)
    task = Task(
        model=LinearModel(width=3, classes=4),
        loss=Softmax(classes=4),
        regulariser=0.1,
        feature_bound=3.0,
        sizes=(60,),
    )
    theta = rng.normal(size=12)
    right = ((X.astype(np.float32) @ theta.reshape(4, 3).T).argmax(1) == y).sum()
    assert counts(X, y, task, theta, [0, 60]).tolist() == [[right, 60 - right]]


def test_a_party_without_held_out_records_counts_none_and_more_than_its_size_all() -> None:
    data = random_data((40,), 4)
    X, y = data.dataset.train.X, data.dataset.train.y
    task = linear_task((5, 5), 4)
    found = counts(X, y, task, np.ones(4), [0, 0, 40])
    assert found[0].tolist() == [0, 0]
    assert found[1].sum() == 40  # nobody states how many records are held out


def test_no_record_moves_the_counts_by_more_than_the_sensitivity_and_some_by_all_of_it() -> None:
    """Brute force over every record that can be added, removed or put in another's place."""
    rng = np.random.default_rng(2)
    theta = np.array([1.0, -2.0])
    pool = [(rng.normal(size=2) / 3, label) for label, _ in product((-1.0, 1.0), range(6))]
    task = linear_task((9,), 2)

    def total(records: list[tuple[NDArray[Any], float]]) -> NDArray[np.float64]:
        X = np.array([x for x, _ in records]).reshape(-1, 2)
        y = np.array([label for _, label in records], np.float32)
        (found,) = counts(X, y, task, theta, [0, len(records)])
        return np.asarray(found)

    start = [pool[i] for i in rng.integers(0, len(pool), 9)]
    here = total(start)
    added = [total([*start, each]) for each in pool]
    removed = [total(start[:i] + start[i + 1 :]) for i in range(9)]
    replaced = [total([*start[:i], each, *start[i + 1 :]]) for i, each in product(range(9), pool)]

    def farthest(others: list[NDArray[np.float64]]) -> float:
        return max(float(np.linalg.norm(other - here)) for other in others)

    assert farthest(added) == farthest(removed) == 1.0 == count_sensitivity(Adjacency.ADD_REMOVE)
    assert farthest(replaced) == pytest.approx(sqrt(2), rel=1e-15)
    assert farthest(replaced) <= count_sensitivity(ONE)


def test_whether_a_record_is_right_does_not_depend_on_where_it_stands() -> None:
    """Scores that sit on the border: a product of matrices may round them either way."""
    rng = np.random.default_rng(3)
    theta = rng.normal(size=33) * 1e3
    X = rng.normal(size=(500, 33))
    X -= np.outer(X @ theta, theta) / (theta @ theta)
    X /= 8
    y, task = np.ones(500, np.float32), linear_task((500,), 33)
    whole = counts(X, y, task, theta, [0, 500])[0]
    one_by_one = sum(counts(X[i : i + 1], y[:1], task, theta, [0, 1])[0] for i in range(500))
    assert 50 < whole[0] < 450
    assert whole.tolist() == np.asarray(one_by_one).tolist()


def test_models_without_classes_or_with_hidden_layers_are_refused() -> None:
    for model, loss in (
        (LinearModel(width=3), Squared(label_bound=1.0, radius=2.0)),
        (MlpModel(widths=(3, 4, 1)), Logistic()),
    ):
        task = Task(model=model, loss=loss, regulariser=0.1, feature_bound=1.0, sizes=(5, 5))
        with pytest.raises(QueryRefused, match="must be about a linear classifier"):
            check_query(asked(np.zeros(task.dimension)), task, Policy())


def test_a_party_that_does_not_name_the_kind_does_not_answer_it() -> None:
    with pytest.raises(QueryRefused, match="does not answer queries of kind 'accuracy'"):
        check_query(asked(np.zeros(3)), linear_task((5, 5), 3), Policy(queries=("gradient",)))


def test_it_crosses_the_wire_as_it_is() -> None:
    query = asked([0.1, -0.0, 1e300])
    read = from_bytes(to_bytes(query))
    assert isinstance(read, AccuracyQuery)
    assert read.theta.tobytes() == query.theta.tobytes()
    assert (read.event, read.held_out) == (EVENT, True)
