"""On a quadratic the theory of schedules is exact, and runs gain what it predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import f as f_law

from fedpriv.privacy.schedules import (
    Dynamic,
    MomentumAware,
    descent_influence,
    momentum_step_limit,
)
from tests.federation.worlds import build, linear_task, train
from tests.statistical import FALSE_FAILURE
from tests.strategies.test_theory import LAMBDA, WIDTH, quadratic

ROUNDS, RATE = 20, 6.0
CURVATURE = 1 / WIDTH + LAMBDA
GAMMA = (1 - RATE * CURVATURE) ** 2  # exact for a quadratic of one curvature; 1 − ηh is the bound
RUNS = 40
TASK = linear_task((30, 20), 4, regulariser=0.05)


def excess(schedule: Any) -> np.ndarray:
    """What noise adds to the last model, run by run: the excess risk is h/2 times its square."""
    federation, targets = quadratic()
    exact = targets / WIDTH / CURVATURE * (1 - (1 - RATE * CURVATURE) ** ROUNDS)
    models = [
        train(
            build(
                "gradient-perturbation",
                federation._task,
                seed=seed,
                epsilon=2.0,
                rounds=ROUNDS,
                clip=8.0,
                learning_rate=RATE,
                schedule=schedule,
            ),
            federation,
        ).theta
        for seed in range(RUNS)
    ]
    return np.array(models) - exact


def assert_ratio(one: np.ndarray, other: np.ndarray, predicted: float) -> None:
    """Both are Gaussian and independent: their ratio of squares has the law F, exactly."""
    ratio = float(np.square(one).mean() / np.square(other).mean()) / predicted
    law = f_law(one.size, other.size)
    assert law.ppf(FALSE_FAILURE / 2) <= ratio <= law.isf(FALSE_FAILURE / 2), ratio


def test_the_measured_gain_of_the_dynamic_schedule_is_the_predicted_one() -> None:
    """False failure 1e-9. A gain that is 1.4 times as large, or as small, is caught."""
    predicted = Dynamic(gamma=GAMMA).gain(descent_influence(ROUNDS, gamma=GAMMA))
    assert predicted > 2  # worth having
    uniform = excess("uniform")
    dynamic = excess({"name": "dynamic", "gamma": GAMMA})[::-1]
    assert_ratio(uniform, dynamic, predicted)
    for wrong in (1.4, 1 / 1.4):
        with pytest.raises(AssertionError):
            assert_ratio(uniform, dynamic, predicted * wrong)


def shape(task: Any = TASK, **options: Any) -> list[float]:
    plan = build("gradient-perturbation", task, rounds=30, **options).plan
    assert plan is not None
    noise = np.array([mechanism.noise_stddev for mechanism in plan.mechanisms])
    return list(noise / noise[-1])


def relative(schedule: Any) -> list[float]:
    noise = schedule.noise(30, total=1.0)
    return list(noise / noise[-1])


def test_the_contraction_follows_from_the_regulariser_and_the_bound_on_features() -> None:
    """γ = 1 − λ/M, M = B²/4 + λ; with a smaller step η, 1 − λη; a larger one changes nothing."""
    gamma = 1 - 0.05 / 0.3
    for options, expected in (
        ({}, gamma),
        ({"learning_rate": 1.0}, 1 - 0.05),
        ({"learning_rate": 50.0}, gamma),
    ):
        found = shape(schedule="dynamic", **options)
        assert found == pytest.approx(relative(Dynamic(gamma=expected)), rel=1e-9)
    stated = shape(schedule={"name": "dynamic", "gamma": 0.7})
    assert stated == pytest.approx(relative(Dynamic(gamma=0.7)), rel=1e-9)


def test_the_contraction_is_never_guessed() -> None:
    with pytest.raises(ValueError, match=r"schedule\.gamma must be a number"):
        shape(linear_task((30, 20), 4, regulariser=0.0), schedule="dynamic")
    shape(linear_task((30, 20), 4, regulariser=0.0), schedule={"name": "dynamic", "gamma": 0.9})


def test_the_momentum_schedule_takes_its_beta_and_its_step_from_the_optimiser() -> None:
    task, beta = TASK, 0.6
    limit = momentum_step_limit(
        smoothness=task.smoothness, strong_convexity=task.regulariser, beta=beta
    )
    assert limit < 1 / task.smoothness
    options: dict[str, Any] = {"optimiser": "debiased-momentum", "momentum": beta}
    expected = relative(MomentumAware(gamma=1 - task.regulariser * limit, beta=beta))
    for schedule in ("momentum", {"name": "momentum", "beta": beta}):
        found = shape(schedule=schedule, **options)
        assert found == pytest.approx(expected, rel=1e-9)
    strategy = build("gradient-perturbation", task, schedule="momentum", **options)
    assert strategy._optimiser.learning_rate == pytest.approx(limit)  # type: ignore[attr-defined]


OPTIMISERS = ("sgd", "momentum", "debiased-momentum", "nesterov", "adagrad", "adam", "adamw")
LINEAR = OPTIMISERS[:4]
INFLUENCE = {"name": "influence", "values": [1.0] * 30}
FITTING: list[tuple[Any, tuple[str, ...]]] = [
    ("uniform", OPTIMISERS),
    ({"name": "exponential", "decay": 0.9}, OPTIMISERS),
    ({"name": "step", "every": 9, "factor": 0.9}, OPTIMISERS),
    ([1.0] * 30, OPTIMISERS),
    ("dynamic", ("sgd",)),
    ({"name": "dynamic"}, ("sgd",)),
    ({"name": "dynamic", "gamma": 0.9}, OPTIMISERS),
    ("momentum", ("debiased-momentum",)),
    ({"name": "momentum", "gamma": 0.9}, ("debiased-momentum",)),
    (INFLUENCE, LINEAR),
    ({**INFLUENCE, "public": "mnist:4v6"}, ("sgd",)),
]


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize(("schedule", "fitting"), FITTING, ids=lambda value: str(value)[:40])
def test_a_schedule_is_refused_with_an_optimiser_that_it_was_not_derived_for(
    schedule: Any, fitting: tuple[str, ...], optimiser: str
) -> None:
    options = {"schedule": schedule, "optimiser": optimiser, "learning_rate": 0.5}
    if optimiser in fitting:
        shape(**options)
    else:
        with pytest.raises(ValueError, match=f"optimiser must be .* got '{optimiser}'"):
            shape(**options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"schedule": "dynamic", "averaging": "tail"}, "averaging must be 'last'"),
        (
            {"schedule": "momentum", "optimiser": "debiased-momentum", "averaging": "mean"},
            "averaging must be 'last'",
        ),
        ({"schedule": "dynamic", "warm_up": 3}, "warm_up must not be given"),
        (
            {"schedule": "momentum", "optimiser": "debiased-momentum", "warm_up": 3},
            "warm_up must not be given",
        ),
        (
            {
                "schedule": {"name": "momentum", "beta": 0.5},
                "optimiser": "debiased-momentum",
                "momentum": 0.9,
            },
            r"schedule\.beta must be the momentum of the optimiser, 0\.9, got 0\.5",
        ),
    ],
)
def test_a_schedule_is_refused_with_another_average_or_momentum(
    options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        shape(**options)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"name": "exponential", "decay": 0.9}, [0.9**t for t in range(30)]),
        ({"name": "step", "every": 10, "factor": 0.5}, [0.5 ** (t // 10) for t in range(30)]),
        ({"name": "influence", "values": [1.0] * 15 + [16.0] * 15}, [2.0] * 15 + [1.0] * 15),
    ],
)
def test_decays_and_measured_influence_reach_the_plan(
    schedule: dict[str, Any], expected: list[float]
) -> None:
    assert shape(schedule=schedule) == pytest.approx(
        [each / expected[-1] for each in expected], rel=1e-9
    )


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ({"name": "influence"}, "schedule.values must hold the influence"),
        ({"name": "influence", "values": [1.0]}, "one entry per round, 30; got 1"),
    ],
)
def test_a_schedule_that_lacks_something_is_refused(schedule: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        shape(schedule=schedule)


@pytest.mark.parametrize("schedule", ["dynamic", "momentum", {"name": "exponential", "decay": 0.9}])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_every_schedule_fills_the_same_budget(schedule: Any, adjacency: str) -> None:
    plan = build(
        "gradient-perturbation",
        TASK,
        rounds=30,
        schedule=schedule,
        optimiser="debiased-momentum" if schedule == "momentum" else "sgd",
        adjacency=adjacency,
    ).plan
    assert plan is not None
    assert plan.epsilon == pytest.approx(1.0, rel=1e-9)
    assert plan.epsilon <= 1.0 + 1e-9
