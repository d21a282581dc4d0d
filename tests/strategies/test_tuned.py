"""The best of a random number of trials: its law as a whole, and how trials end."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import norm

from fedpriv.federation.federation import Sum
from fedpriv.federation.queries.kinds import AccuracyQuery
from fedpriv.federation.strategy.base import Run
from fedpriv.learning.optimisers import Sgd
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.privacy.planning.tuning.trials import base_mu, score_noise, trial_budget
from fedpriv.privacy.planning.tuning.tuning import BestOfTrials, TuningPlan
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.trial_score import TrialScore
from fedpriv.strategies.gradient_perturbation import GradientPerturbation
from fedpriv.strategies.tuned import Setting, Tuned
from tests.federation.worlds import linear_task, streams
from tests.statistical import assert_counts_follow, assert_distribution_follows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.privacy.planning.fixed_plan import FixedPlan

ONE = Adjacency.REPLACE_ONE
TASK = linear_task((40,), 1)
LAW = TrialCount.with_mean(3.0)
BUDGET = Budget(epsilon=1.0, delta=1e-6)
MU = base_mu(budget=BUDGET, law=LAW, adjacency=ONE)
RATE = 10.0
RUNS = 500


@cache
def trial_plan(clip: float) -> FixedPlan:
    return gradient_plan(
        budget=trial_budget(MU, score_share=0.1, delta=1e-6),
        rounds=1,
        sensitivity=2 * clip,
        clip_norm=clip,
        sizes=TASK.sizes,
        dimension=1,
        step=2.0**-30,
        adjacency=ONE,
    )


@cache
def tuning_plan(clips: tuple[float, ...], law: TrialCount) -> TuningPlan:
    noise = score_noise(MU, score_share=0.1, sensitivity=2.0, adjacency=ONE, unit=Unit.RECORD)
    return TuningPlan(
        strategy="tuned",
        query="sums",
        released="the best",
        budget=Budget(epsilon=9.0, delta=1e-6),  # whatever the law
        mechanisms=(BestOfTrials(base_mu=MU, law=law, score=noise, adjacency=ONE),),
        trials=tuple(map(trial_plan, clips)),
        parties=1,
        records=40,
        smallest_party=40,
        dimension=1,
        step=2.0**-10,
    )


def tuned(
    run: int,
    clips: tuple[float, ...] = (1.0, 3.0),
    *,
    kind: type[Tuned] = Tuned,
    law: TrialCount = LAW,
    rate: float = RATE,
) -> Tuned:
    """One step of each setting, from zero; the noise of a setting grows with its clip norm."""

    def setting(clip: float) -> Setting:
        def build(trial: Run) -> GradientPerturbation:
            return GradientPerturbation(
                task=TASK, plan=trial_plan(clip), optimiser=Sgd(learning_rate=rate), run=trial
            )

        return Setting(values={"strategy.clip": clip}, build=build)

    return kind(
        task=TASK,
        plan=tuning_plan(clips, law),
        settings=[setting(clip) for clip in clips],
        score=TrialScore(task=TASK, kind="accuracy"),
        run=Run(name="tiny", noise=streams(run, "tiny")),
    )


class ScoringFederation:
    """Gradients are zero, and how many records a model is right about is what ``score`` says."""

    def __init__(self, score: Callable[[float], float]) -> None:
        self.score, self.queries = score, list[Any]()

    def sum(self, query: Query) -> Sum:
        self.queries.append(query)
        total = np.zeros(query.answer_width(TASK), np.int64)
        if isinstance(query, AccuracyQuery):
            total[0] = round(self.score(float(query.theta[0])) / query.grid.step)
        return Sum(total=total, step=query.grid.step, sizes=TASK.sizes)


def run_through(strategy: Tuned, federation: ScoringFederation) -> Tuned:
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
    return strategy


def generating(law: TrialCount, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """E x^K of the logarithmic law."""
    return np.asarray(np.log1p(-(1 - law.gamma) * x) / np.log(law.gamma))


def spread(clip: float) -> float:
    """The standard deviation of a setting's model."""
    return RATE * trial_plan(clip).mechanisms[0].noise_stddev / 40


@cache
def by_model(kind: type[Tuned] = Tuned) -> np.ndarray[Any, Any]:
    """Released models of trials that are ranked by them: the noise of a score is far smaller."""
    federation = ScoringFederation(lambda theta: 1e7 * theta)
    return np.array(
        [run_through(tuned(run, kind=kind), federation).theta[0] for run in range(RUNS)]
    )


def one_trial(theta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The law of the model of one trial, with either setting."""
    return np.asarray(np.mean([norm.cdf(theta / spread(clip)) for clip in (1.0, 3.0)], axis=0))


def largest(theta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The law of the largest of a random number of them."""
    return generating(LAW, one_trial(theta))


def test_what_is_released_is_the_best_of_a_random_number_of_trials() -> None:
    """A correct selection fails with probability 1e-9."""
    assert_distribution_follows(by_model(), largest)


class FixedNumber(Tuned):
    """The mean number of trials, always."""

    def _select(self) -> Generator[Query, Sum, Any]:
        first = yield from self._try(self._repeatable(1))
        second = yield from self._try(self._repeatable(2))
        third = yield from self._try(self._repeatable(3))
        return max((first, second, third), key=lambda trial: trial.rank)


def test_that_test_has_teeth() -> None:
    """A fixed number of trials, half the noise, and one trial instead of the best are caught."""
    for models, law in (
        (by_model(FixedNumber), largest),
        (by_model() / 2, largest),
        (by_model(), one_trial),
    ):
        with pytest.raises(AssertionError, match="outside the band"):
            assert_distribution_follows(models, law)


CLIPS = (1.0, 2.0, 4.0)
MANY = TrialCount.with_mean(10.0)


def drawn_pairs(kind: type[Tuned] = Tuned) -> np.ndarray[Any, Any]:
    """How often each pair of settings is drawn one after the other, by disjoint pairs of trials."""
    pairs = np.zeros((len(CLIPS), len(CLIPS)), np.int64)
    for run in range(100):
        federation = ScoringFederation(lambda theta: theta)
        run_through(tuned(run, CLIPS, kind=kind, law=MANY), federation)
        asked = [query.clip_norm for query in federation.queries if query.kind == "gradient"]
        for one, other in zip(asked[::2], asked[1::2], strict=False):
            pairs[CLIPS.index(one), CLIPS.index(other)] += 1
    return pairs.ravel()


def test_settings_are_drawn_uniformly_and_with_replacement() -> None:
    """A correct draw fails with probability 1e-9."""
    assert_counts_follow(drawn_pairs(), np.full(9, 1 / 9))


class WithoutReplacement(Tuned):
    """A random order of the grid, gone through as often as it takes."""

    def _select(self) -> Generator[Query, Sum, Any]:
        first, best = self._repeatable(0), None
        order, every = first.permutation(len(CLIPS)), self._settings
        for number in range(MANY.draw(first)):
            turn = int(order[number % len(CLIPS)])
            self._settings, self._plan = (every[turn],), tuning_plan((CLIPS[turn],), MANY)
            trial = yield from self._try(self._repeatable(number + 1))
            best = trial if best is None or trial.rank > best.rank else best
        self._settings = every
        return best


def test_a_grid_without_replacement_is_caught() -> None:
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(drawn_pairs(WithoutReplacement), np.full(9, 1 / 9))


def test_ties_are_broken_by_a_uniform_variable() -> None:
    """All scores are equal, noise aside, which is taken away: any trial may win, not the first."""

    class NoNoise(Tuned):
        def _try(self, stream: RandomStream) -> Generator[Query, Sum, Any]:
            trial = yield from super()._try(stream)
            return replace(trial, score=0.0)

    several = TrialCount.with_mean(5.0, eta=1.0)
    firsts = 0
    for run in range(60):
        federation = ScoringFederation(lambda _: 0.0)
        strategy = run_through(tuned(run, kind=NoNoise, law=several), federation)
        asked = [query.theta[0] for query in federation.queries if isinstance(query, AccuracyQuery)]
        firsts += len(asked) > 1 and strategy.theta[0] == asked[0]
    assert 0 < firsts < 35  # a fair draw has 12 in the mean, of 48 with several trials


def test_a_trial_that_diverges_is_the_worst_and_no_error() -> None:
    federation = ScoringFederation(lambda theta: float(np.clip(theta, -1e6, 1e6)))
    finite = run_through(tuned(0), federation)
    assert finite.stopped == ""
    outcomes = [run_through(tuned(run, (3.0, 30.0), rate=1.7e308), federation) for run in range(40)]
    assert all(np.isfinite(outcome.theta).all() for outcome in outcomes)
    assert {bool(outcome.stopped) for outcome in outcomes} == {True, False}
    assert all(outcome.round == 1 for outcome in outcomes)


def test_the_same_streams_draw_the_same_trials_and_others_are_refused() -> None:
    federation = ScoringFederation(lambda theta: theta)
    once, again = (run_through(tuned(5), federation) for _ in range(2))
    np.testing.assert_array_equal(once.theta, again.theta)
    assert once.chosen == again.chosen
    fresh = tuned(5)
    fresh.attach(Run(name="tiny", noise=lambda _: RandomStream.from_os()))
    with pytest.raises(RuntimeError, match="would draw another number of trials"):
        fresh.ask()


def test_a_trial_must_follow_the_plan_of_its_setting() -> None:
    strategy = tuned(0)
    loud = tuned(0, (0.1, 0.2))
    strategy._settings = loud._settings
    with pytest.raises(RuntimeError, match="must follow the plan of its setting"):
        strategy.ask()
    with pytest.raises(ValueError, match="settings must be those of the plan, 2, got 1"):
        Tuned(
            task=TASK,
            plan=loud._plan,
            settings=loud._settings[:1],
            score=TrialScore(task=TASK, kind="accuracy"),
            run=Run(name="x", noise=streams(0, "x")),
        )
