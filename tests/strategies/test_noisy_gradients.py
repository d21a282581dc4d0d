"""The base class of a user's own strategy: its noise is its plan's, whatever the subclass says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedpriv import strategies
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.base import Run, SumStrategy
from fedpriv.federation.task import PersonBounds
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.run.metrics.noise import acting_noise
from fedpriv.simulations.run.prepare import train
from fedpriv.strategies import NoisyGradients, NoisyOptions, Setup, StrategyInfo, plan_gradients
from tests.federation.worlds import SilentFederation, linear_task, streams
from tests.statistical import FALSE_FAILURE, assert_gaussian_scale

TASK = linear_task((40, 60), 4000)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
SILENT = SilentFederation(TASK, sampling=streams(0, "parties"))
PERSONS: dict[str, Any] = {
    "unit": "person",
    "adjacency": "add-remove",
    "options": {"rounds": 3},
    "noise": lambda round_: RandomStream.seeded(1, round_),
    "run": "r",
}


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


def built(build: Any, *, adjacency: str = "replace-one") -> SumStrategy:
    return strategies.build(
        info(build),
        task=TASK,
        budget=BUDGET,
        adjacency=adjacency,
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
    stddev = strategy.plan.mechanisms[0].noise_stddev
    assert_gaussian_scale(noise, stddev)
    with pytest.raises(AssertionError, match="outside"):
        assert_gaussian_scale(0.8 * noise, stddev)


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


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_noise_stddev_is_that_of_what_an_update_gets(rate: float) -> None:
    """By the plan, round by round, and as reports state it; what is drawn is of that size."""
    seen: list[tuple[float, Any]] = []

    class Looking(NoisyGradients):
        def _update(self, release: Any) -> None:
            seen.append((self.noise_stddev, release))
            self._theta = release

    def build(setup: Setup, options: NoisyOptions) -> Looking:
        plan = plan_gradients(
            setup,
            rounds=2,
            clip_norm=1.0,
            sampling_rate=rate,
            shape=None if rate < 1 else (2.0, 1.0),
        )
        return Looking(setup=setup, options=options, plan=plan)

    strategy = built(build, adjacency="add-remove")
    assert strategy.plan is not None
    while (query := strategy.ask()) is not None:
        strategy.learn(SILENT.sum(query))
    stated = np.array([stddev for stddev, _ in seen])
    planned = [m.noise_stddev / (rate * TASK.records) for m in strategy.plan.mechanisms]
    assert stated == pytest.approx(planned)
    assert stated[0] == pytest.approx((1 if rate < 1 else 2) * stated[1])
    column = acting_noise(query_of(strategy), strategy.plan, TASK)
    assert column == pytest.approx(np.sqrt(np.square(stated).mean()))
    for stddev, release in seen:
        assert_gaussian_scale(release / stddev, 1.0, false_failure=FALSE_FAILURE / 2)
        with pytest.raises(AssertionError, match="outside"):
            assert_gaussian_scale(0.8 * release / stddev, 1.0, false_failure=FALSE_FAILURE / 2)


def query_of(strategy: SumStrategy) -> GradientQuery:
    """A question of the last round."""
    strategy.restore({"round": strategy.releases - 1, "theta": strategy.theta})
    query = strategy.ask()
    assert isinstance(query, GradientQuery)
    return query


def test_the_twin_without_noise_states_none() -> None:
    twin = setup(allowance=None, noise_free=True)
    assert Plain.build(twin, NoisyOptions(rounds=2)).noise_stddev == 0.0
    assert Plain.build(setup(), NoisyOptions(rounds=2)).noise_stddev > 0.0


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (np.zeros(3), r"_update of Wrong must leave a vector of 4000 numbers .* got shape \(3,\)"),
        (np.zeros((4000, 1)), r"got shape \(4000, 1\) after round 1 of 3"),
        (None, "_update of Wrong must leave"),
        ("a model", "got str after round 1"),
        (np.full(4000, np.nan), r"not finite after round 1 of 3: .* smaller learning rate"),
    ],
)
def test_a_model_that_cannot_be_one_is_refused_after_its_round(left: Any, message: str) -> None:
    class Wrong(NoisyGradients):
        def _update(self, release: Any) -> None:
            self._theta = left

    strategy = built(Wrong.build)
    query = strategy.ask()
    assert query is not None
    with pytest.raises(ValueError, match=rf"^mine.py:Plain \(sha256 1a2b3c4d…\): .*{message}"):
        strategy.learn(SILENT.sum(query))


class Forgetful(NoisyGradients):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._velocity = np.zeros_like(self._theta)
        self._rate = 0.5

    def _update(self, release: Any) -> None:
        self._velocity = self._velocity - self._rate * release
        self._theta = self._theta + self._velocity


class Mindful(Forgetful):
    def _state(self) -> dict[str, Any]:
        return {"speed": self._velocity}


def test_a_checkpoint_without_what_changed_is_warned_about() -> None:
    for kind in (Forgetful, Mindful):
        strategy = built(kind.build)
        strategy.checkpoint()  # nothing has changed yet
        first_release(strategy)
        if kind is Mindful:
            strategy.checkpoint()
            continue
        with pytest.warns(UserWarning, match="Forgetful: _velocity changed .* define _state"):
            strategy.checkpoint()


def test_persons_are_declared_by_info_and_the_refusal_says_so() -> None:
    with pytest.raises(ValueError, match=r'declares record\. .* add units=\("record", "person"\)'):
        strategies.build(info(Plain.build), task=TASK, budget=BUDGET, **PERSONS)
    both: Any = ("record", "person")  # as a file of one's own has them
    declared = replace(info(Plain.build), units=both)
    task = replace(TASK, in_place=False, persons=PersonBounds(parties=1, records=3))
    built = strategies.build(declared, task=task, budget=BUDGET, **PERSONS)
    assert built.plan is not None
    assert built.plan.unit is Unit.PERSON


def test_a_model_that_never_moves_is_warned_about() -> None:
    class Idle(NoisyGradients):
        def _update(self, release: Any) -> None:
            self._thetta = release

    strategy = built(Idle.build)
    with pytest.warns(UserWarning, match=r"Idle: after 3 rounds .* assign .* self\._theta\?"):
        train(strategy, SILENT, lambda _query, _answer: True)
