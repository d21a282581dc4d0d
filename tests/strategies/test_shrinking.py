"""Shrinking a published model: the noise it rests on, what it leaves alone, where it applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.task import PersonBounds, Task
from fedpriv.learning.losses import HuberHinge, Logistic, Softmax, Squared
from fedpriv.learning.models import LinearModel, MlpModel
from fedpriv.strategies.common.auto import score_noise, strength
from fedpriv.strategies.common.optimiser import OptimiserOptions, make_optimiser
from fedpriv.strategies.common.shrinking import (
    Shrink,
    gradient_noise,
    published_noise,
    shrink_by_noise,
    shrinkable,
)
from tests.federation.worlds import (
    SilentFederation,
    build,
    linear_task,
    random_data,
    streams,
    train,
)

SIZES, WIDTH = (300, 120, 450), 400
TASK = linear_task(SIZES, WIDTH, regulariser=1e-5)
NAME = "gradient-perturbation"
SHARES: dict[str, Any] = {"sharing": {"colluding": 0.1, "dropout": 0.0}}
STEPS = OptimiserOptions(learning_rate=0.7, optimiser="momentum", momentum=0.6)


@pytest.mark.parametrize("averaging", ["last", "mean", "tail"])
@pytest.mark.parametrize("optimiser", ["momentum", "sgd"])
@pytest.mark.parametrize("warm_up", [None, 5])
def test_the_noise_of_a_published_model_is_that_of_descents_on_a_quadratic(
    averaging: Any, optimiser: Any, warm_up: int | None
) -> None:
    """20,000 of them: a standard deviation of 1 % of a variance, and 2 curvatures in 9 rounds."""
    options = STEPS.model_copy(
        update={"averaging": averaging, "optimiser": optimiser, "warm_up": warm_up}
    )
    noise, curvature = np.linspace(0.5, 2.0, 9), np.array([0.0, 0.8])
    expected = published_noise(options, noise, curvature)
    steps: Any = make_optimiser(options, TASK, rounds=9)
    random, copies = np.random.default_rng(0), 20_000
    for place, h in enumerate(curvature):
        theta = np.zeros(copies)
        memory = steps.start(theta)
        for index, deviation in enumerate(noise):
            gradient = h * theta + deviation * random.standard_normal(copies)
            theta, memory = steps.step(theta, gradient, memory)
            published = theta if averaging == "last" else memory.average
            assert published.var() == pytest.approx(expected[index, place], rel=0.05)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (NAME, {}),
        (NAME, {"epsilon": 10.0}),
        (NAME, {"adjacency": "add-remove", "sampling_rate": 0.2}),
        (NAME, {"weights": "equal"}),
        (NAME, {"delta": 0.0}),
        (NAME, SHARES),
        ("local-gradient-perturbation", {}),
    ],
)
def test_the_noise_of_a_strategy_is_what_its_factor_rests_on(
    name: str, options: dict[str, Any]
) -> None:
    """Parties answer zero: 400 coordinates of 8 seeds have a variance to within 2.5 %."""
    squares = []
    for seed in range(8):
        strategy: Any = build(name, TASK, seed=seed, **{"epsilon": 1.0, **options})
        train(strategy, SilentFederation(TASK, sampling=streams(seed, "parties")))
        factors = strategy._shrink.factors
        squares.append(float(np.mean((strategy.theta / factors[-1]) ** 2)))
    draws = len(SIZES) if name.startswith("local") else 1
    noise = gradient_noise(
        strategy.plan, TASK, weights=options.get("weights", "proportional"), draws=draws
    )
    optimiser = strategy._optimiser
    inner = getattr(optimiser, "optimiser", optimiser)
    steps = OptimiserOptions(
        learning_rate=inner.learning_rate,
        optimiser="momentum",
        averaging="last" if inner is optimiser else "tail",
    )
    expected = published_noise(steps, noise, np.array([TASK.regulariser]))[-1, 0]
    assert np.mean(squares) == pytest.approx(expected, rel=0.1)
    assert factors == pytest.approx(shrink_by_noise(steps, TASK, noise).factors)


def test_where_curvature_undoes_nothing_a_score_has_the_noise_of_the_rule() -> None:
    strategy: Any = build(NAME, TASK, epsilon=0.3)
    s = strength(strategy.plan, TASK, clip_norm=strategy.plan.clip_norm)
    variance = strategy._shrink.factors[-1] ** -2.0 - 1
    assert 0.7 * score_noise(s, WIDTH) ** 2 < variance < score_noise(s, WIDTH) ** 2


def test_noise_in_scores_is_bounded_over_all_spectra_of_records() -> None:
    """Of a mean Hessian c·Σℓuuᵀ with Σℓ = B², whatever the ℓ, for the last model and the mean."""
    task, noise = linear_task((1000,), 6), np.full(80, 0.4)
    random = np.random.default_rng(1)
    for averaging in ("last", "tail"):
        options = STEPS.model_copy(update={"averaging": averaging})
        most = shrink_by_noise(options, task, noise).factors ** -2.0 - 1
        for _ in range(30):
            squares = random.dirichlet(np.full(6, random.choice([0.1, 1.0, 10.0])))
            variances = published_noise(options, noise, 0.25 * squares + task.regulariser)
            assert ((variances * squares).sum(axis=1) <= 1.05 * most).all()


@pytest.mark.parametrize("epsilon", [0.5, 30.0])
def test_a_shrunk_model_names_the_same_classes_after_the_same_queries(epsilon: float) -> None:
    data = random_data(SIZES, 5)
    task = linear_task(SIZES, 5, regulariser=1e-5)
    models, asked = {}, {}
    for shrink in ("auto", "none"):
        strategy: Any = build(NAME, task, epsilon=epsilon, shrink=shrink)
        engine = VectorizedFederation(data, task=task, sampling=streams(0, "sampling"))
        train(strategy, engine)
        models[shrink], asked[shrink] = strategy.theta, strategy._iterate
        factor = 1.0 if strategy._shrink is None else strategy._shrink.factors[-1]
        models[shrink] = models[shrink] / factor
    assert factor == 1.0
    assert models["auto"] == pytest.approx(models["none"], rel=1e-12)
    assert np.array_equal(asked["auto"], asked["none"])


def test_a_factor_is_a_function_of_plan_and_task_alone() -> None:
    """Other records, and so other answers: the same factors."""
    factors = []
    for seed in (0, 1):
        data = random_data(SIZES, 5, seed=seed)
        task = linear_task(SIZES, 5, regulariser=1e-5)
        shrunk, plain = (
            build(NAME, task, adjacency="add-remove", shrink=shrink) for shrink in ("auto", "none")
        )
        for each in (shrunk, plain):
            train(each, VectorizedFederation(data, task=task, sampling=streams(0, "sampling")))
        factors.append(shrunk.theta / plain.theta)
    assert np.ptp(factors) < 1e-9
    assert 0 < factors[0][0] < 1


def test_a_run_that_is_taken_up_again_publishes_the_same_model() -> None:
    data, task = random_data(SIZES, 5), linear_task(SIZES, 5, regulariser=1e-5)
    engine = VectorizedFederation(data, task=task, sampling=streams(0, "sampling"))
    whole = build(NAME, task, rounds=20)
    train(whole, engine)
    first, second = build(NAME, task, rounds=20), build(NAME, task, rounds=20)
    for _ in range(8):
        query = first.ask()
        assert query is not None
        first.learn(engine.sum(query))
    second.restore(first.checkpoint())
    train(second, engine)
    assert np.array_equal(second.theta, whole.theta)


def test_of_a_perceptron_the_last_layer_is_shrunk_and_with_it_every_score() -> None:
    model = MlpModel(widths=(4, 6, 3))
    task = replace(linear_task(SIZES, 4), model=model, loss=Softmax(classes=3))
    models, factor = [], 1.0
    for shrink in ("auto", "none"):
        strategy: Any = build(NAME, task, epsilon=2.0, shrink=shrink, rounds=30)
        train(strategy, SilentFederation(task, sampling=streams(0, "parties")))
        models.append(torch.from_numpy(np.array(strategy.theta)))
        if strategy._shrink is not None:
            factor = float(strategy._shrink.factors[-1])
    shrunk, plain = models
    assert torch.equal(shrunk[:-21], plain[:-21])
    assert torch.allclose(shrunk[-21:], factor * plain[-21:])
    features = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 4)))
    scores = model.scores(shrunk, features)
    assert torch.allclose(scores, factor * model.scores(plain, features))
    assert 0 < factor < 0.9


LEFT_ALONE: list[tuple[Task, dict[str, Any]]] = [
    (TASK, {"noise_free": True}),
    (TASK, {"shrink": "none"}),
    (TASK, {"learning_rate": 0.5}),
    (TASK, {"optimiser": "momentum"}),
    (TASK, {"optimiser": "adam", "learning_rate": 0.1}),
    (TASK, {"schedule": "dynamic"}),
    (replace(TASK, loss=HuberHinge(smoothing=0.5)), {}),
    (replace(TASK, loss=Squared(radius=1.0, label_bound=1.0), radius=1.0), {}),
    (replace(TASK, start=np.full(WIDTH, 0.01)), {}),
    (
        replace(TASK, persons=PersonBounds(records=2), in_place=False),
        {"unit": "person", "adjacency": "add-remove"},
    ),
]


@pytest.mark.parametrize(("task", "options"), LEFT_ALONE)
def test_a_model_is_left_alone_where_the_rule_has_nothing_to_say(
    task: Task, options: dict[str, Any]
) -> None:
    assert build(NAME, task, **options)._shrink is None  # type: ignore[attr-defined]


def test_only_where_scores_become_probabilities() -> None:
    assert shrinkable(TASK)
    assert shrinkable(replace(TASK, loss=Softmax(classes=3), model=LinearModel(width=4, classes=3)))
    assert not shrinkable(replace(TASK, loss=HuberHinge(smoothing=0.5)))
    assert shrinkable(replace(TASK, loss=Logistic(), model=MlpModel(widths=(WIDTH, 3, 1))))


def test_what_cannot_be_shrunk_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        Shrink(factors=np.array([0.5, 1.5]))
    with pytest.raises(ValueError, match="first must be"):
        Shrink(factors=np.array([0.5]), first=-1)
    for changed in ({"learning_rate": "auto"}, {"optimiser": "adam"}):
        with pytest.raises(ValueError, match="options must have"):
            published_noise(STEPS.model_copy(update=changed), np.ones(2), np.zeros(1))
