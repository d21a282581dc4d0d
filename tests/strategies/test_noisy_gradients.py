"""The base class of a user's own strategy: its noise is its plan's, whatever the subclass says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from fedpriv import strategies
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.base import Run, SumStrategy
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.randomness import RandomStream
from fedpriv.strategies import NoisyGradients, NoisyOptions, Setup, StrategyInfo, plan_gradients
from tests.federation.worlds import SilentFederation, linear_task, streams

TASK = linear_task((40, 60), 4000)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
SILENT = SilentFederation(TASK, sampling=streams(0, "parties"))
FALSE_FAILURE = 1e-9


class Plain(NoisyGradients):
    def _update(self, release: Any) -> None:
        self._theta = self._theta - release


def setup(**changes: Any) -> Setup:
    run = Run(name="r", noise=lambda round_: RandomStream.seeded(1, round_))
    made = Setup(task=TASK, adjacency=Adjacency.REPLACE_ONE, run=run, allowance=BUDGET)
    return replace(made, **changes)


def info(build: Any, *, noise_by: Any = "server") -> StrategyInfo:
    return StrategyInfo(
        name="mine.py:Plain (sha256 1a2b3c4d…)",
        summary="",
        noise_by=noise_by,
        convex_only=False,
        options=NoisyOptions,
        guest=build,
    )


def built(build: Any) -> SumStrategy:
    return strategies.build(
        info(build),
        task=TASK,
        budget=BUDGET,
        adjacency="replace-one",
        options={"rounds": 3},
        noise=lambda round_: RandomStream.seeded(1, round_),
        run="r",
    )


def first_release(strategy: SumStrategy) -> np.ndarray[Any, Any]:
    """The first release of parties whose gradients are zero: noise and nothing else."""
    start = strategy.theta.copy()
    query = strategy.ask()
    assert query is not None
    strategy.learn(SILENT.sum(query))
    return np.asarray(start - strategy.theta)


def test_the_noise_is_that_of_the_plan() -> None:
    strategy = built(Plain.build)
    assert strategy.plan is not None
    noise = first_release(strategy) * TASK.records
    square = float(np.square(noise).sum()) / strategy.plan.mechanisms[0].noise_stddev ** 2
    low, high = chi2.ppf(FALSE_FAILURE / 2, noise.size), chi2.isf(FALSE_FAILURE / 2, noise.size)
    assert low <= square <= high
    assert not low <= square * 0.8**2 <= high  # teeth: a fifth less would be seen


def test_question_plan_and_charge_agree() -> None:
    strategy = built(Plain.build)
    query = strategy.ask()
    assert isinstance(query, GradientQuery)
    assert strategy.plan is not None
    assert query.event == strategy.plan.event(0)
    assert (query.clip_norm, query.sampling_rate) == (1.0, 1.0)
    assert strategy.plan.strategy == "mine.py:Plain (sha256 1a2b3c4d…)"


@pytest.mark.parametrize(
    "name",
    ["_release", "_query", "ask", "learn", "_event", "_stream", "_memory", "theta", "_advance"],
)
def test_a_subclass_cannot_bring_noise_of_its_own(name: str) -> None:
    if not hasattr(NoisyGradients, name):
        type("Fine", (Plain,), {name: None})  # teeth: other names are free
        return
    with pytest.raises(TypeError, match="must not be overridden"):
        type("Mine", (Plain,), {name: lambda self, *_: None})
    mixin = type("Mixin", (), {name: lambda self, *_: None})
    with pytest.raises(TypeError, match="must not be overridden"):
        type("Mine", (mixin, Plain), {})


def planned(setup: Setup, *, clip: float = 1.0) -> FixedPlan:
    plan = plan_gradients(setup, rounds=3, clip_norm=clip)
    assert isinstance(plan, FixedPlan)
    return plan


def gaussian_plan(*, clip: float = 1.0, factor: float = 1.0, **changes: Any) -> FixedPlan:
    """A plan whose mechanism claims a sensitivity ``factor`` times the true one, at equal cost."""
    plan = planned(setup(), clip=clip)
    made = [
        GaussianMechanism(
            sensitivity=factor * m.sensitivity, stddev=factor * m.stddev, adjacency=m.adjacency
        )
        for m in plan.mechanisms
        if isinstance(m, GaussianMechanism)
    ]
    return replace(plan, mechanisms=tuple(made), **changes)


def with_plan(plan: FixedPlan) -> Any:
    return lambda setup, options: Plain(setup=setup, options=options, plan=plan)


def test_a_plan_that_understates_what_a_record_can_do_is_refused() -> None:
    built(with_plan(gaussian_plan()))
    built(with_plan(gaussian_plan(factor=1.05)))  # more noise than needed is no harm
    with pytest.raises(ValueError, match="calibrated to a sensitivity of at least 2"):
        built(with_plan(gaussian_plan(factor=0.95)))
    with pytest.raises(ValueError, match="calibrated to a sensitivity of at least 4"):
        built(with_plan(gaussian_plan(clip_norm=2.0)))  # asks for longer gradients


def test_a_plan_beyond_the_budget_of_the_experiment_is_refused() -> None:
    generous = setup(allowance=Budget(epsilon=8.0, delta=1e-6))
    plan = planned(generous)
    with pytest.raises(ValueError, match="within the budget of the experiment"):
        built(with_plan(plan))
    with pytest.raises(BudgetExceeded):
        replace(plan, budget=BUDGET)  # a plan cannot even be made beyond its own


def test_a_plan_for_other_neighbours_is_refused() -> None:
    plan = planned(setup(adjacency=Adjacency.ADD_REMOVE))
    with pytest.raises(ValueError, match="must be made for 'replace-one' adjacency"):
        built(with_plan(plan))


def test_a_plan_that_is_exchanged_afterwards_releases_nothing() -> None:
    strategy = built(Plain.build)
    assert strategy.plan is not None
    query = strategy.ask()
    assert query is not None
    strategy.plan = replace(strategy.plan)
    with pytest.raises(RuntimeError, match="Nothing was released"):
        strategy.learn(SILENT.sum(query))


def test_a_strategy_with_noise_of_its_own_is_refused() -> None:
    class Quiet(SumStrategy):
        name = "quiet"
        _query = _release = _update = None  # type: ignore[assignment]

    def build(setup: Setup, options: NoisyOptions) -> SumStrategy:
        plan = plan_gradients(setup, rounds=options.rounds, clip_norm=options.clip)
        return Quiet(task=setup.task, plan=plan, run=setup.run)

    with pytest.raises(ValueError, match="must derive from NoisyGradients"):
        built(build)
    with pytest.raises(ValueError, match="has no plan"):
        _nobody(build)
    with pytest.raises(ValueError, match="must return a strategy"):
        built(lambda _setup, _options: None)


def _nobody(build: Any) -> SumStrategy:
    strategy = build(setup(), NoisyOptions())
    quiet = info(build, noise_by="nobody")
    return strategies._require_planned(strategy, quiet, promised=False)


def test_a_ledger_gets_no_release_without_a_plan() -> None:
    run = Run(name="r", noise=lambda _: RandomStream.from_os(), ledger=object())  # type: ignore[arg-type]

    class Bare(SumStrategy):
        name = "bare"
        _query = _release = _update = None  # type: ignore[assignment]

    with pytest.raises(ValueError, match="plan must be given for a run on a ledger"):
        Bare(task=TASK, plan=None, run=run)
