"""Batches that grow: every round has its own event, and the run is charged for all of them."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.accountants import account
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent
from fedpriv.privacy.schedules.growing import GrowingBatch, GrowingPlan
from tests.federation.worlds import SilentFederation, build, linear_task, random_data, streams

SIZES, WIDTH = (60, 40), 3
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
GROWTH: dict[str, Any] = {"first": 0.25, "factor": 2.0, "every": 2}
OPTIONS: dict[str, Any] = {"rounds": 5, "sampling_rate": GROWTH, "adjacency": "add-remove"}


def growing(**changes: Any) -> GrowingPlan:
    plan = build("gradient-perturbation", TASK, **{**OPTIONS, **changes}).plan
    assert isinstance(plan, GrowingPlan)
    return plan


def test_rates_grow_by_steps_up_to_the_full_batch() -> None:
    assert GrowingBatch(**GROWTH).rates(7) == (0.25, 0.25, 0.5, 0.5, 1.0, 1.0, 1.0)


def test_every_round_has_the_event_of_its_own_rate() -> None:
    plan = growing()
    events = [plan.event(index) for index in range(5)]
    rates = [e.sampling_rate if isinstance(e, PoissonGaussianEvent) else 1.0 for e in events]
    assert rates == [0.25, 0.25, 0.5, 0.5, 1.0]
    assert isinstance(events[-1], GaussianEvent)
    assert len({e.relative_noise for e in events}) == 1  # type: ignore[attr-defined]
    assert plan.sampling_rate == 1.0


def test_the_noise_is_the_least_that_the_accountant_proves_for_all_rates_together() -> None:
    plan = growing(epsilon=2.0)
    assert plan.epsilon <= 2.0
    assert plan.epsilon == pytest.approx(2.0, rel=1e-6)
    fresh = account(plan.releases, delta=1e-6, accountant="rdp").epsilon
    assert fresh == pytest.approx(plan.epsilon, rel=1e-12)
    smallest = build(
        "gradient-perturbation",
        TASK,
        rounds=5,
        sampling_rate=0.25,
        adjacency="add-remove",
        epsilon=2.0,
        accountant="rdp",
    ).plan
    assert smallest is not None
    assert plan.mechanisms[0].noise_stddev > smallest.mechanisms[0].noise_stddev


def test_numerical_accounting_needs_less_noise_than_renyi() -> None:
    budget, batches = Budget(epsilon=2.0, delta=1e-6), GrowingBatch(**GROWTH)
    by_rdp = batches.noise_multiplier(budget=budget, rounds=5)
    tighter = account(
        batches.releases(5, noise_multiplier=by_rdp), delta=1e-6, accountant="pld"
    ).epsilon
    assert tighter is not None
    assert tighter < 2.0


def test_a_plan_that_claims_smaller_rates_than_it_can_pay_for_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="would spend"):
        replace(growing(), rates=(1.0,) * 5)
    with pytest.raises(ValueError, match="one entry per round"):
        replace(growing(), rates=(0.5,))


def test_parties_sample_at_the_rate_of_the_round_and_means_are_of_the_expected_batch() -> None:
    """Without gradients the step is noise over q_t·N: it falls as batches grow."""
    silent = SilentFederation(TASK, sampling=streams(0, "p"))
    steps = []
    for seed in range(60):
        strategy = build("gradient-perturbation", TASK, seed=seed, learning_rate=1.0, **OPTIONS)
        before, own = np.zeros(WIDTH), []
        while (query := strategy.ask()) is not None:
            assert isinstance(query, GradientQuery)
            assert query.sampling_rate == (0.25, 0.25, 0.5, 0.5, 1.0)[query.round]
            strategy.learn(silent.sum(query))
            own.append(strategy.theta - before * (1 - 0.05))
            before = strategy.theta.copy()
        steps.append(own)
    spread = np.sqrt(np.square(steps).mean(axis=(0, 2)))
    noise = growing().mechanisms[0].noise_stddev / sum(SIZES)
    # 180 draws each: 7 standard errors of a standard deviation, 3e-12.
    np.testing.assert_allclose(
        spread, noise / np.array([0.25, 0.25, 0.5, 0.5, 1.0]), rtol=7 / sqrt(2 * 180)
    )


def test_growing_batches_train_on_real_records() -> None:
    federation = VectorizedFederation(
        random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "p")
    )
    strategy = build("gradient-perturbation", TASK, **OPTIONS)
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
    assert strategy.round == 5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"adjacency": "replace-one"}, "needs adjacency = 'add-remove'"),
        ({"schedule": "dynamic"}, "schedule must be 'uniform'"),
        ({"rounds": 200, "sampling_rate": {**GROWTH, "factor": 1.001}}, "every must be larger"),
    ],
)
def test_what_is_not_analysed_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        growing(**changes)
