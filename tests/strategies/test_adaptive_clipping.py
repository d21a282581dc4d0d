"""Adaptive clipping: both queries are paid for, and the bound moves the right way."""

from __future__ import annotations

from math import exp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import build, linear_task, random_data, streams, train

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy

SIZES, WIDTH = (3000, 1500), 4
N = sum(SIZES)
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
RULES = ("quantile", "coordinate")
WHOLE = VectorizedFederation(random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "p"))


class Counting:
    """Parties with zero gradients, of which a stated share is not clipped."""

    def __init__(self, share: float) -> None:
        self.sizes, self.share = SIZES, share

    def sum(self, query: Query) -> Sum:
        assert isinstance(query, GradientQuery)
        total = np.zeros(WIDTH + query.counted, np.int64)
        if query.counted:
            total[-1] = round(self.share * N / query.grid.step)
        return Sum(total=total, step=query.grid.step, sizes=SIZES)


def plan_of(strategy: SumStrategy) -> AdaptivePlan:
    assert isinstance(strategy.plan, AdaptivePlan)
    return strategy.plan


def clip_of(strategy: SumStrategy) -> float:
    return float(strategy._clip)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_all_rounds_fit_and_fill_the_budget(rule: str, adjacency: Adjacency) -> None:
    strategy = train(
        build("adaptive-clipping", TASK, rule=rule, rounds=17, adjacency=adjacency.value), WHOLE
    )
    plan = plan_of(strategy)
    assert strategy.round == 17  # the last one is not lost to rounding
    assert plan.rounds == (34 if rule == "quantile" else 17)
    spent = GdpAccountant(adjacency=adjacency).compose_all(
        (plan.event(index), 1) for index in range(plan.rounds)
    )
    assert spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-9)


def test_the_two_queries_add_up_to_the_event_that_parties_are_told() -> None:
    """μ² of the sum of gradients plus μ² of the count, round by round."""
    strategy = build("adaptive-clipping", TASK, rounds=3, count_share=0.2)
    while (query := strategy.ask()) is not None:
        strategy.learn(WHOLE.sum(query))
        assert isinstance(query.event, GaussianEvent)
        plan = plan_of(strategy)
        gradient, count = (plan.event(plan.rounds - back) for back in (2, 1))
        assert isinstance(gradient, GaussianEvent)
        assert isinstance(count, GaussianEvent)
        squares = [event.relative_noise**-2 for event in (gradient, count)]
        assert query.event.relative_noise**-2 == pytest.approx(sum(squares), rel=1e-9)
        assert squares[1] / sum(squares) == pytest.approx(0.2)


@pytest.mark.parametrize(("share", "falls"), [(0.9, True), (0.5, None), (0.1, False)])
def test_the_bound_shrinks_when_more_than_the_wanted_share_is_short(
    share: float, falls: bool | None
) -> None:
    """One round moves C by exp(−η(share − q)), up to the noise of the count."""
    strategy = build("adaptive-clipping", TASK, rounds=1, epsilon=100.0, delta=0.1, clip_rate=0.5)
    train(strategy, Counting(share))
    assert clip_of(strategy) == pytest.approx(exp(-0.5 * (share - 0.5)), rel=1e-2)
    if falls is not None:
        assert (clip_of(strategy) < 1) is falls


def test_the_bound_settles_at_the_quantile_of_the_norms() -> None:
    strategy = build("adaptive-clipping", TASK, rounds=60, quantile=0.3, epsilon=5.0)
    train(strategy, WHOLE)
    query = GradientQuery(
        run="r",
        round=0,
        grid=FixedPoint(step=2.0**-12),
        event=GaussianEvent(adjacency=Adjacency.REPLACE_ONE, relative_noise=1.0),
        theta=strategy.theta,
        clip_norm=clip_of(strategy),
    )
    below = 1 - WHOLE.sum(query).diagnostics["clipped"]
    assert below == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_bound_stays_within_the_range_that_the_grid_is_made_for(share: float) -> None:
    strategy = build("adaptive-clipping", TASK, rounds=60, clip_rate=5.0, learning_rate=1e-9)
    train(strategy, Counting(share))
    assert 2.0**-6 <= clip_of(strategy) <= 2.0**6


def test_noise_follows_the_bound_at_the_same_cost() -> None:
    strategy = train(build("adaptive-clipping", TASK, rounds=12, learning_rate=1e-6), WHOLE)
    plan = plan_of(strategy)
    first, *_, last = plan.part()
    assert isinstance(first, GaussianMechanism)
    assert isinstance(last, GaussianMechanism)
    assert last.stddev < 0.8 * first.stddev  # unit features: norms of 1/2 at most, so C fell
    assert last.event().relative_noise == pytest.approx(first.event().relative_noise, rel=1e-12)


def test_coordinates_with_more_to_say_get_a_wider_scale() -> None:
    """The outer of the four weights are the largest in `random_data`; scales are relative to C."""
    strategy = build("adaptive-clipping", TASK, rule="coordinate", rounds=8, epsilon=20.0)
    scales: list[Any] = []
    while (query := strategy.ask()) is not None:
        assert isinstance(query, GradientQuery)
        assert query.clip_norm == 1.0
        scales.append(query.scale)
        strategy.learn(WHOLE.sum(query))
    assert (scales[0] == scales[0][0]).all()
    assert scales[-1][[0, 3]].min() > scales[-1][[1, 2]].max()
    for scale in scales:
        assert sqrt(np.square(scale).mean()) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", RULES)
def test_adaptive_clipping_learns(rule: str) -> None:
    best = train(build("pooled", TASK), WHOLE).theta
    found = train(build("adaptive-clipping", TASK, rule=rule, rounds=30, epsilon=2.0), WHOLE).theta
    assert found @ best / np.linalg.norm(found) / np.linalg.norm(best) > 0.98


@pytest.mark.parametrize("rule", RULES)
def test_a_run_taken_up_from_a_checkpoint_ends_as_if_uninterrupted(rule: str) -> None:
    options: dict[str, Any] = {"rule": rule, "rounds": 6, "optimiser": "adam", "learning_rate": 0.1}
    whole, broken, again = (build("adaptive-clipping", TASK, **options) for _ in range(3))
    train(whole, WHOLE)
    while broken.round < 3:
        query = broken.ask()
        assert query is not None
        broken.learn(WHOLE.sum(query))
    again.restore(broken.checkpoint())
    assert (train(again, WHOLE).theta == whole.theta).all()
