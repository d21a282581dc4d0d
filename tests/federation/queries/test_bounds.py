"""What one record can do to a sum, tried: never more than the sensitivity that noise has."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import Draws
from fedpriv.federation.party.stack import stack
from fedpriv.federation.queries.bounds import (
    finest_grid,
    fits,
    gradient_precision,
    gradient_sensitivity,
    grid_of,
    model_sensitivity,
    objective_problem,
)
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery
from fedpriv.federation.queries.local_noise import LocalNoise, rescaled, sensitivity_of
from fedpriv.federation.task import WEIGHTS
from fedpriv.learning.losses import Softmax, Squared
from fedpriv.learning.models import LinearModel
from fedpriv.learning.rounding_error import rounding_sensitivity
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms import DiscreteLaplaceMechanism, GaussianMechanism
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import build, linear_task, party_data, streams

if TYPE_CHECKING:
    from fedpriv.federation.task import Task, Weights

ONE, TWO = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
EVENT = GaussianEvent(adjacency=ONE, relative_noise=2.0)
SIZES = (5, 9)
WIDTH = 3


def quantised(
    query: GradientQuery | ErmQuery, task: Task, X: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The integer sum that the parties' records X, y lead to."""
    sizes = (len(y) - task.sizes[1], task.sizes[1])
    data = party_data(X, y, sizes)
    batch = stack(data.dataset.train, data.offsets, task)
    answers = Holdings(task, batch, sizes=task.sizes).answer(query, Draws()).vectors
    return query.grid.decode(query.grid.encode_sum(answers))


def neighbours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Records, and the same with the first exchanged for one as different as can be."""
    X = rng.normal(size=(sum(SIZES), WIDTH))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-6)
    y = np.where(rng.random(sum(SIZES)) < 0.5, 1.0, -1.0)
    other_X, other_y = X.copy(), y.copy()
    other_X[0] = -X[0]
    return X, y, other_X, other_y


@pytest.mark.parametrize(
    ("adjacency", "weights"), [(ONE, "equal"), (ONE, "proportional"), (TWO, "proportional")]
)
def test_one_record_moves_a_clipped_sum_by_no_more_than_its_sensitivity(
    adjacency: Adjacency, weights: Weights
) -> None:
    rng = np.random.default_rng(0)
    task, clip, grid = linear_task(SIZES, WIDTH), 0.05, FixedPoint(step=2.0**-12)
    limit = gradient_sensitivity(task, clip_norm=clip, adjacency=adjacency)
    limit += sqrt(WIDTH) * grid.step
    largest = 0.0
    for _ in range(200):
        X, y, other_X, other_y = neighbours(rng)
        query = GradientQuery(
            run="r",
            round=0,
            grid=grid,
            event=EVENT,
            theta=3 * rng.normal(size=WIDTH),
            clip_norm=clip,
            weights=weights,
        )
        one = quantised(query, task, X, y)
        two = (
            quantised(query, task, other_X, other_y)
            if adjacency is ONE
            else quantised(query, replace(task, sizes=SIZES), X[1:], y[1:])
        )
        largest = max(largest, float(np.linalg.norm(one - two)) * grid.step)
    assert largest <= limit
    # It is attained, so a doubled clip would be caught, as would a halved sensitivity.
    if weights == "proportional":
        assert largest > 0.95 * adjacency.sum_sensitivity * clip


def test_a_doubled_clip_is_caught_by_the_same_trial() -> None:
    rng = np.random.default_rng(0)
    task, grid = linear_task(SIZES, WIDTH), FixedPoint(step=2.0**-12)
    limit = gradient_sensitivity(task, clip_norm=0.05, adjacency=ONE) + sqrt(WIDTH) * grid.step
    X, y, other_X, other_y = neighbours(rng)
    query = GradientQuery(
        run="r", round=0, grid=grid, event=EVENT, theta=rng.normal(size=WIDTH), clip_norm=0.1
    )
    moved = quantised(query, task, X, y) - quantised(query, task, other_X, other_y)
    assert np.linalg.norm(moved) * grid.step > limit


@pytest.mark.parametrize("weights", ["equal", "proportional"])
def test_one_record_moves_an_average_of_minimisers_by_no_more_than_its_sensitivity(
    weights: Weights,
) -> None:
    rng = np.random.default_rng(1)
    task, grid = linear_task(SIZES, WIDTH, regulariser=0.5), FixedPoint(step=2.0**-24)
    limit = model_sensitivity(
        task, regulariser=0.5, tolerance=1e-9, weights=weights, sizes=SIZES, step=grid.step
    )
    limit += sqrt(WIDTH) * grid.step
    largest = 0.0
    for _ in range(50):
        X, y, other_X, other_y = neighbours(rng)
        X[:5], other_X[1:5] = X[0], X[0]  # a party of one mind, but for the record in question
        query = ErmQuery(
            run="r",
            round=0,
            grid=grid,
            event=EVENT,
            regulariser=0.5,
            tolerance=1e-9,
            weights=weights,
        )
        moved = quantised(query, task, X, y) - quantised(query, task, other_X, other_y)
        largest = max(largest, float(np.linalg.norm(moved)) * grid.step)
    assert limit / 4 < largest <= limit


def test_sensitivities_are_the_published_ones_but_for_rounding() -> None:
    task = linear_task((500,) * 100, 1, regulariser=0.01)
    assert gradient_sensitivity(task, clip_norm=1.0, adjacency=ONE) == pytest.approx(2.0, rel=2e-3)
    assert gradient_sensitivity(task, clip_norm=1.0, adjacency=TWO) == pytest.approx(1.0, rel=2e-2)
    for weights in ("equal", "proportional"):
        assert model_sensitivity(
            task, regulariser=0.01, tolerance=0.0, weights=weights, sizes=task.sizes, step=1.0
        ) == pytest.approx(2 / (100 * 500 * 0.01))


def test_rounding_never_costs_more_than_two_percent() -> None:
    """In float32 a party of a million would need 16 times the noise under add-remove."""
    for size in (10, 600, 10**4, 10**6):
        task = linear_task((size, 5), 1)
        for adjacency in (ONE, TWO):
            moved = gradient_sensitivity(task, clip_norm=3.0, adjacency=adjacency)
            assert 1 < moved / (3 * adjacency.sum_sensitivity) <= 1.02
        assert gradient_precision(task, ONE) is torch.float32
        assert gradient_precision(task, TWO) is (torch.float32 if size <= 600 else torch.float64)


def test_rounding_under_add_remove_is_that_of_twice_the_declared_records() -> None:
    """A party may hold more than are declared, and its sum then rounds more often."""
    task = linear_task((50, 400), 1)
    rounding = gradient_sensitivity(task, clip_norm=1.0, adjacency=TWO) - 1
    most = rounding_sensitivity(clip_norm=1.0, records=800, dtype=torch.float32, replace_one=False)
    assert rounding == pytest.approx(most, rel=1e-9)


def test_proportional_weights_never_cost_more_than_equal_ones() -> None:
    task = linear_task((10, 969, 100), 1)
    one, other = (
        model_sensitivity(
            task, regulariser=0.1, tolerance=0.0, weights=weights, sizes=task.sizes, step=1.0
        )
        for weights in ("proportional", "equal")
    )
    assert one == pytest.approx(2 / (1079 * 0.1))
    assert other == pytest.approx(2 / (3 * 10 * 0.1))


def test_equal_weights_leave_the_sensitivity_of_a_sum_of_gradients_as_it_is() -> None:
    task = linear_task((10, 40), 1)
    assert [task.gradient_weight("equal", n) for n in task.sizes] == [1.0, 0.25]
    assert task.gradient_count("equal", task.sizes) == 20
    assert task.gradient_count("proportional", task.sizes) == 50
    grid = FixedPoint(step=2.0**-20, bits=64)
    alike, by_size = (
        GradientQuery(
            run="r",
            round=0,
            grid=grid,
            event=EVENT,
            theta=np.zeros(1),
            clip_norm=1.0,
            weights=weights,
        ).sensitivity(task, sizes=task.sizes, adjacency=Adjacency.REPLACE_ONE)
        for weights in WEIGHTS
    )
    assert alike == by_size


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=5),
    clip=st.floats(1e-3, 1e3),
    bits=st.sampled_from([32, 64]),
    exponent=st.integers(-40, 10),
)
def test_a_sum_that_fits_cannot_wrap(
    sizes: list[int], clip: float, bits: int, exponent: int
) -> None:
    task = linear_task(tuple(sizes), 1)
    grid = FixedPoint(step=2.0**exponent, bits=bits)
    query = GradientQuery(
        run="r", round=0, grid=grid, event=EVENT, theta=np.zeros(1), clip_norm=clip
    )
    worst = sum(
        int(np.rint(query.answer_bound(task, n) / grid.step).clip(max=2**70)) for n in sizes
    )
    if fits(query, task):
        assert worst <= 2 ** (bits - 1) - 1


def test_grids_hold_what_they_are_made_for() -> None:
    assert grid_of(step=1.0, bound=2.0**30, parties=2).bits == 32
    assert grid_of(step=1.0, bound=2.0**31, parties=2).bits == 64
    fine = finest_grid(bound=1e5)
    assert 1e5 / fine.step <= 2.0**62 < 4e5 / fine.step
    assert fine.bits == 64


def test_local_noise_is_calibrated_to_the_partys_own_answer() -> None:
    task = linear_task((10, 40), 4, regulariser=0.1)
    noise = LocalNoise(law="gaussian", relative_noise=3.0, adjacency=ONE)
    grid = FixedPoint(step=2.0**-30)
    query = ErmQuery(
        run="r",
        round=0,
        grid=grid,
        event=EVENT,
        regulariser=0.1,
        tolerance=1e-12,
        weights="equal",
        local=noise,
    )
    for size in task.sizes:
        mechanism = query.local_mechanism(task, size)
        assert isinstance(mechanism, GaussianMechanism)
        assert mechanism.stddev == pytest.approx(3.0 * 0.5 * 2 / (size * 0.1), rel=1e-6)


def test_noise_is_rescaled_at_the_same_cost() -> None:
    planned = GaussianMechanism(sensitivity=2.0, stddev=5.0, adjacency=ONE)
    moved = rescaled(planned, sensitivity=3.0)
    assert sensitivity_of(moved) == 3.0
    assert moved.noise_stddev == 7.5
    assert moved.event() == planned.event()
    assert LocalNoise.like(planned).relative_noise == 2.5
    with pytest.raises(ValueError, match="no single L2 sensitivity"):
        rescaled(
            DiscreteLaplaceMechanism(sensitivity=1, epsilon=1.0, adjacency=ONE), sensitivity=1.0
        )


def test_the_squared_loss_is_bounded_wherever_the_model_is() -> None:
    task = linear_task((3,), 2, loss=Squared(radius=2.0, label_bound=1.0))
    assert task.gradient_bound(np.zeros(2)) == 3.0
    assert task.gradient_bound(np.array([30.0, 40.0])) == 51.0


def test_objective_perturbation_needs_one_score_a_record() -> None:
    task = replace(
        linear_task((3,), 2), model=LinearModel(width=2, classes=3), loss=Softmax(classes=3)
    )
    with pytest.raises(ValueError, match="one score per record"):
        objective_problem(task, 3, regulariser=0.1, tolerance=1e-9)


def test_streams_of_the_worlds_are_independent_of_one_another() -> None:
    assert streams(0, "a")(1).words(1) != streams(0, "a")(2).words(1)


def test_where_records_change_places_every_party_may_be_rounded_otherwise() -> None:
    """Numbers of records decide who is solved together, and so all last digits; noise covers it."""
    task = replace(linear_task((30,) * 50, 4, regulariser=0.5), in_place=False)
    facts: dict[str, Any] = {"regulariser": 0.5, "weights": "equal", "sizes": task.sizes}
    exact, rounded = (
        model_sensitivity(task, **facts, tolerance=0.0, step=step) for step in (0.0, 1e-6)
    )
    assert rounded - exact == pytest.approx(49 * sqrt(4) * 1e-6)
    # Every minimiser may be any of those that its tolerance admits, and all of them at once.
    loose = model_sensitivity(task, **facts, tolerance=1e-3, step=0.0)
    assert 2 * 1e-3 / 0.5 <= loose - exact <= (1 + 1 / 50) * 2 * 1e-3 / 0.5 * (1 + 1e-9)
    assert model_sensitivity(task, **{**facts, "sizes": (30,)}, tolerance=0.0, step=1.0) == (
        model_sensitivity(task, **{**facts, "sizes": (30,)}, tolerance=0.0, step=0.0)
    )
    plan = build("output-perturbation", task, weights="equal").plan
    assert plan is not None
    (mechanism,) = plan.mechanisms
    assert isinstance(mechanism, GaussianMechanism)
    assert exact + 50 * sqrt(4) * plan.step <= mechanism.sensitivity <= 1.02 * exact
