"""Settings from public facts: what the rule says, what it rests on, and where it does not apply."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from fedpriv import run
from fedpriv.learning.optimisers import Averaged, DebiasedMomentum, Momentum, Sgd
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.strategies.common.auto import auto_clip, strength, travel_rate
from tests.federation.worlds import SilentFederation, build, linear_task, streams, train

SIZES, WIDTH = (300, 120, 450), 400
TASK = linear_task(SIZES, WIDTH, regulariser=1e-5)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(("adjacency", "moved"), [("replace-one", 2.0), ("add-remove", 1.0)])
@pytest.mark.parametrize("options", [{}, {"rounds": 7}, {"clip": 0.1}, {"schedule": [1.0, 3.0]}])
def test_the_strength_of_full_batches_is_that_of_the_budget(
    adjacency: str, moved: float, options: dict[str, Any]
) -> None:
    rounds: dict[str, Any] = {"rounds": 2} if "schedule" in options else {}
    plan = build(
        "gradient-perturbation", TASK, adjacency=adjacency, **BUDGET, **options, **rounds
    ).plan
    assert plan is not None
    expected = sum(SIZES) * gdp_mu(**BUDGET) / moved
    # Less than the budget has, by what rounding adds to a sensitivity.
    assert 0.98 * expected < strength(plan, TASK) <= expected * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 10.0])
def test_noise_moves_a_coordinate_by_what_travel_says(epsilon: float) -> None:
    """R/s for the last model; ⅔ or so of it for the mean of the last half, as of a random walk."""
    strategy = build("gradient-perturbation", TASK, epsilon=epsilon, delta=1e-6)
    plan = strategy.plan
    assert plan is not None
    assert plan.clip_norm is not None
    rate = travel_rate(plan, TASK, beta=0.9)
    travel = plan.clip_norm * rate * 100 / (1 - 0.9)
    train(strategy, SilentFederation(TASK, sampling=streams(0, "parties")))
    expected = travel / strength(plan, TASK)
    assert 0.5 * expected < float(np.std(strategy.theta)) < expected
    assert expected <= 2.5 * (1 + 1e-9)


def test_steps_are_stable_where_there_is_little_noise_and_short_where_there_is_much() -> None:
    def rate(epsilon: float) -> float:
        plan = build("gradient-perturbation", TASK, epsilon=epsilon, delta=1e-6).plan
        assert plan is not None
        return travel_rate(plan, TASK, beta=0.9)

    limit = 2 * (1 + 0.9) / TASK.smoothness
    assert rate(1e-3) < rate(0.1) < rate(1.0) < rate(1e3) == pytest.approx(0.75 * limit)


def optimiser_of(**options: Any) -> Any:
    return build("gradient-perturbation", TASK, **BUDGET, **options)._optimiser  # type: ignore[attr-defined]


def test_the_rule_speaks_where_neither_step_nor_optimiser_is_named() -> None:
    ruled = optimiser_of()
    assert isinstance(ruled, Averaged)
    assert isinstance(ruled.optimiser, Momentum)
    inverse = 1 / TASK.smoothness
    assert optimiser_of(optimiser="sgd") == Sgd(learning_rate=inverse)
    assert optimiser_of(learning_rate=0.5) == Sgd(learning_rate=0.5)
    assert optimiser_of(schedule="dynamic") == Sgd(learning_rate=inverse)
    assert isinstance(optimiser_of(schedule="momentum"), DebiasedMomentum)
    assert optimiser_of(averaging="last") == ruled.optimiser


def test_the_clip_norm_is_half_of_the_longest_gradient_unless_a_theorem_needs_all_of_it() -> None:
    def clip(**options: Any) -> float | None:
        plan = build("gradient-perturbation", TASK, **BUDGET, **options).plan
        assert plan is not None
        return plan.clip_norm

    assert clip() == auto_clip(TASK) == TASK.lipschitz / 2
    assert clip(schedule="dynamic") == TASK.lipschitz
    assert clip(clip=0.7) == 0.7


def test_a_run_without_noise_takes_the_longest_stable_step() -> None:
    strategy = build("gradient-perturbation", TASK, noise_free=True)
    noise_free: Any = strategy._plan  # type: ignore[attr-defined]
    assert strength(noise_free, TASK) == inf
    assert travel_rate(noise_free, TASK, beta=0.5) == pytest.approx(2.25 / TASK.smoothness)


@pytest.mark.parametrize(
    ("changes", "l2"),
    [
        ([], 1e-5),
        (["strategy.schedule=dynamic"], 1e-3),
        (["strategy.name=output-perturbation"], 1e-3),
        (["strategy.name=second-order"], 1e-5),
        (["model.name=huber-svm"], 1e-5),
        (["model.name=mlp", "strategy.learning_rate=0.1"], 1e-3),
        (["model.l2=0.25"], 0.25),
    ],
)
def test_the_regulariser_suits_the_strategy_and_is_written_down(
    changes: list[str], l2: float
) -> None:
    experiment = checked(read_experiment("quickstart", changes))
    assert experiment.model.l2 == l2
    assert checked(experiment) == experiment


def test_a_small_table_is_learned_where_fixed_steps_drown_in_noise() -> None:
    pytest.importorskip("sklearn", reason="the table comes with the extra 'data'")
    study = {
        "data": {"name": "breast_cancer", "partition": "iid", "parties": 10},
        "strategy": {"name": "gradient-perturbation"},
        "privacy": {"epsilon": 0.3},
    }
    fixed = {"clip": 1.0, "optimiser": "sgd"}
    ours, theirs = [], []
    for seed in range(3):
        ours.append(run(study, run={"seed": seed}))
        theirs.append(run(study, run={"seed": seed}, strategy=fixed, model={"l2": 1e-3}))
    loss, before = (
        sum(float(result.metrics["loss"] or 0.0) for result in results) / 3
        for results in (ours, theirs)
    )
    assert loss < 0.75 * before
    assert loss < 0.6
