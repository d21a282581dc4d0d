"""The order of a private round: reserve, ask, add noise, commit, and only then move the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.strategy.base import Run
from fedpriv.learning.optimisers import Sgd
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.randomness import RandomStream
from fedpriv.strategies.gradient_perturbation import GradientPerturbation
from tests.federation.worlds import (
    SilentFederation,
    build,
    ledger_at,
    linear_task,
    random_data,
    streams,
    train,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.federation import Federation
    from fedpriv.federation.queries.kinds import Query

SIZES, WIDTH = (20, 30), 3
TASK = linear_task(SIZES, WIDTH)
ROUNDS = 4


def federation() -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "parties")
    )


def events(ledger: Ledger) -> list[tuple[str, int]]:
    return [(row.kind, row.round) for row in ledger.rows() if row.round >= 0]


def gradient(ledger: Ledger | None) -> Any:
    return build("gradient-perturbation", TASK, rounds=ROUNDS, ledger=ledger)


def test_a_release_is_reserved_before_the_query_exists(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    strategy = gradient(ledger)
    assert events(ledger) == []
    query = strategy.ask()
    assert events(ledger) == [(Kind.RESERVED, 0)]
    assert query.event == strategy.plan.event(0)


def test_a_release_is_committed_before_the_model_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_at(tmp_path)
    strategy = gradient(ledger)
    answer = federation().sum(strategy.ask())

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(ledger, "commit", fail)
    before = strategy.theta.copy()
    with pytest.raises(OSError, match="disk full"):
        strategy.learn(answer)
    assert (strategy.theta == before).all()
    assert strategy.round == 0


def test_every_round_is_reserved_and_committed_once(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    train(gradient(ledger), federation())
    assert events(ledger) == [
        (kind, index) for index in range(ROUNDS) for kind in (Kind.RESERVED, Kind.COMMITTED)
    ]
    assert ledger.spent().guarantee.epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("crash_after", range(ROUNDS + 1))
def test_a_run_taken_up_again_replays_its_releases_and_never_noises_one_twice(
    tmp_path: Path, crash_after: int
) -> None:
    ledger, world = ledger_at(tmp_path), federation()
    first = gradient(ledger)
    seen = []
    for _ in range(crash_after):
        first.learn(world.sum(first.ask()))
        seen.append(first.theta.copy())
    asked = first.ask()  # reserved, and then the process dies
    second = gradient(ledger)
    query = second.ask()
    if crash_after == ROUNDS:
        assert asked is query is None
    else:
        assert query.round == crash_after
    if seen:
        assert (second.theta == seen[-1]).all()
    train(second, world)
    assert len(events(ledger)) == 2 * ROUNDS
    assert ledger.spent().guarantee.epsilon == pytest.approx(1.0)
    ledger.verify()


def test_fresh_noise_on_a_committed_round_is_impossible(tmp_path: Path) -> None:
    """Two processes race on one round: the ledger keeps one release, the other is refused."""
    ledger, world = ledger_at(tmp_path), federation()
    one, two = gradient(ledger), gradient(ledger)
    first, second = one.ask(), two.ask()
    one.learn(world.sum(first))
    with pytest.raises(RuntimeError, match="another release"):
        two.learn(world.sum(second))
    assert two.round == 0
    two.ask()
    assert (two.theta == one.theta).all()


def test_a_run_does_not_start_when_the_budget_of_the_data_is_spent(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    train(build("gradient-perturbation", TASK, rounds=ROUNDS, ledger=ledger, run="a"), federation())
    late = build("gradient-perturbation", TASK, rounds=ROUNDS, ledger=ledger, run="b")
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        late.ask()
    assert len(events(ledger)) == 2 * ROUNDS


def test_a_run_keeps_what_it_learned_when_the_budget_ends_in_mid_run(tmp_path: Path) -> None:
    ledger, world = ledger_at(tmp_path), federation()
    # Two of four rounds fit beside the two that another run takes in between.
    one = build("gradient-perturbation", TASK, rounds=ROUNDS, ledger=ledger, run="one")
    two = build("gradient-perturbation", TASK, rounds=ROUNDS, ledger=ledger, run="two")
    for strategy in (one, two, one, two):
        query = strategy.ask()
        assert query is not None
        strategy.learn(world.sum(query))
    model = one.theta.copy()
    assert one.ask() is None
    assert "Nothing was released" in one.stopped
    assert (one.theta == model).all()
    assert one.ask() is None
    assert len(events(ledger)) == 8


def test_sampled_rounds_are_declared_as_a_whole(tmp_path: Path) -> None:
    ledger = Ledger.create(
        tmp_path / "l.db",
        data_name="data",
        budget=Budget(epsilon=1.0, delta=1e-6),
        adjacency="add-remove",
        composition="basic",
    )
    options: dict[str, Any] = {"rounds": 3, "sampling_rate": 0.2, "adjacency": "add-remove"}
    strategy = build("gradient-perturbation", TASK, ledger=ledger, **options)
    train(strategy, federation())
    assert [row.kind for row in ledger.rows()].count(Kind.DECLARED) == 1
    assert len(events(ledger)) == 6
    assert ledger.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-3)


def test_a_ledger_that_adds_epsilons_gets_gaussian_rounds_declared(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, composition="basic")
    train(gradient(ledger), federation())
    assert [row.kind for row in ledger.rows()].count(Kind.DECLARED) == 1


def test_a_pure_release_is_charged_its_epsilon(tmp_path: Path) -> None:
    ledger = Ledger.create(
        tmp_path / "l.db",
        data_name="data",
        budget=Budget(epsilon=1.0, delta=0.0),
        adjacency="replace-one",
    )
    for name, epsilon in (("output-perturbation", 0.25), ("objective-perturbation", 0.75)):
        train(build(name, TASK, epsilon=epsilon, delta=0.0, ledger=ledger, run=name), federation())
    assert ledger.spent().guarantee.epsilon == pytest.approx(1.0)


class Recorder:
    """Passes sums on, and remembers what was asked."""

    def __init__(self, inner: Federation) -> None:
        self.inner = inner
        self.sizes = inner.sizes
        self.asked: list[Query] = []

    def sum(self, query: Query) -> Sum:
        self.asked.append(query)
        return self.inner.sum(query)


def test_a_joint_fit_is_one_release_of_many_exchanges(tmp_path: Path) -> None:
    ledger, recorder = ledger_at(tmp_path), Recorder(federation())
    train(build("output-perturbation", TASK, fit="joint", ledger=ledger), recorder)
    assert len(recorder.asked) > 3
    assert {query.round for query in recorder.asked} == {0}
    assert events(ledger) == [(Kind.RESERVED, 0), (Kind.COMMITTED, 0)]


def test_seeded_noise_is_refused_where_something_is_really_released(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    strategy = gradient(ledger)
    strategy._run = replace(strategy._run, noise=streams(0, "noise"))
    answer = federation().sum(strategy.ask())
    with pytest.raises(RuntimeError, match=r"RandomStream\.from_os"):
        strategy.learn(answer)
    assert events(ledger) == [(Kind.RESERVED, 0)]


def test_a_sum_that_was_not_asked_for_is_not_released() -> None:
    strategy = gradient(None)
    query = strategy.ask()
    answer = federation().sum(query)
    with pytest.raises(RuntimeError, match="not asked for"):
        gradient(None).learn(answer)
    with pytest.raises(RuntimeError, match="not asked for"):
        strategy.learn(replace(answer, step=answer.step / 2))
    strategy.ask()
    strategy.learn(answer)
    with pytest.raises(RuntimeError, match="not asked for"):
        strategy.learn(answer)
    assert strategy.round == 1


def test_a_plan_for_another_task_is_refused() -> None:
    plan = gradient(None).plan
    with pytest.raises(ValueError, match="records is 50, the task's 60"):
        GradientPerturbation(
            task=linear_task((30, 30), WIDTH),
            plan=plan,
            optimiser=Sgd(learning_rate=1.0),
            run=Run(name="r", noise=streams(0, "n")),
        )


def test_a_plan_without_a_clip_is_no_plan_for_gradients() -> None:
    plan = build("output-perturbation", TASK).plan
    assert plan is not None
    with pytest.raises(ValueError, match="clip_norm"):
        GradientPerturbation(
            task=TASK,
            plan=plan,
            optimiser=Sgd(learning_rate=1.0),
            run=Run(name="r", noise=streams(0, "n")),
        )


def test_the_model_cannot_be_changed_from_outside() -> None:
    strategy = gradient(None)
    with pytest.raises(ValueError, match="read-only"):
        strategy.theta[0] = 1.0


def test_a_sum_of_nobody_does_not_exist() -> None:
    with pytest.raises(ValueError, match="nobody answered"):
        Sum(total=np.zeros(3, np.int64), step=1.0, sizes=())
    with pytest.raises(ValueError, match="int64"):
        Sum(total=np.zeros(3, np.int32), step=1.0, sizes=(1,))


def test_a_round_is_asked_again_after_nobody_answered() -> None:
    strategy = gradient(None)
    first, again = strategy.ask(), strategy.ask()
    assert first.round == again.round == 0
    assert (first.theta == again.theta).all()
    train(strategy, SilentFederation(TASK, sampling=streams(0, "p")))
    assert strategy.round == ROUNDS


def test_a_strategy_without_a_plan_does_not_run_on_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plan must be given for a run on a ledger"):
        build("non-private", TASK, ledger=ledger_at(tmp_path))


def test_a_sum_without_a_reservation_is_not_released(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    strategy = gradient(ledger)
    answer = federation().sum(strategy.ask())
    strategy._reservation = None
    with pytest.raises(RuntimeError, match="must be reserved"):
        strategy.learn(answer)
    assert events(ledger) == [(Kind.RESERVED, 0)]
    assert strategy.round == 0


def test_a_stored_release_of_another_model_is_refused(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path)
    first = gradient(ledger)
    ledger.commit(ledger.reserve(first.plan.event(0), run="run", round=0), bytes(8 * WIDTH + 8))
    with pytest.raises(ValueError, match="run of another model"):
        first.ask()
    assert first.round == 0


@pytest.mark.parametrize("composition", ["auto", "basic"])
def test_a_release_of_which_only_a_pair_is_known_is_charged_the_pair(
    tmp_path: Path, composition: str
) -> None:
    ledger = ledger_at(tmp_path, composition=composition)
    train(
        build("objective-perturbation", TASK, epsilon=0.75, delta=5e-7, ledger=ledger), federation()
    )
    spent = ledger.spent().guarantee
    assert (spent.epsilon, spent.delta) == (0.75, 5e-7)
    ledger.verify()
    late = build("objective-perturbation", TASK, epsilon=0.2, delta=6e-7, ledger=ledger, run="b")
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        late.ask()


def test_a_release_asks_nothing_before_its_ledger_is_attached(tmp_path: Path) -> None:
    """Built and checked first; then, and only then, its ledger pays."""
    strategy = build("gradient-perturbation", TASK, rounds=ROUNDS, release=True)
    with pytest.raises(RuntimeError, match="a release needs its ledger"):
        strategy.ask()
    with ledger_at(tmp_path) as ledger:
        strategy.attach(
            Run(name="run", noise=lambda _: RandomStream.from_os(), ledger=ledger, release=True)
        )
        assert not events(ledger)
        train(strategy, federation())
        assert len(events(ledger)) == 2 * ROUNDS
        with pytest.raises(RuntimeError, match="belongs to its run"):
            strategy.attach(Run(name="other", noise=streams(0, "noise"), ledger=ledger))


def test_a_strategy_that_was_built_for_a_simulation_stays_in_simulations(tmp_path: Path) -> None:
    """Forms for study are refused when a release is built: a ledger must not come in later."""
    with pytest.raises(ValueError, match="for study in a simulation"):
        build("output-perturbation", TASK, law="unsound-laplace", release=True)
    with pytest.raises(ValueError, match="for study in a simulation"):
        build("objective-perturbation", TASK, law="unsound-objective", release=True)
    strategy = build("output-perturbation", TASK, law="unsound-laplace")
    with ledger_at(tmp_path) as ledger, pytest.raises(ValueError, match=r"run\.release must be"):
        strategy.attach(Run(name="run", noise=streams(0, "noise"), ledger=ledger))
