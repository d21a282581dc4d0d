"""Adaptive clipping: gradients and counts are one release, and the bound moves the right way."""

from __future__ import annotations

from math import exp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.guard import Policy, check_query
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.accountants import GdpAccountant, account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, SkellamEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.coordinate_scale import coordinate_scale
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
        total = np.zeros(query.answer_width(TASK), np.int64)
        if query.counting is not None:
            total[-1] = round(query.counting * (self.share - 0.5) * N / query.grid.step)
        return Sum(total=total, step=query.grid.step, sizes=SIZES)


def plan_of(strategy: SumStrategy) -> FixedPlan:
    assert isinstance(strategy.plan, FixedPlan)
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
    assert plan.rounds == 17  # one release a round, whatever is counted
    spent = GdpAccountant(adjacency=adjacency).compose_all(
        (plan.event(index), 1) for index in range(plan.rounds)
    )
    assert spent.epsilon(1e-6) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_count_has_its_share_of_what_a_round_costs(adjacency: Adjacency) -> None:
    """One Gaussian vector: the squares of its two blocks, each by the noise that both have."""
    for share in (0.05, 0.2):
        strategy = build(
            "adaptive-clipping", TASK, rounds=3, count_share=share, adjacency=adjacency.value
        )
        query, mechanism = strategy.ask(), plan_of(strategy).mechanisms[0]
        assert isinstance(query, GradientQuery)
        assert isinstance(mechanism, GaussianMechanism)
        assert query.counting is not None
        moved = adjacency.sum_sensitivity * query.counting / 2
        assert (moved / mechanism.sensitivity) ** 2 == pytest.approx(share, rel=0.02)
        whole = adjacency.sum_sensitivity * sqrt(1 + query.counting**2 / 4)
        assert whole <= mechanism.sensitivity <= 1.02 * whole


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
    strategy = build(
        "adaptive-clipping", TASK, rounds=60, clip=1.0, clip_rate=5.0, learning_rate=1e-9
    )
    train(strategy, Counting(share))
    assert 2.0**-6 <= clip_of(strategy) <= 2.0**6


def test_noise_follows_the_bound_at_the_same_cost() -> None:
    """Sums are in units of C: the same noise on them is less noise on gradients as C falls."""
    strategy = build("adaptive-clipping", TASK, rounds=12, learning_rate=1e-6)
    asked: list[Any] = []
    while (query := strategy.ask()) is not None:
        asked.append(query)
        strategy.learn(WHOLE.sum(query))
    assert asked[-1].clip_norm < 0.8 * asked[0].clip_norm  # unit features: norms of 1/2 at most
    assert len({(query.event, query.counting, query.grid) for query in asked}) == 1


@pytest.mark.parametrize(("share", "clip"), [(1.0, 2.0**-19), (0.0, 2.0**29)])
def test_the_bound_stays_where_gradients_can_be_clipped_to_it(share: float, clip: float) -> None:
    """Beyond, a party refuses: a run ended there, after its last rounds were paid for."""
    strategy = build("adaptive-clipping", TASK, rounds=9, clip=clip, clip_rate=5.0, epsilon=50.0)
    while (query := strategy.ask()) is not None:
        check_query(query, TASK, Policy())
        strategy.learn(Counting(share).sum(query))
    assert clip_of(strategy) in (2.0**-20, 2.0**30)


@pytest.mark.parametrize("clip", [2.0**-21, 2.0**31])
@pytest.mark.parametrize(
    "name", ["gradient-perturbation", "adaptive-clipping", "agd", "learned-protection"]
)
def test_a_bound_that_cannot_be_clipped_to_is_refused_before_it_is_paid_for(
    name: str, clip: float
) -> None:
    with pytest.raises(ValueError, match="clip_norm must lie in"):
        build(name, TASK, clip=clip)


@pytest.mark.parametrize("rule", RULES)
def test_no_bound_is_larger_than_the_largest(rule: str) -> None:
    """Parties of a deployment refuse what is beyond their max_clip."""
    strategy = build(
        "adaptive-clipping", TASK, rule=rule, rounds=20, clip_rate=1.0, clip=0.5, largest_clip=0.6
    )
    bounds = []
    while (query := strategy.ask()) is not None:
        assert isinstance(query, GradientQuery)
        bounds.append(query.record_bound(TASK))
        strategy.learn((Counting(0.0) if rule == "quantile" else WHOLE).sum(query))
    assert max(bounds) == pytest.approx(0.6)
    assert max(bounds) <= 0.6


@pytest.mark.parametrize("rule", RULES)
def test_parties_bring_the_noise_in_shares(rule: str) -> None:
    """One share on every number of an answer, the count's as well; charged by its own theorem."""
    options: dict[str, Any] = {"rule": rule, "rounds": 5, "sharing": {}, "epsilon": 2.0}
    strategy = build("adaptive-clipping", TASK, **options)
    query = strategy.ask()
    assert query is not None
    assert query.share is not None
    assert isinstance(query.event, SkellamEvent)
    check_query(query, TASK, Policy())  # a party finds the same event from its own numbers
    plan = plan_of(train(build("adaptive-clipping", TASK, **options), WHOLE))
    assert plan.noise_at == "parties"
    spent = account(plan.releases, delta=1e-6, accountant="rdp").epsilon
    assert spent == pytest.approx(2.0, rel=1e-4)


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


def test_the_size_of_a_scale_is_fixed_or_the_best_for_its_spread() -> None:
    """The paper's scale has E‖w‖² = Σs²/b² = 1, and no other such one has a smaller Σb²."""
    rng = np.random.default_rng(2)
    spread = rng.gamma(1.0, size=20)
    scale = coordinate_scale(spread, clip=3.0, size="adaptive")
    assert np.sum((spread / scale) ** 2) == pytest.approx(1)
    assert np.sum(scale**2) == pytest.approx(spread.sum() ** 2)
    for _ in range(50):
        other = scale * np.exp(0.3 * rng.normal(size=20))
        other *= sqrt(np.sum((spread / other) ** 2))
        assert np.sum(other**2) > np.sum(scale**2)
    fixed = coordinate_scale(spread, clip=3.0, size="fixed")
    assert np.square(fixed).mean() == pytest.approx(9)
    assert fixed / scale == pytest.approx(np.full(20, fixed[0] / scale[0]))  # of the same shape


def test_an_adaptive_size_follows_the_releases_and_stays_within_its_bounds() -> None:
    """Deviations of a mean of thousands are small, so it shrinks; noise among them keeps it up."""
    options: dict[str, Any] = {"least_variance": 1e-6, "most_variance": 1e-2, "clip": 1e6}

    def sizes(epsilon: float) -> list[float]:
        strategy = build(
            "adaptive-clipping", TASK, rule="coordinate", size="adaptive", rounds=30,
            epsilon=epsilon, **options,
        )  # fmt: skip
        found = []
        while (query := strategy.ask()) is not None:
            assert isinstance(query, GradientQuery)
            assert query.scale is not None
            found.append(float(np.sqrt(np.square(query.scale).mean())))
            strategy.learn(WHOLE.sum(query))
        return found

    clear, noisy = sizes(50.0), sizes(0.01)
    low, high = sqrt(WIDTH * 1e-6), sqrt(WIDTH * 1e-2)
    assert all(low <= size <= high for size in (*clear, *noisy))
    assert clear[0] == pytest.approx(sqrt(WIDTH * 1e-4))  # √(h₁·h₂) before anything is released
    assert clear[-1] < clear[0] / 2
    assert noisy[-1] > 2 * clear[-1]


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
