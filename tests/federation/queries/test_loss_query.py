"""Sums of clipped losses, and counts of short gradients: exact integers, and how far they move."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.party import Party
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.kinds import GradientQuery, LossQuery, Query
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, party_data, random_data, streams

SIZES, WIDTH = (7, 1, 12), 3
TASK = linear_task(SIZES, WIDTH)
DATA = random_data(SIZES, WIDTH)
PURE = PureEvent(adjacency=Adjacency.ADD_REMOVE, epsilon=0.1)
NOISY = GaussianEvent(adjacency=Adjacency.REPLACE_ONE, relative_noise=1.0)
GRID = FixedPoint(step=2.0**-12)
POINTS = np.array([[0.0, 0, 0], [4.0, -9, 2], [-30.0, 50, 7]])


def loss_query(points: np.ndarray = POINTS, clip: float = 1.5) -> LossQuery:
    return LossQuery(run="r", round=0, grid=GRID, event=PURE, points=points, clip=clip)


def gradient_query(**options: Any) -> GradientQuery:
    values: dict[str, Any] = {"theta": POINTS[1], "clip_norm": 0.3, **options}
    return GradientQuery(run="r", round=0, grid=GRID, event=NOISY, **values)


def federation(data: Any = DATA, task: Any = TASK) -> VectorizedFederation:
    return VectorizedFederation(data, task=task, sampling=streams(0, "p"))


def exact_losses(clip: float) -> np.ndarray:
    X, y = DATA.dataset.train.X, DATA.dataset.train.y
    margins = y[:, None] * (X.astype(np.float64) @ POINTS.T)
    return np.asarray(np.minimum(np.logaddexp(0, -margins), clip))


def test_losses_are_clipped_rounded_down_and_summed() -> None:
    found = federation().sum(loss_query())
    exact = exact_losses(1.5).sum(0)
    assert found.total.shape == (3,)
    assert (found.value <= exact + 1e-5).all()
    assert (found.value > exact - sum(SIZES) * GRID.step - 1e-5).all()


def test_the_parties_alone_answer_what_they_answer_stacked() -> None:
    for query in (loss_query(), gradient_query(counting=0.5)):
        alone = np.zeros(1, np.int64)
        for j, size in enumerate(SIZES):
            first = sum(SIZES[:j])
            records = DATA.dataset.train.take(slice(first, first + size))
            party = Party(records, task=TASK, sampling=streams(0, "p"))
            alone = alone + query.grid.decode(party.answer(query))
        assert (federation().sum(query).total == alone).all()


@pytest.mark.parametrize("clip", [0.4, 1.0, 3.0])
def test_no_record_moves_a_sum_of_losses_by_more_than_the_clip(clip: float) -> None:
    """Brute force over replaced records, exactly: integers have no rounding to excuse."""
    rng = np.random.default_rng(1)
    X, y = DATA.dataset.train.X, DATA.dataset.train.y.astype(np.float64)
    query = loss_query(points=10 * rng.normal(size=(5, WIDTH)), clip=clip)
    before = federation().sum(query).value
    reached = 0.0
    for index, sign in product(range(len(X)), (1, -1)):
        other_X, other_y = X.copy(), y.copy()
        other_X[index], other_y[index] = sign * np.eye(WIDTH)[index % WIDTH], -y[index]
        after = federation(party_data(other_X, other_y, SIZES)).sum(query).value
        reached = max(reached, float(np.abs(after - before).max()))
    assert 0.3 * clip < reached <= clip


def test_one_record_more_lowers_no_sum_of_losses() -> None:
    """What makes a noisy-min under add-remove adjacency cost ε and not 2ε."""
    X, y = DATA.dataset.train.X, DATA.dataset.train.y
    more = (SIZES[0] + 1, *SIZES[1:])
    grown = party_data(np.vstack([np.eye(WIDTH)[:1], X]), np.append(1.0, y), more)
    after = federation(grown, replace(TASK, sizes=more)).sum(loss_query()).total
    assert (after >= federation().sum(loss_query()).total).all()


@pytest.mark.parametrize("points", [1, 2, 21])
def test_the_loss_of_a_record_does_not_depend_on_its_place(points: int) -> None:
    """A sum without the first record is the sum with it, less what it counts alone: exactly."""
    width, n = 105, 401
    data = random_data((n,), width)
    X, y = data.dataset.train.X, data.dataset.train.y.astype(np.float32)
    query = loss_query(np.random.default_rng(1).normal(size=(points, width)) * 9, clip=30.0)
    query = replace(query, grid=FixedPoint(step=2.0**-20, bits=64))
    whole, first, rest = (
        federation(
            party_data(X[rows], y[rows], (len(X[rows]),)), linear_task((len(X[rows]),), width)
        )
        .sum(query)
        .total
        for rows in (slice(None), slice(0, 1), slice(1, None))
    )
    assert (whole == first + rest).all()


def test_losses_that_are_no_numbers_count_as_the_clip() -> None:
    huge = np.full((1, WIDTH), 1e300)  # scores overflow in float32
    found = federation().sum(loss_query(points=huge)).value
    assert 0 <= float(found[0]) <= 1.5 * sum(SIZES)


def test_networks_have_losses_too() -> None:
    task = replace(TASK, model=MlpModel(widths=(WIDTH, 2, 1)), loss=Logistic())
    points = np.random.default_rng(0).normal(size=(4, task.dimension))
    assert federation(task=task).sum(loss_query(points=points)).total.shape == (4,)


def test_a_counted_gradient_ends_with_the_number_of_short_ones() -> None:
    plain = federation().sum(gradient_query())
    counted = federation().sum(gradient_query(counting=0.5))
    in_units = federation().sum(gradient_query()).value / 0.3
    np.testing.assert_allclose(counted.value[:-1], in_units, atol=2 * len(SIZES) * GRID.step / 0.3)
    below = round((1 - plain.diagnostics["clipped"]) * sum(SIZES))
    assert counted.value[-1] == 0.5 * (below - sum(SIZES) / 2)
    assert 0 < below < sum(SIZES)


def test_scaled_coordinates_are_clipped_and_summed_in_place_of_gradients() -> None:
    centre, scale = np.array([0.01, -0.02, 0.03]), np.array([0.5, 1.0, 4.0])
    found = federation().sum(gradient_query(centre=centre, scale=scale)).value
    X, y = DATA.dataset.train.X.astype(np.float64), DATA.dataset.train.y
    slopes = -y / (1 + np.exp(y * (X @ POINTS[1])))
    rows = (slopes[:, None] * X - centre) / scale
    rows *= np.minimum(1, 0.3 / np.linalg.norm(rows, axis=1, keepdims=True))
    np.testing.assert_allclose(found, rows.sum(0), atol=sum(SIZES) * 0.3 * 3e-4)


QUERIES: list[Query] = [
    loss_query(),
    gradient_query(counting=0.5, centre=np.ones(3), scale=np.full(3, 2.0)),
    gradient_query(scale=np.full(3, 2.0)),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.kind)
def test_the_new_queries_survive_the_wire(query: Query) -> None:
    again = from_bytes(to_bytes(query))
    assert to_bytes(again) == to_bytes(query)
    for name in ("points", "theta", "centre", "scale"):
        one, other = getattr(query, name, None), getattr(again, name, None)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.kind)
def test_bytes_more_or_less_are_refused(query: Query) -> None:
    data = to_bytes(query)
    for wrong in (data[:-8], data + bytes(8)):
        with pytest.raises(ValueError, match=r"malformed|canonical"):
            from_bytes(wrong)


def test_a_party_refuses_points_of_another_model() -> None:
    with pytest.raises(QueryRefused, match="points must have 3 coordinates"):
        check_query(loss_query(points=np.zeros((2, 4))), TASK, Policy())
    fine = replace(loss_query(), grid=FixedPoint(step=2.0**-30))
    with pytest.raises(QueryRefused, match="could wrap around"):
        check_query(replace(fine, clip=100.0), TASK, Policy())
    with pytest.raises(QueryRefused, match="does not answer queries of kind 'loss'"):
        check_query(loss_query(), TASK, Policy(queries=("gradient",)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: loss_query(points=np.zeros(3)), "points must be finite vectors"),
        (lambda: loss_query(points=np.full((1, 3), np.nan)), "points must be finite vectors"),
        (lambda: loss_query(clip=0.0), "clip must be positive"),
        (lambda: gradient_query(scale=np.array([1.0, 0.0, 1.0])), "scale must be positive"),
        (lambda: gradient_query(centre=np.zeros(2)), "centre must be a vector, got shape"),
        (lambda: gradient_query(counting=0.5, weights="equal"), "counting must be None"),
        (lambda: gradient_query(counting=1.1 * GRID.step), "an even multiple of the grid's step"),
        (lambda: gradient_query(counting=0.0), "counting must be positive"),
    ],
)
def test_malformed_queries_are_refused_by_name(make: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()


def test_counts_of_a_sample_are_those_of_its_records() -> None:
    """Every record in the sample is counted once, with its own party."""
    event = replace(NOISY, adjacency=Adjacency.ADD_REMOVE)
    query = replace(gradient_query(counting=2.0, clip_norm=5.0), event=event, sampling_rate=0.5)
    total = federation().sum(query)  # none is longer than 5: κ/2 = 1 for each in the sample
    assert 0 < total.value[-1] < sum(SIZES)
