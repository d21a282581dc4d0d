"""Adaptive gradient descent: whatever it sees, it spends its budget and no more, and all of it."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.queries.kinds import GradientQuery, LossQuery
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, Selection
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import RdpFilter
from tests.federation.worlds import build, linear_task, random_data, streams, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query

SIZES, WIDTH = (40, 25), 3
TASK = linear_task(SIZES, WIDTH, regulariser=0.01)
FAR = 2**40  # a loss, in steps of the grid, that no noise makes up for


class Scripted:
    """Parties whose losses make candidate ``choose(query)`` the best by far; gradients are set."""

    def __init__(
        self,
        choose: Callable[[LossQuery], int],
        gradient: Callable[[], int | tuple[int, ...]] = lambda: 0,
    ) -> None:
        self.sizes = SIZES
        self.choose, self.gradient = choose, gradient
        self.asked: list[Query] = []

    def sum(self, query: Query) -> Sum:
        self.asked.append(query)
        if isinstance(query, LossQuery):
            total = np.full(len(query.points), FAR, np.int64)
            total[self.choose(query)] = 0
        else:
            total = np.array(np.broadcast_to(self.gradient(), WIDTH), np.int64)
        return Sum(total=total, step=query.grid.step, sizes=SIZES)


def plan_of(strategy: Any) -> AdaptivePlan:
    assert isinstance(strategy.plan, AdaptivePlan)
    return strategy.plan


@given(data=st.data(), epsilon=st.floats(0.01, 5), adjacency=st.sampled_from(list(Adjacency)))
@settings(max_examples=15, deadline=None)
def test_no_course_of_events_spends_more_than_the_budget(
    data: st.DataObject, epsilon: float, adjacency: Adjacency
) -> None:
    """Parties that choose every answer, after all that they have seen, to make it spend more."""
    options: dict[str, Any] = {
        "splits": data.draw(st.integers(1, 12)),
        "growth": data.draw(st.floats(0.05, 3)),
        "candidates": data.draw(st.integers(1, 4)),
        "selection": data.draw(st.sampled_from(["report-noisy-max", "exponential"])),
    }
    hostile = Scripted(
        lambda query: data.draw(st.integers(0, len(query.points) - 1)),
        lambda: data.draw(st.integers(-FAR, FAR)),
    )
    strategy = train(
        build("agd", TASK, epsilon=epsilon, adjacency=adjacency.value, **options), hostile
    )
    plan = plan_of(strategy)
    assert isinstance(plan.filter, RdpFilter)
    events = [plan.event(index) for index in range(plan.rounds)]
    spent = RdpAccountant(adjacency=adjacency, orders=(plan.filter.order,)).compose_all(
        (event, 1) for event in events
    )
    assert spent.epsilon(1e-6) <= epsilon * (1 + 1e-9)
    assert strategy.stopped
    assert plan.epsilon == epsilon  # the promise is the budget, whatever was found


@pytest.mark.parametrize("epsilon", [0.0125, 0.1, 1.0])
@pytest.mark.parametrize("splits", [1, 7, 60])
def test_no_scheduled_round_is_lost_to_rounding(epsilon: float, splits: int) -> None:
    """A gradient and a selection cost at most 1/s of the budget: s rounds always fit."""
    eager = Scripted(lambda query: len(query.points) - 1)
    strategy = train(build("agd", TASK, epsilon=epsilon, splits=splits), eager)
    assert splits <= strategy.round <= 1.05 * splits + 1
    assert plan_of(strategy).rounds == 2 * strategy.round


def test_the_release_is_charged_before_it_is_asked_for_and_once() -> None:
    strategy, stubborn = build("agd", TASK, splits=5), Scripted(lambda _: 0)
    exchanges = 0
    while (query := strategy.ask()) is not None:
        exchanges += 1
        plan = plan_of(strategy)
        assert plan.rounds == exchanges
        assert query.event == plan.event(exchanges - 1)
        strategy.learn(stubborn.sum(query))
    assert plan_of(strategy).rounds == exchanges


@pytest.mark.parametrize("chosen", [1, 2, 5])
def test_the_step_that_was_selected_is_the_step_that_is_taken(chosen: int) -> None:
    """Candidate i is i/k of the longest step, along a unit vector; candidate 0 is no step."""
    fixed = Scripted(lambda _: chosen)
    strategy = build("agd", TASK, candidates=5, largest_step=2.0, splits=3)
    for _ in range(2):
        query = strategy.ask()
        assert query is not None
        strategy.learn(fixed.sum(query))
    assert strategy.round == 1
    assert np.linalg.norm(strategy.theta) == pytest.approx(2.0 * chosen / 5)
    asked = fixed.asked[-1]
    assert isinstance(asked, LossQuery)
    assert (asked.points[0] == 0).all()
    np.testing.assert_array_equal(strategy.theta, asked.points[chosen])


def test_a_refused_step_buys_a_second_gradient_that_is_averaged_with_the_first() -> None:
    """It costs γ times the first one; later rounds start with 1 + γ times the precision."""
    answers = iter([0, 1, 1])
    strategy = build("agd", TASK, splits=20, growth=0.5)
    train(strategy, script := Scripted(lambda _: next(answers, 1)))
    first, second, third = [q for q in script.asked if isinstance(q, GradientQuery)][:3]
    events = [q.event for q in (first, second, third)]
    assert all(isinstance(event, GaussianEvent) for event in events)
    noise = [event.relative_noise for event in events if isinstance(event, GaussianEvent)]
    assert noise[1] == pytest.approx(noise[0] / sqrt(0.5))
    assert noise[2] == pytest.approx(noise[0] / sqrt(1.5))
    assert (second.theta == first.theta).all()


def test_the_average_of_two_gradients_is_weighted_by_precision() -> None:
    """Precisions 1 and γ = 1/2: a along one axis and as long along another give a slope of 2."""
    answers, sums = iter([0, 1]), iter([(FAR, 0, 0), (0, FAR, 0)])
    strategy = build("agd", TASK, splits=50, growth=0.5)
    script = Scripted(lambda _: next(answers), lambda: next(sums))
    for _ in range(4):
        query = strategy.ask()
        assert query is not None
        strategy.learn(script.sum(query))
    assert strategy.theta[0] < 0
    assert strategy.theta[0] / strategy.theta[1] == pytest.approx(2, rel=1e-3)


RULES: dict[str, type[Selection]] = {
    "report-noisy-max": ReportNoisyMax,
    "exponential": ExponentialMechanism,
}


@pytest.mark.parametrize("rule", RULES)
def test_losses_are_monotone_under_add_remove_adjacency_alone(rule: str) -> None:
    for adjacency, monotone in (("add-remove", True), ("replace-one", False)):
        strategy = train(
            build("agd", TASK, adjacency=adjacency, splits=2, selection=rule, loss_clip=1.25),
            Scripted(lambda _: 1),
        )
        (selection, *_) = plan_of(strategy).part("step-0")
        assert isinstance(selection, RULES[rule])
        assert selection.monotone is monotone
        assert selection.sensitivity == 1.25


def test_a_selection_costs_no_more_than_its_share() -> None:
    strategy = build("agd", TASK, splits=30)
    train(strategy, Scripted(lambda _: 1))
    plan = plan_of(strategy)
    share = plan.filter.limit / 60
    costs = {type(event): plan.filter.cost(event) for event in map(plan.event, range(plan.rounds))}
    assert costs[GaussianEvent] == pytest.approx(share, rel=1e-9)
    assert 0.9 * share < costs[PureEvent] <= share * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.0125, 0.2, 3.0])
def test_the_order_of_the_filter_wastes_little_of_the_budget(epsilon: float) -> None:
    """Of the Gaussian precision that exact accounting allows, at least five sixths."""
    budget = Budget(epsilon=epsilon, delta=1e-8)
    filter_ = RdpFilter.for_gaussians(budget=budget, adjacency="add-remove")
    precision = 2 * filter_.limit / filter_.order
    assert 5 / 6 <= precision / gdp_mu(epsilon=epsilon, delta=1e-8) ** 2 <= 1


def test_a_pure_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="delta must be positive for agd"):
        build("agd", TASK, delta=0.0)


def test_it_learns() -> None:
    data = random_data((1500, 700), WIDTH)
    task = linear_task((1500, 700), WIDTH, regulariser=0.01)
    federation = VectorizedFederation(data, task=task, sampling=streams(0, "p"))
    best = train(build("pooled", task), federation).theta
    found = train(build("agd", task, epsilon=4.0, clip=1.0), federation).theta
    assert found @ best / np.linalg.norm(found) / np.linalg.norm(best) > 0.9


def test_the_ledger_pays_release_by_release_and_a_crash_repeats_none(tmp_path: Path) -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    with Ledger.create(
        tmp_path / "ledger.db", budget=budget, adjacency="replace-one", data_name="made"
    ) as ledger:
        options: dict[str, Any] = {"splits": 4, "epsilon": 1.0, "ledger": ledger, "run": "real"}
        one = build("agd", TASK, **options)
        script = Scripted(lambda _: 1)
        for _ in range(3):  # two releases of the first round, one of the second
            query = one.ask()
            assert query is not None
            one.learn(script.sum(query))
        spent = ledger.spent()
        again = build("agd", TASK, **options)
        query = again.ask()  # replays what was committed, and asks for the fourth release
        assert isinstance(query, LossQuery)
        assert again.round == 1
        np.testing.assert_array_equal(again.theta, one.theta)
        assert ledger.spent().guarantee.epsilon > spent.guarantee.epsilon  # the fourth, reserved
        again.learn(script.sum(query))
        train(again, script)
        assert ledger.spent().guarantee.epsilon <= 2.0
        assert again.stopped
