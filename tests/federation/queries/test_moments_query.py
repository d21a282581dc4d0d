"""Second moments of parties: what they are, and how far one record, or person, moves them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data.dataset import Records
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.party.stack import stack, stack_persons
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.kinds import MomentsQuery
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Logistic, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.learning.moments import UNITS, symmetric, triangle
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.queries import person_scenes
from tests.federation.worlds import linear_task, random_data, streams

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONE, ADD = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
EVENT = GaussianEvent(relative_noise=5.0, adjacency=ONE)
GRID = FixedPoint(step=2.0**-30, bits=64)
QUERY = MomentsQuery(run="r", round=0, grid=GRID, event=EVENT)
LABELLED = replace(QUERY, label_scale=0.5, label_bound=2.0)
THETA = np.array([1.0, -2.0, 0.5])
WEIGHTED = replace(QUERY, weighting="logistic", theta=THETA)
KINDS = {"features": QUERY, "label": LABELLED, "logistic": WEIGHTED}


def holdings(X: NDArray[Any], y: NDArray[Any], task: Task, offsets: list[int]) -> Holdings:
    records = Records(X=X.astype(np.float32), y=y.astype(np.float32))
    return Holdings(task, stack(records, np.array(offsets), task), sizes=task.sizes)


def answers(
    query: MomentsQuery, X: NDArray[Any], y: NDArray[Any], task: Task, offsets: list[int]
) -> NDArray[np.float64]:
    return holdings(X, y, task, offsets).answer(query, Draws()).vectors


def by_hand(query: MomentsQuery, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """One record at a time, in plain numpy."""
    total: Any = 0.0
    for x, label in zip(X.astype(np.float32).astype(float), y, strict=True):
        z, weight = x, 1.0
        if query.label_scale is not None and query.label_bound is not None:
            clipped = min(max(label, -query.label_bound), query.label_bound)
            z = np.append(x, query.label_scale * clipped)
        if query.theta is not None:
            p = 1 / (1 + np.exp(-x @ query.theta))
            weight = p * (1 - p)
        total = total + weight * np.outer(z, z)
    return triangle(total)


def squared_task(sizes: tuple[int, ...], width: int = 3) -> Task:
    return linear_task(sizes, width, loss=Squared(label_bound=20.0, radius=2.0))


@pytest.mark.parametrize("name", KINDS)
def test_the_answers_are_those_of_a_plain_loop_over_the_records(name: str) -> None:
    query, data = KINDS[name], random_data((30, 50), 3)
    rng = np.random.default_rng(5)
    X, y = data.dataset.train.X, rng.normal(size=80) * 3
    task = squared_task((30, 50))
    found = answers(query, X, y, task, [0, 30, 80])
    assert found.shape == (2, query.answer_width(task))
    for party, part in enumerate((slice(0, 30), slice(30, 80))):
        assert found[party] == pytest.approx(by_hand(query, X[part], y[part]), abs=50 * 4 / UNITS)
    assert np.abs(found).max() <= query.answer_bound(task, 50)


def unit_rows(count: int, size: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, size))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[: count // 2] *= rng.uniform(0, 1, (count // 2, 1))
    return np.concatenate([X * (1 - 2.0**-20), np.eye(size)])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("adjacency", [ONE, ADD])
def test_no_record_moves_the_sum_further_than_its_sensitivity_and_some_as_far(
    name: str, adjacency: Adjacency
) -> None:
    """Brute force over every pair of a pool with perpendicular records of length B in it."""
    query, size = KINDS[name], 3
    pool = unit_rows(30, size, 3)
    if query.theta is not None:  # a weight of ¼ needs a score of 0: x ⟂ θ, and two such x
        first = np.array([2.0, 1.0, 0.0]) / sqrt(5)
        pool = np.concatenate([pool, [first, np.cross(first, THETA / np.linalg.norm(THETA))]])
        pool *= 1 - 2.0**-22
    labels = np.tile([-9.0, 9.0, 2.0, -2.0], len(pool))[: len(pool)]
    if query.label_scale is not None:  # perpendicular z needs x·x′ = −(sY)², so x′ = −x here
        pool = np.concatenate([pool, pool[-1:], -pool[-1:]])
        labels = np.concatenate([labels, [2.0, 2.0]])
    task, start = squared_task((len(pool) + 1,)), unit_rows(4, size, 9)[:4]

    def total(X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(answers(query, X, y, task, [0, len(X)])[0])

    moved = query.sensitivity(task, sizes=task.sizes, adjacency=adjacency)
    assert moved is not None
    base = np.zeros(4)
    sums = [
        total(np.concatenate([start, pool[i : i + 1]]), np.append(base, labels[i]))
        for i in range(len(pool))
    ]
    if adjacency is ADD:
        without = total(start, base)
        farthest = max(float(np.linalg.norm(each - without)) for each in sums)
    else:
        farthest = max(float(np.linalg.norm(a - b)) for a, b in combinations(sums, 2))
    radius = {"features": 1.0, "label": sqrt(2.0), "logistic": 0.5}[name]
    expected = radius**2 * (sqrt(2) if adjacency is ONE else 1)
    assert farthest <= moved <= expected * (1 + 1e-8)
    assert farthest >= 0.99999 * expected
    assert moved >= expected


def test_twice_the_bound_would_be_too_much_and_the_bound_itself_too_little() -> None:
    """The replace-one factor is √2: x ⟂ x′ attains it, and no pair in a fine net exceeds it."""
    task = squared_task((5,), 2)
    net = [np.array([np.cos(t), np.sin(t)]) for t in np.linspace(0, np.pi, 41)]
    sums = [answers(QUERY, x[None] * (1 - 2.0**-22), np.zeros(1), task, [0, 1])[0] for x in net]
    gaps = [float(np.linalg.norm(a - b)) for a, b in combinations(sums, 2)]
    assert 1.4142 < max(gaps) <= sqrt(2)


def test_a_record_adds_the_same_wherever_it_stands() -> None:
    """To the bit, weights included: the answer to all is that to each, added up in integers."""
    data = random_data((500,), 33)
    X, y = data.dataset.train.X, np.linspace(-3, 3, 500)
    theta = np.linspace(-4, 4, 33)
    asked = replace(WEIGHTED, theta=theta, label_scale=1.0, label_bound=1.0)
    task = squared_task((500,), 33)
    (whole,) = answers(asked, X, y, task, [0, 500])
    turned = np.random.default_rng(0).permutation(500)
    assert answers(asked, X[turned], y[turned], task, [0, 500])[0].tobytes() == whole.tobytes()
    scale = (UNITS / asked.radius(task)) ** 2
    single = [answers(asked, X[i : i + 1], y[i : i + 1], task, [0, 1])[0] for i in range(500)]
    matrix = symmetric(whole) * scale
    parts = sum(np.rint(symmetric(each) * scale) for each in single)
    assert np.rint(matrix).tolist() == np.asarray(parts).tolist()


def test_weights_of_many_records_do_not_depend_on_how_they_are_cut() -> None:
    """More than PyTorch shares between threads: one record less moves all others by a place."""
    count = 40_000
    X = np.tile(random_data((500,), 3).dataset.train.X, (count // 500, 1))
    y, task = np.zeros(count), squared_task((count,))
    whole = symmetric(answers(WEIGHTED, X, y, task, [0, count])[0])
    less = symmetric(answers(WEIGHTED, X[1:], y[1:], task, [0, count - 1])[0])
    first = symmetric(answers(WEIGHTED, X[:1], y[:1], task, [0, 1])[0])
    scale = (UNITS / WEIGHTED.radius(task)) ** 2
    assert (np.rint(whole * scale) - np.rint(less * scale) == np.rint(first * scale)).all()


def test_more_records_than_the_size_states_are_clamped_to_the_bound() -> None:
    X = np.tile(np.eye(3)[:1], (50, 1))
    task = squared_task((5,))
    (found,) = answers(QUERY, X, np.zeros(50), task, [0, 50])
    assert found.max() == QUERY.answer_bound(task, 5)


def test_an_unusable_label_or_score_adds_zero() -> None:
    X = np.tile(np.eye(3)[:1], (2, 1))
    batch = stack(Records(X=X.astype(np.float32), y=np.ones(2, np.float32)), np.array([0, 2]),
                  squared_task((2,)))  # fmt: skip
    batch.labels[0] = np.nan
    made = Holdings(squared_task((2,)), batch, sizes=(2,))
    matrix = symmetric(made.answer(LABELLED, Draws()).vectors[0])
    assert matrix[0, 0] == pytest.approx(2.0, abs=8 / UNITS)
    assert matrix[3, 3] == pytest.approx(0.25, abs=8 / UNITS)
    far = replace(WEIGHTED, theta=np.array([1e300, 0.0, -1e300]))
    assert np.isfinite(made.answer(far, Draws()).vectors).all()


# Persons.


def person_answers(rows: list[person_scenes.Visit], task: Task) -> NDArray[np.float64]:
    data = person_scenes.data(rows)
    batch, persons = stack_persons(data.dataset.train, data.offsets, task)
    made = Holdings(task, batch, sizes=task.sizes, persons=persons)
    asked = replace(QUERY, event=replace(EVENT, unit=Unit.PERSON))
    return made.answer(asked, Draws()).vectors


@pytest.mark.parametrize("parties", [1, 2, 4])
@pytest.mark.parametrize("adjacency", [ONE, ADD])
def test_no_person_moves_the_sum_further_than_the_sensitivity(
    parties: int, adjacency: Adjacency
) -> None:
    task, rows = person_scenes.linear_task(parties), person_scenes.visits()
    here = person_answers(rows, task).sum(0)
    gaps = [
        float(np.linalg.norm(person_answers(other, task).sum(0) - here))
        for other in person_scenes.neighbours(rows, adjacency, parties)
    ]
    moved = QUERY.sensitivity(task, sizes=task.sizes, adjacency=adjacency)
    assert moved is not None
    assert max(gaps) <= moved
    assert moved == pytest.approx(parties * (sqrt(2) if adjacency is ONE else 1), rel=1e-6)
    if adjacency is ADD and parties > 1:  # "both" and "all" are at as many, with equal records
        assert max(gaps) >= 0.99 * moved * (0.999**2)


@pytest.mark.parametrize("others", [((1.0, 0.0, 0.0),) * 7, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)) * 5])
def test_a_person_who_leaves_a_crowded_party_for_another_moves_the_sum_no_further(
    others: tuple[tuple[float, ...], ...],
) -> None:
    """Answers were cut off at the declared number, 4, and a sum moved by up to √2.5 for √2."""
    task = person_scenes.linear_task(1, size=4)
    crowd = [(f"person {i}", 0, x, 1.0) for i, x in enumerate(others)]
    here = [*crowd, ("one", 0, (sqrt(0.5), sqrt(0.5), 0.0), 1.0)]
    there = [*crowd, ("another", 1, (sqrt(0.5), -sqrt(0.5), 0.0), 1.0)]
    apart = person_answers(here, task).sum(0) - person_answers(there, task).sum(0)
    moved = QUERY.sensitivity(task, sizes=task.sizes, adjacency=ONE)
    assert moved is not None
    assert 0.999 * sqrt(2) < np.linalg.norm(apart) <= moved < 1.001 * sqrt(2)


def test_a_person_counts_as_the_mean_of_the_records() -> None:
    task, rows = person_scenes.linear_task(1), person_scenes.visits()
    found = person_answers(rows, task)
    expected: list[Any] = [0.0] * person_scenes.PARTIES
    for who in {(row[0], row[1]) for row in rows}:
        own = np.array([row[2] for row in rows if row[:2] == who])
        expected[who[1]] = expected[who[1]] + own.T @ own / len(own)
    for party, matrix in enumerate(expected):
        assert found[party] == pytest.approx(triangle(matrix), abs=1e-4)


# Sums, shares, refusals.


@pytest.mark.parametrize("name", KINDS)
def test_parties_alone_and_all_in_one_process_agree_to_the_bit(name: str) -> None:
    query, sizes = KINDS[name], (7, 1, 300, 40)
    data, task = random_data(sizes, 3), linear_task(sizes, 3)
    total = np.zeros(query.answer_width(task), query.grid.dtype)
    for index in range(len(sizes)):
        total += Party(data.party(index), task=task, sampling=streams(1, "p")).answer(query)
    for workers in (1, 3):
        federation = VectorizedFederation(
            data, task=task, sampling=streams(1, "p"), workers=workers
        )
        assert (federation.sum(query).total == query.grid.decode(total)).all()


def test_shares_of_noise_are_priced_by_the_sensitivity_of_the_sum() -> None:
    task = linear_task((30, 50), 3)
    share = NoiseShare(law="skellam", parameter=2.0**70, minimum=2, colluders=1)
    asked = replace(QUERY, share=share, grid=FixedPoint(step=2.0**-20, bits=64))
    mechanism = share_mechanism(asked, task)
    assert mechanism is not None
    moved = asked.sensitivity(task, sizes=task.sizes, adjacency=ONE)
    assert moved is not None
    assert mechanism.l2_sensitivity >= moved / asked.grid.step + sqrt(6)
    check_query(replace(asked, event=mechanism.event()), task, Policy())
    with pytest.raises(QueryRefused, match="not that of the shares"):
        check_query(asked, task, Policy())


def test_what_it_cannot_be_about_is_refused() -> None:
    softmax = Task(
        model=LinearModel(width=3, classes=4),
        loss=Softmax(classes=4),
        regulariser=0.1,
        feature_bound=1.0,
        sizes=(5, 5),
    )
    check_query(QUERY, softmax, Policy())
    with pytest.raises(QueryRefused, match="one of 4 classes"):
        check_query(LABELLED, softmax, Policy())
    with pytest.raises(QueryRefused, match="linear with one score"):
        check_query(WEIGHTED, softmax, Policy())
    network = replace(softmax, model=MlpModel(widths=(3, 4, 1)), loss=Logistic())
    with pytest.raises(QueryRefused, match="linear with one score"):
        check_query(WEIGHTED, network, Policy())
    with pytest.raises(QueryRefused, match="3 coordinates, one per feature"):
        check_query(replace(WEIGHTED, theta=np.zeros(4)), linear_task((5, 5), 3), Policy())
    with pytest.raises(ValueError, match="must be 'record' or 'person'"):
        replace(QUERY, event=replace(EVENT, unit=Unit.PARTY))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_scale": 1.0}, "label_scale and label_bound must be given together"),
        ({"label_scale": 1.0, "label_bound": -1.0}, "label_bound must be positive"),
        ({"label_scale": 1e80, "label_bound": 1e80}, "label_scale times label_bound must be at"),
        ({"weighting": "probit"}, "weighting must be one of"),
        ({"weighting": "logistic"}, "theta must be given with"),
        ({"theta": np.zeros(3)}, "theta must be given with"),
    ],
)
def test_a_query_that_is_not_whole_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(QUERY, **change)


@pytest.mark.parametrize("name", KINDS)
def test_it_crosses_the_wire_as_it_is(name: str) -> None:
    query = KINDS[name]
    read = from_bytes(to_bytes(query))
    assert isinstance(read, MomentsQuery)
    assert to_bytes(read) == to_bytes(query)
    assert (read.label_scale, read.weighting) == (query.label_scale, query.weighting)
