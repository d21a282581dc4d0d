"""Settings from public facts: what the rule says, what it rests on, and where it does not apply."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log1p, sqrt
from typing import Any

import numpy as np
import pytest
import torch

from fedpriv import run
from fedpriv.learning.losses import HuberHinge, Logistic, Loss
from fedpriv.learning.models import MlpModel
from fedpriv.learning.network import NetworkModel
from fedpriv.learning.optimisers import Averaged, DebiasedMomentum, Momentum, Sgd
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.strategies.common.auto import (
    auto_clip,
    hinge_noise,
    objective_noise,
    score_noise,
    strength,
)
from tests.federation.worlds import SilentFederation, build, linear_task, streams, train

SIZES, WIDTH = (300, 120, 450), 400
TASK = linear_task(SIZES, WIDTH, regulariser=1e-5)
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def planned(name: str = "gradient-perturbation", **options: Any) -> Any:
    plan = build(name, TASK, **{**BUDGET, **options}).plan
    assert plan is not None
    return plan


def steps_of(strategy: Any) -> Any:
    optimiser = strategy._optimiser
    return optimiser.optimiser if isinstance(optimiser, Averaged) else optimiser


@pytest.mark.parametrize(("adjacency", "moved"), [("replace-one", 2.0), ("add-remove", 1.0)])
@pytest.mark.parametrize("options", [{}, {"rounds": 7}, {"clip": 0.1}, {"schedule": [1.0, 3.0]}])
def test_the_strength_of_full_batches_is_that_of_the_budget(
    adjacency: str, moved: float, options: dict[str, Any]
) -> None:
    rounds: dict[str, Any] = {"rounds": 2} if "schedule" in options else {}
    plan = planned(adjacency=adjacency, **options, **rounds)
    expected = sum(SIZES) * gdp_mu(**BUDGET) / moved
    # Less than the budget has, by what rounding adds to a sensitivity.
    found = strength(plan, TASK, clip_norm=plan.clip_norm)
    assert 0.98 * expected < found <= expected * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "averaged"), [(0.1, False), (1.0, False), (10.0, True)])
@pytest.mark.parametrize("loss", [Logistic(), HuberHinge(smoothing=0.5)])
def test_the_model_that_is_published_has_the_noise_of_the_rule(
    epsilon: float, averaged: bool, loss: Loss
) -> None:
    """R/s for the last model; √⅔ of it for the mean of the last half, as of a random walk."""
    task = replace(TASK, loss=loss)
    strategy: Any = build("gradient-perturbation", task, epsilon=epsilon, delta=1e-6, shrink="none")
    s = strength(strategy.plan, task, clip_norm=strategy.plan.clip_norm)
    train(strategy, SilentFederation(task, sampling=streams(0, "parties")))
    assert isinstance(strategy._optimiser, Averaged) == averaged == (s >= task.dimension / 2)
    ruled = (score_noise if loss == Logistic() else hinge_noise)(s, task.dimension)
    # A coordinate: less than a score's by momentum, which delays the first steps and the last.
    assert 0.85 * ruled < float(np.std(strategy.theta)) < ruled
    travel = strategy.plan.clip_norm * steps_of(strategy).learning_rate * 100 / (1 - 0.9)
    # The grid of a sum depends on the clip norm, and with it the last digits of a strength.
    assert travel / s == pytest.approx(ruled * (sqrt(1.5) if averaged else 1), rel=1e-3)


@pytest.mark.parametrize("rule", ["quantile", "coordinate"])
def test_adaptive_clipping_begins_as_gradient_perturbation_does(rule: str) -> None:
    """Counts take a share of its budget, and it is so much weaker."""
    fixed: Any = build("gradient-perturbation", TASK, **BUDGET)
    moving: Any = build("adaptive-clipping", TASK, **BUDGET, rule=rule)
    share = 0.95 if rule == "quantile" else 1.0
    assert moving._options.clip == pytest.approx(fixed.fixed_clip, rel=0.02)
    expected = steps_of(fixed).learning_rate * sqrt(share)
    assert steps_of(moving).learning_rate == pytest.approx(expected, rel=0.03)
    assert isinstance(moving._optimiser, Momentum)


def test_noise_of_every_party_is_weaker_by_the_root_of_their_number() -> None:
    once: Any = build("gradient-perturbation", TASK, **BUDGET, clip=0.5)
    thrice: Any = build("local-gradient-perturbation", TASK, **BUDGET, clip=0.5)
    ratio = steps_of(thrice).learning_rate / steps_of(once).learning_rate
    assert ratio == pytest.approx(sqrt(1 / 3), rel=0.01)


def test_steps_are_stable_where_there_is_little_noise_and_short_where_there_is_much() -> None:
    def rate(epsilon: float) -> float:
        strategy = build("gradient-perturbation", TASK, epsilon=epsilon, delta=1e-6)
        return float(steps_of(strategy).learning_rate)

    limit = 2 * (1 + 0.9) / TASK.smoothness
    assert rate(1e-3) < rate(0.1) < rate(1.0) < rate(1e3) == pytest.approx(0.75 * limit)


@pytest.mark.parametrize(
    "options", [{}, {"fit": "joint"}, {"law": "l1-laplace", "delta": 0.0}, {"weights": "equal"}]
)
def test_a_noisy_model_has_the_same_noise_in_a_score_whatever_the_budget(
    options: dict[str, Any],
) -> None:
    """λ = B·G/(⅓·s): a third, but for what minimisers to a tolerance cost."""
    for epsilon in (0.1, 1.0):
        given = {**BUDGET, "epsilon": epsilon, "regulariser": "auto", **options}
        plan: Any = build("output-perturbation", TASK, **given).plan
        assert plan.mechanisms[0].noise_stddev == pytest.approx(1 / 3, rel=0.01)


@pytest.mark.parametrize(
    ("name", "draws"), [("local-output-perturbation", 3), ("pathak", 1), ("output-perturbation", 1)]
)
def test_baselines_allow_for_all_of_their_noise(name: str, draws: int) -> None:
    strategy = build(name, TASK, **BUDGET, regulariser="auto")
    plan: Any = strategy.plan
    assert plan.mechanisms[0].noise_stddev * sqrt(draws) == pytest.approx(1 / 3, rel=0.01)
    assert strategy.task.regulariser > 1e-5


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize(("name", "problems"), [("objective", 1), ("local-objective", 3)])
def test_a_perturbed_objective_moves_a_score_as_the_rule_says(
    name: str, problems: int, delta: float
) -> None:
    """B·σ_b/(n√m·Λ) = ⅞·r, Jacobian and all: no less noise on b, and so no larger λ, is asked."""
    sizes = (290,) * problems
    task = linear_task(sizes, WIDTH, regulariser=1e-5)
    for epsilon in (0.3, 3.0):
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "regulariser": "auto"}
        strategy: Any = build(f"{name}-perturbation", task, **budget)
        noise = strategy.plan.mechanisms[0].linear.noise_stddev
        strong = strategy.task.regulariser + strategy.plan.mechanisms[0].extra_regulariser
        calm = build(f"{name}-perturbation", replace(task, regulariser=1e6), epsilon=epsilon,
                     delta=delta, tolerance=1e-3).plan  # fmt: skip
        assert calm is not None
        s = 290 * sqrt(problems) / calm.mechanisms[0].linear.noise_stddev  # type: ignore[attr-defined]
        moved = noise / (290 * sqrt(problems) * strong)
        assert moved == pytest.approx(objective_noise(s, task.dimension), rel=1e-3)
        assert log1p(0.25 / (290 * strong)) < epsilon / 2


@pytest.mark.parametrize("name", ["local-objective-perturbation", "objective-perturbation"])
@pytest.mark.parametrize("budget", [BUDGET, {"epsilon": 0.1, "delta": 0.0}])
def test_every_law_has_a_ruled_regulariser(name: str, budget: dict[str, Any]) -> None:
    strategy = build(name, TASK, **budget, regulariser="auto")
    assert 1e-5 < strategy.task.regulariser < 10
    assert build(name, TASK, **budget).task.regulariser == TASK.regulariser


def optimiser_of(**options: Any) -> Any:
    return build("gradient-perturbation", TASK, **BUDGET, **options)._optimiser  # type: ignore[attr-defined]


def test_the_rule_speaks_where_neither_step_nor_optimiser_is_named() -> None:
    ruled = optimiser_of()
    assert isinstance(ruled, Momentum)
    inverse = 1 / TASK.smoothness
    assert optimiser_of(optimiser="sgd") == Sgd(learning_rate=inverse)
    assert optimiser_of(learning_rate=0.5) == Sgd(learning_rate=0.5)
    assert optimiser_of(schedule="dynamic") == Sgd(learning_rate=inverse)
    assert isinstance(optimiser_of(schedule="momentum"), DebiasedMomentum)
    assert optimiser_of(averaging="last") == ruled
    for mean in ("mean", "tail"):
        longer: Any = optimiser_of(averaging=mean)
        rate = longer.optimiser.learning_rate
        assert rate == pytest.approx(ruled.learning_rate * sqrt(1.5))


@pytest.mark.parametrize(("epsilon", "rate"), [(1.0, 0.2059), (0.02, None), (1e4, 4.0)])
def test_a_perceptron_travels_by_a_rule_of_its_own(epsilon: float, rate: float | None) -> None:
    """s = 870·μ/2 = 102.97 at ε = 1, and η = 2s(1 - β)/100."""
    task = replace(TASK, model=MlpModel(widths=(WIDTH, 5, 1)))
    strategy: Any = build("gradient-perturbation", task, epsilon=epsilon, delta=1e-6)
    assert isinstance(strategy._optimiser, Averaged) == (epsilon > 100)
    found = steps_of(strategy)
    assert isinstance(found, Momentum)
    assert strategy.fixed_clip == 1.0
    s = strength(strategy.plan, task, clip_norm=1.0)
    expected = 2e-3 * s * sqrt(s / 20) if rate is None else rate
    assert found.learning_rate == pytest.approx(expected, rel=1e-3)


def test_other_networks_and_persons_have_no_rule() -> None:
    net = replace(TASK, model=NetworkModel(module=torch.nn.Linear(WIDTH, 1), input_shape=(WIDTH,)))
    with pytest.raises(ValueError, match="learning_rate must be a number"):
        build("gradient-perturbation", net, **BUDGET)


def test_the_clip_norm_grows_with_strength_unless_a_theorem_needs_all_of_it() -> None:
    assert planned(epsilon=0.3).clip_norm == pytest.approx(0.25)
    s = 37.5 * sqrt(TASK.dimension)
    assert auto_clip(s, TASK) == pytest.approx(TASK.lipschitz / 2)
    assert auto_clip(8 * s, TASK) == auto_clip(inf, TASK) == pytest.approx(TASK.lipschitz)
    assert planned(schedule="dynamic").clip_norm == TASK.lipschitz
    assert planned(clip=0.7).clip_norm == 0.7
    assert auto_clip(s, replace(TASK, loss=HuberHinge(smoothing=0.5))) == TASK.lipschitz


def test_a_run_without_noise_that_is_nobodys_twin_takes_the_longest_stable_step() -> None:
    strategy: Any = build("gradient-perturbation", TASK, noise_free=True, momentum=0.5)
    assert strength(strategy._plan, TASK, clip_norm=1.0) == inf
    assert steps_of(strategy).learning_rate == pytest.approx(2.25 / TASK.smoothness)
    assert strategy.fixed_clip == TASK.lipschitz


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gradient-perturbation", {}),
        ("gradient-perturbation", {"clip": 0.3}),
        ("local-gradient-perturbation", {}),
        ("adaptive-clipping", {}),
    ],
)
def test_a_twin_takes_the_steps_of_the_private_run(name: str, options: dict[str, Any]) -> None:
    private: Any = build(name, TASK, **BUDGET, **options)
    twin: Any = build(name, TASK, noise_free=True, twin_of=Budget(**BUDGET), **options)
    other: Any = build(name, TASK, noise_free=True, **options)
    assert twin._optimiser == private._optimiser != other._optimiser
    assert twin.fixed_clip == private.fixed_clip
    assert twin.plan is None


@pytest.mark.parametrize(
    "name",
    ["output-perturbation", "local-output-perturbation", "local-objective-perturbation",
     "objective-perturbation", "pathak"],
)  # fmt: skip
def test_a_twin_has_the_regulariser_of_the_private_run(name: str) -> None:
    ruled: dict[str, Any] = {"regulariser": "auto"}
    private = build(name, TASK, **BUDGET, **ruled)
    twin = build(name, TASK, noise_free=True, twin_of=Budget(**BUDGET), **ruled)
    assert twin.task.regulariser == private.task.regulariser != TASK.regulariser
    assert build(name, TASK, noise_free=True, **ruled).task.regulariser == TASK.regulariser


def test_a_twin_of_second_order_steps_has_their_floor() -> None:
    private: Any = build("second-order", TASK, **BUDGET)
    twin: Any = build("second-order", TASK, noise_free=True, twin_of=Budget(**BUDGET))
    assert twin._floor == private._floor
    exact: Any = build("second-order", TASK, noise_free=True)
    assert exact._floor < 1e-5 * private._floor


def test_only_a_run_without_noise_is_a_twin() -> None:
    with pytest.raises(ValueError, match="twin_of is for a run of gradient-perturbation without"):
        build("gradient-perturbation", TASK, **BUDGET, twin_of=Budget(**BUDGET))
    with pytest.raises(ValueError, match="twin_of is for epsilon = 'inf'"):
        read_experiment("quickstart", ["privacy.twin_of=1"])


@pytest.mark.parametrize(
    ("changes", "l2"),
    [
        ([], 1e-5),
        (["strategy.schedule=dynamic"], 1e-3),
        (["strategy.name=output-perturbation"], 1e-3),
        (["strategy.name=adaptive-clipping"], 1e-5),
        (["strategy.name=local-gradient-perturbation"], 1e-5),
        (["strategy.name=pooled"], 1e-5),
        (["strategy.name=non-private"], 1e-3),
        (["strategy.name=second-order"], 1e-5),
        (["model.name=huber-svm"], 1e-5),
        (["model.name=mlp"], 1e-5),
        (["model.name=mlp", "strategy.learning_rate=0.1"], 1e-3),
        (["model.name=mlp", "strategy.optimiser=sgd"], 1e-3),
        (["model.l2=0.25"], 0.25),
    ],
)
def test_the_regulariser_suits_the_strategy_and_is_written_down(
    changes: list[str], l2: float
) -> None:
    experiment = checked(read_experiment("quickstart", changes))
    assert experiment.model.l2 == l2
    assert checked(experiment) == experiment


@pytest.mark.parametrize(
    ("changes", "choice"),
    [
        ([], "auto"),
        (["model.l2=0.25"], "model"),
        (["strategy.regulariser=optimal"], "optimal"),
        (["model.name=huber-svm"], "auto"),
        (["model.name=squared", "model.l2=auto"], "model"),
    ],
)
@pytest.mark.parametrize("name", ["output-perturbation", "objective-perturbation"])
def test_a_regulariser_that_the_file_leaves_open_is_that_of_the_strategys_rule(
    name: str, changes: list[str], choice: str
) -> None:
    experiment = checked(read_experiment("quickstart", [f"strategy.name={name}", *changes]))
    assert experiment.strategy.options["regulariser"] == choice
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
