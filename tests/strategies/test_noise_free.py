"""Noise-free twins (ε = ∞): every strategy without its noise, and otherwise as it is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv import strategies
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.base import Run
from fedpriv.learning.clipping.clipped_sum import CLIP_MARGIN
from fedpriv.learning.models import MlpModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.strategies import NoisyGradients, NoisyOptions, Setup, StrategyInfo, plan_gradients
from tests.federation.queries.person_scenes import data, visits
from tests.federation.queries.test_person_sensitivity import make_task
from tests.federation.worlds import (
    PRIVATE,
    build,
    linear_task,
    party_data,
    random_data,
    streams,
    train,
)
from tests.strategies.twins import OPTIONS, SIZES, TASK, WIDTH, Unused, twin

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

DATA = random_data(SIZES, WIDTH)


def federation(task: Task = TASK) -> VectorizedFederation:
    return VectorizedFederation(DATA, task=task, sampling=streams(0, "parties"))


@pytest.mark.parametrize("name", PRIVATE)
def test_no_noise_is_drawn_by_anybody_and_nothing_is_promised(name: str) -> None:
    strategy = twin(name)
    silent = VectorizedFederation(DATA, task=TASK, sampling=lambda _: Unused())  # type: ignore[arg-type, return-value]
    while (query := strategy.ask()) is not None:
        assert query.event is None
        assert not query.noise_by_party
        strategy.learn(silent.sum(query))
    assert strategy.plan is None
    assert np.isfinite(strategy.theta).all()
    assert strategy.theta.any()


@pytest.mark.parametrize("name", PRIVATE)
def test_the_private_strategy_does_draw(name: str) -> None:
    """Teeth: with a budget, the same stream is asked for noise, or the parties' is."""
    strategy = build(name, TASK, **OPTIONS.get(name, {}))
    strategy.attach(Run(name="run", noise=lambda _: Unused()))  # type: ignore[arg-type, return-value]
    silent = VectorizedFederation(DATA, task=TASK, sampling=lambda _: Unused())  # type: ignore[arg-type, return-value]
    with pytest.raises(AssertionError, match="noise was drawn"):
        train(strategy, silent)


@pytest.mark.parametrize(
    ("name", "options", "reference", "its"),
    [
        ("output-perturbation", {}, "non-private", {}),
        ("output-perturbation", {"weights": "equal"}, "non-private", {"weights": "equal"}),
        ("output-perturbation", {"regulariser": "optimal"}, "non-private", {}),
        ("output-perturbation", {"fit": "joint"}, "pooled", {}),
        ("objective-perturbation", {}, "pooled", {}),
        ("local-output-perturbation", {}, "non-private", {}),
        ("local-objective-perturbation", {"weights": "equal"}, "non-private", {"weights": "equal"}),
        ("pathak", {}, "non-private", {"weights": "equal"}),
    ],
)
def test_a_minimiser_without_noise_is_the_exact_one(
    name: str, options: dict[str, Any], reference: str, its: dict[str, Any]
) -> None:
    ours = train(twin(name, **options), federation())
    exact = train(build(reference, TASK, **its), federation())
    assert np.array_equal(ours.theta, exact.theta)


def descent(task: Task, *, clip: float, rounds: int, rate: float) -> np.ndarray[Any, Any]:
    """Clipped gradient descent, written out; the parties clip a little below C."""
    X, y = DATA.dataset.train.X.astype(np.float64), DATA.dataset.train.y.astype(np.float64)
    theta = np.zeros(WIDTH)
    for _ in range(rounds):
        gradients = (-y / (1 + np.exp(y * (X @ theta))))[:, None] * X
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients * np.minimum(1, (1 - CLIP_MARGIN) * clip / norms)
        theta = theta - rate * (clipped.mean(axis=0) + task.regulariser * theta)
    return theta


@pytest.mark.parametrize("name", ["gradient-perturbation", "local-gradient-perturbation"])
def test_descent_without_noise_is_descent_on_clipped_gradients(name: str) -> None:
    expected = descent(TASK, clip=0.3, rounds=7, rate=1 / TASK.smoothness)
    ours = train(twin(name), federation()).theta
    assert ours == pytest.approx(expected, rel=1e-5)  # gradients are computed in float32
    unclipped = descent(TASK, clip=9.0, rounds=7, rate=1 / TASK.smoothness)
    assert ours != pytest.approx(unclipped, rel=1e-2)  # teeth: clipping bias stays


def test_the_grid_of_a_sum_without_noise_is_the_finest() -> None:
    query = twin("gradient-perturbation").ask()
    assert query is not None
    assert query.grid.bits == 64
    assert query.grid.step < 1e-15
    coarse = build("gradient-perturbation", TASK).ask()
    assert coarse is not None
    assert coarse.grid.step > 1e-9  # of the private run: as fine as its noise deserves


@pytest.mark.parametrize(
    "options",
    [
        {"sampling_rate": 0.4},
        {"sampling_rate": {"first": 0.2, "factor": 2.0, "every": 3}},
    ],
)
def test_sampling_is_no_noise_and_stays(options: dict[str, Any]) -> None:
    """The same sample as in the private run: what is left out is the noise alone."""
    seen: list[float] = []
    strategy = twin("gradient-perturbation", adjacency="add-remove", **options)
    private = build(
        "gradient-perturbation", TASK, adjacency="add-remove", rounds=7, clip=0.3, **options
    )
    assert strategy.releases == private.releases == 7
    world = federation()
    while (query := strategy.ask()) is not None:
        asked = private.ask()
        assert isinstance(query, GradientQuery)
        assert isinstance(asked, GradientQuery)
        assert query.sampling_rate == asked.sampling_rate
        seen.append(query.sampling_rate)
        answer = world.sum(query)
        strategy.learn(answer)
        private.learn(replace(answer, step=asked.grid.step))
    assert seen[0] < 1


def test_the_bound_of_adaptive_clipping_follows_the_true_quantile() -> None:
    strategy = train(twin("adaptive-clipping", rounds=200, clip_rate=0.3), federation())
    X, y = DATA.dataset.train.X.astype(np.float64), DATA.dataset.train.y.astype(np.float64)
    norms = np.linalg.norm(X, axis=1) / (1 + np.exp(y * (X @ strategy.theta)))
    clip: float = strategy._clip  # type: ignore[attr-defined]
    assert np.mean(norms <= clip) == pytest.approx(0.5, abs=0.03)


def test_agd_ends_where_no_step_helps_and_not_before() -> None:
    """Nothing is gained by measuring an exact gradient again."""
    strategy = train(twin("agd", rounds=500, clip=9.0, loss_clip=9.0), federation())
    assert strategy.stopped.startswith("no step along the exact gradient")
    assert strategy.round < 500
    exact = train(build("pooled", TASK), federation()).theta
    assert strategy.theta == pytest.approx(exact, abs=0.2)  # candidates are a tenth apart at first


@pytest.mark.parametrize("name", ["gradient-perturbation", "adaptive-clipping", "agd"])
def test_networks_have_twins(name: str) -> None:
    task = replace(TASK, model=MlpModel(widths=(WIDTH, 3, 1)))
    options = {} if name == "agd" else {"learning_rate": 0.5}
    strategy = twin(name, task, **options)
    start = strategy.theta.copy()
    train(strategy, federation(task))
    assert not np.array_equal(strategy.theta, start)


@pytest.mark.parametrize("name", ["gradient-perturbation", "adaptive-clipping", "agd"])
def test_a_twin_is_taken_up_again(name: str) -> None:
    whole = train(twin(name), federation())
    half, again = twin(name), twin(name)
    world = federation()
    while half.round < 3 and (query := half.ask()) is not None:
        half.learn(world.sum(query))
    again.restore(half.checkpoint())
    assert np.array_equal(train(again, world).theta, whole.theta)


def test_shares_of_noise_are_left_out_too() -> None:
    strategy = twin("gradient-perturbation", sharing={"dropout": 0.3})
    query = strategy.ask()
    assert query is not None
    assert query.share is None


def test_the_twin_of_a_run_for_persons_clips_persons() -> None:
    """A person's gradients are summed, and clipped as one, without any noise, too."""
    clip, rows, task = 0.1, visits(), make_task()
    world = VectorizedFederation(data(rows), task=task, sampling=streams(0, "s"))
    strategy = twin(
        "gradient-perturbation", task, unit="person", rounds=1, clip=clip, learning_rate=1.0
    )
    moved = train(strategy, world).theta * -task.records
    at_home: dict[tuple[str, int], Any] = {}
    for who, party, x, y in rows:  # at zero the gradient of a record is -yx/2
        at_home[who, party] = at_home.get((who, party), 0) - y * np.array(x) / 2
    norms = {key: float(np.linalg.norm(vector)) for key, vector in at_home.items()}
    assert max(norms.values()) > 5 * clip
    factors = {key: min(1, (1 - CLIP_MARGIN) * clip / norm) for key, norm in norms.items()}
    expected = sum(factors[key] * vector for key, vector in at_home.items())
    assert moved == pytest.approx(expected, rel=1e-4)


def test_a_twin_asks_for_no_unit_that_its_strategy_could_protect() -> None:
    """So that strategies for records and for parties can be compared without their noise."""
    ask = partial(
        strategies.build,
        "gradient-perturbation",
        task=TASK,
        adjacency="replace-one",
        options={},
        noise=streams(0, "noise"),
        run="run",
        unit="party",
    )
    assert ask(budget=None, noise_free=True).plan is None
    with pytest.raises(ValueError, match="unit must be 'record'"):
        ask(budget=Budget(epsilon=1.0, delta=1e-6))


class Plain(NoisyGradients):
    def _update(self, release: Any) -> None:
        self._theta = self._theta - release


def setup(**changes: Any) -> Setup:
    run = Run(name="r", noise=streams(0, "noise"))
    made = Setup(task=TASK, adjacency=Adjacency.REPLACE_ONE, run=run, noise_free=True)
    return replace(made, **changes)


def test_a_guests_strategy_has_a_twin() -> None:
    info = StrategyInfo(
        name="mine.py:Plain (sha256 1a2b3c4d…)",
        summary="",
        noise_by="server",
        convex_only=False,
        options=NoisyOptions,
        guest=Plain.build,
    )
    strategy = strategies.build(
        info,
        task=replace(TASK, regulariser=0.0),
        budget=None,
        noise_free=True,
        adjacency="replace-one",
        options={"rounds": 7, "clip": 0.3},
        noise=lambda _: Unused(),  # type: ignore[arg-type, return-value]
        run="run",
    )
    assert strategy.plan is None
    expected = descent(replace(TASK, regulariser=0.0), clip=0.3, rounds=7, rate=1.0)
    assert train(strategy, federation()).theta == pytest.approx(expected, rel=1e-5)


def test_a_guest_cannot_bring_a_twin_where_noise_was_promised() -> None:
    exact = plan_gradients(setup(), rounds=3, clip_norm=1.0)
    assert isinstance(exact, NoiseFree)
    promised = setup(noise_free=False, allowance=Budget(epsilon=1.0, delta=1e-6))
    with pytest.raises(ValueError, match="plan must be a FixedPlan of Gaussian mechanisms"):
        Plain(setup=promised, options=NoisyOptions(), plan=exact)
    noisy = plan_gradients(promised, rounds=3, clip_norm=1.0)
    with pytest.raises(ValueError, match="budget must be given"):
        Plain(setup=setup(), options=NoisyOptions(), plan=noisy)


def test_equal_weights_are_the_parties_mean() -> None:
    """Three parties of different sizes and different records: the twin keeps the weights."""
    X = np.eye(3)[[0, 0, 0, 1, 2, 2]] * 0.9
    data = party_data(X, np.array([1.0, 1, 1, 1, 1, 1]), (3, 1, 2))
    task = linear_task((3, 1, 2), 3)
    world = VectorizedFederation(data, task=task, sampling=streams(0, "parties"))
    strategy = twin("gradient-perturbation", task, rounds=1, weights="equal", clip=9.0)
    moved = train(strategy, world).theta
    assert moved[0] == pytest.approx(moved[1], rel=1e-6)
    assert moved[1] == pytest.approx(moved[2], rel=1e-6)
