"""Noise chosen on the way: every release is charged before it is made, and made once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy, Step
from fedpriv.federation.strategy.base import Run
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import GdpFilter
from fedpriv.privacy.randomness import RandomStream
from tests.federation.worlds import ledger_at, linear_task, random_data, streams, train

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.strategy.adaptive import Round

SIZES, WIDTH, STEP = (20, 30), 3, 2.0**-16
TASK = linear_task(SIZES, WIDTH)
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def gaussian(relative: float) -> GaussianMechanism:
    return GaussianMechanism(sensitivity=2.0, stddev=2 * relative, adjacency=Adjacency.REPLACE_ONE)


class Walker(AdaptiveStrategy):
    """A first look; then as many steps as it says, each with noise that follows from the looks."""

    name: ClassVar[str] = "walker"
    least: ClassVar[float] = 20.0

    def _play(self) -> Round:
        look, noisiest = gaussian(2 * self.least), gaussian(3 * self.least)
        if not self.paid.affords(look, noisiest):
            self.stopped = "spent"
            return
        first = self._ask_at(self._theta, look)
        (seen,) = yield Step(part="look", release=look, query=first, draw=partial(_one, look))
        mechanism = gaussian(self.least * (1 + 2 * float(1 / (1 + np.exp(-seen)))))
        same = self._ask_at(self._theta, mechanism)
        step = yield Step(
            release=mechanism, query=same, draw=partial(_all, mechanism), same_sum=True
        )
        if step[0] > 0:  # another sum, or not, as the release says
            second = self._ask_at(self._theta + 0.01, noisiest)
            again = yield Step(
                part="again", release=noisiest, query=second, draw=partial(_all, noisiest)
            )
            step = (step + again) / 2
        self._theta = self._theta - 0.001 * step

    def _ask_at(self, theta: np.ndarray[Any, Any], release: GaussianMechanism) -> GradientQuery:
        return GradientQuery(
            run=self._run.name,
            round=self._release_index,
            grid=grid_of(step=STEP, bound=50.0, parties=2),
            event=release.event(),
            theta=theta,
            clip_norm=1.0,
        )


def _one(mechanism: GaussianMechanism, answer: Sum, stream: RandomStream) -> Any:
    return mechanism.release(answer.total[:1].copy(), step=answer.step, stream=stream)


def _all(mechanism: GaussianMechanism, answer: Sum, stream: RandomStream) -> Any:
    return mechanism.release(answer.total, step=answer.step, stream=stream)


def walker(ledger: Ledger | None = None, *, rounds: int = 1000, seed: int = 0) -> Walker:
    noise = streams(seed, "noise") if ledger is None else lambda _: RandomStream.from_os()
    return Walker(
        task=TASK,
        plan=AdaptivePlan(
            strategy="walker",
            query="a sum",
            released="noisy sums",
            filter=GdpFilter(budget=BUDGET, adjacency=Adjacency.REPLACE_ONE),
            parties=2,
            records=50,
            smallest_party=20,
            dimension=WIDTH,
            step=STEP,
        ),
        rounds=rounds,
        run=Run(name="run", noise=noise, ledger=ledger),
    )


def federation() -> VectorizedFederation:
    return VectorizedFederation(
        random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "parties")
    )


def events(ledger: Ledger) -> list[tuple[str, str, int]]:
    return [(row.kind, row.run, row.round) for row in ledger.rows() if row.round >= 0]


def test_a_run_goes_on_until_its_budget_is_spent() -> None:
    done = walker()
    train(done, federation())
    assert done.stopped
    assert done.round > 5
    assert not done.paid.affords(gaussian(2 * Walker.least), gaussian(Walker.least))
    looks, steps = len(done.paid.part("look")), len(done.paid.part())
    assert done.round == steps <= looks <= steps + 1


def test_a_round_can_end_the_run_before_it_begins() -> None:
    strategy = walker()
    strategy.least = 1e-3  # type: ignore[misc]
    assert strategy.ask() is None
    assert strategy.stopped == "spent"
    assert not strategy.paid.made


def test_a_run_ends_at_its_last_round_if_that_comes_first() -> None:
    done = train(walker(rounds=3), federation())
    assert (done.round, done.stopped) == (3, "")


def test_a_release_is_charged_by_filter_and_ledger_before_its_query_exists(
    tmp_path: Path,
) -> None:
    ledger = ledger_at(tmp_path)
    strategy = walker(ledger)
    assert not strategy.paid.made
    strategy.ask()
    assert events(ledger) == [(Kind.RESERVED, "run/look", 0)]
    assert [part for part, _ in strategy.paid.made] == ["look"]
    strategy.ask()  # asked again: charged once
    assert len(strategy.paid.made) == 1


def test_releases_of_one_sum_are_each_charged_before_and_committed_after_they_are_drawn(
    tmp_path: Path,
) -> None:
    """And each is asked for by itself: parties pay for a release that they are told of."""
    ledger = ledger_at(tmp_path)
    strategy = walker(ledger)
    for made in range(2):
        assert len(events(ledger)) == 2 * made
        query = strategy.ask()
        assert query is not None
        assert (query.round, query.event) == (made, strategy.paid.event(made))
        strategy.learn(federation().sum(query))
    assert events(ledger)[:4] == [
        (Kind.RESERVED, "run/look", 0),
        (Kind.COMMITTED, "run/look", 0),
        (Kind.RESERVED, "run", 0),
        (Kind.COMMITTED, "run", 0),
    ]


def test_a_simulation_asks_once_for_releases_of_one_sum() -> None:
    strategy = walker()
    query = strategy.ask()
    assert query is not None
    strategy.learn(federation().sum(query))
    assert [part for part, _ in strategy.paid.made[:2]] == ["look", ""]


@pytest.mark.parametrize("change", [{"round": 1}, {"event": gaussian(19.0).event()}])
def test_a_query_for_another_release_than_is_proposed_is_not_put(change: dict[str, Any]) -> None:
    """A party would be charged for something else, or take two releases for one."""
    strategy = walker()

    def wrong() -> Round:
        query = replace(strategy._ask_at(np.zeros(WIDTH), gaussian(20.0)), **change)
        yield Step(release=gaussian(20.0), query=query, draw=partial(_all, gaussian(20.0)))

    strategy._play = wrong  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="number and event of the release"):
        strategy.ask()


def test_two_releases_of_one_seeded_round_do_not_share_their_noise() -> None:
    """On one sum with the same law: the second must not repeat the first."""
    drawn: list[float] = []

    def note(mechanism: GaussianMechanism, answer: Sum, stream: RandomStream) -> Any:
        release = _all(mechanism, answer, stream)
        drawn.append(float(release[0]))
        return release

    def twice() -> Round:
        same = gaussian(20.0)
        for part in ("one", "two"):
            query = strategy._ask_at(np.zeros(WIDTH), same)
            yield Step(
                part=part, release=same, query=query, draw=partial(note, same), same_sum=True
            )

    strategy = walker()
    strategy._play = twice  # type: ignore[method-assign]
    assert strategy.ask() is not None
    strategy.learn(Sum(total=np.zeros(WIDTH, np.int64), step=STEP, sizes=SIZES))
    assert len(drawn) == 2
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("commits", range(7))
def test_a_crash_anywhere_is_taken_up_without_a_second_draw_or_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """The process dies at the commit after so many; what was committed is used, bit for bit."""
    ledger, world = ledger_at(tmp_path), federation()
    commit, left = ledger.commit, commits
    stored: list[bytes] = []

    def dying(reservation: Any, release: bytes) -> Any:
        nonlocal left
        if left == 0:
            raise OSError("power is out")
        left -= 1
        stored.append(release)
        return commit(reservation, release)

    monkeypatch.setattr(ledger, "commit", dying)
    with pytest.raises(OSError, match="power is out"):
        train(walker(ledger), world)
    charged = len([e for e in events(ledger) if e[0] == Kind.RESERVED])
    left = 10**6
    done = walker(ledger)
    train(done, world)
    kinds = [kind for kind, _, _ in events(ledger)]
    assert kinds.count(Kind.RESERVED) == kinds.count(Kind.COMMITTED) == len(done.paid.made)
    assert charged == commits + 1
    assert len(set(stored)) == len(stored) == kinds.count(Kind.COMMITTED)
    ledger.verify()


def test_after_a_failed_commit_the_same_process_draws_under_the_same_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, world = ledger_at(tmp_path), federation()
    strategy, commit = walker(ledger, rounds=2), ledger.commit

    def fail(*_: object) -> None:
        raise OSError("disk full")

    query = strategy.ask()
    assert query is not None
    monkeypatch.setattr(ledger, "commit", fail)
    with pytest.raises(OSError, match="disk full"):
        strategy.learn(world.sum(query))
    monkeypatch.setattr(ledger, "commit", commit)
    train(strategy, world)
    kinds = [kind for kind, _, _ in events(ledger)]
    assert kinds.count(Kind.RESERVED) == kinds.count(Kind.COMMITTED) == len(strategy.paid.made)


def test_a_ledger_that_has_less_than_the_plan_ends_the_run_between_releases(
    tmp_path: Path,
) -> None:
    ledger = ledger_at(tmp_path, epsilon=0.3)
    done = walker(ledger)
    train(done, federation())
    assert "would spend epsilon" in done.stopped
    assert done.round > 0
    assert done.paid.filter.epsilon <= 0.3 * (1 + 1e-9)
    assert ledger.spent().guarantee.epsilon == pytest.approx(done.paid.filter.epsilon)


def test_a_ledger_that_affords_nothing_refuses_the_first_release(tmp_path: Path) -> None:
    ledger = ledger_at(tmp_path, epsilon=1e-4)
    with pytest.raises(BudgetExceeded):
        walker(ledger).ask()
    assert events(ledger) == []


def test_a_run_restored_from_a_checkpoint_ends_as_if_uninterrupted() -> None:
    world = federation()
    whole, broken, again = walker(), walker(), walker()
    train(whole, world)
    while broken.round < 3:
        query = broken.ask()
        assert query is not None
        broken.learn(world.sum(query))
    again.restore(broken.checkpoint())
    train(again, world)
    assert again.plan == whole.plan
    assert (again.theta == whole.theta).all()


def test_a_round_that_proposes_nothing_must_say_why() -> None:
    strategy = walker()
    strategy._play = lambda: iter(())  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(RuntimeError, match="proposed no release"):
        strategy.ask()


def test_between_rounds_nothing_of_a_sum_is_kept() -> None:
    strategy = walker(rounds=2)
    train(strategy, federation())
    assert [strategy._playing, strategy._step, strategy._noise] == [None] * 3
