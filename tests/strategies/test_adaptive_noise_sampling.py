"""Noise chosen on the way, on Poisson samples: one for every release, each of them paid for."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pytest

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.draws import draw
from fedpriv.federation.queries.kinds import GradientQuery, LossQuery
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import BoundedRangeEvent, PoissonGaussianEvent, PoissonPureEvent
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import GdpFilter, RdpFilter, least_noise, most_epsilon
from fedpriv.privacy.planning.plan import sampled
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import build, linear_task, random_data, streams, train

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query

A = Adjacency.ADD_REMOVE
SIZES, WIDTH = (400, 250), 3
TASK = linear_task(SIZES, WIDTH, regulariser=0.01)
BUDGET = Budget(epsilon=2.0, delta=1e-6)
NAMES = ("agd", "learned-protection")
SHORT: dict[str, dict[str, Any]] = {
    "agd": {"splits": 8},
    "learned-protection": {"horizon": 6},
}


def divergence(noise: float, rate: float, order: float) -> float:
    """D_α of a sampled Gaussian release, both ways, by integration to 20 digits."""
    mpmath.mp.dps = 20
    z, q, a = mpmath.mpf(noise), mpmath.mpf(rate), mpmath.mpf(order)

    def without(x: Any) -> Any:
        return mpmath.npdf(x, 0, z)

    def mixed(x: Any) -> Any:
        return (1 - q) * without(x) + q * mpmath.npdf(x, 1, z)

    ends = [-30 * z, -8 * z, 0, a, 8 * z + 2 * a, 30 * z + 4 * a]
    there = mpmath.quad(lambda x: (mixed(x) / without(x)) ** a * without(x), ends)
    back = mpmath.quad(lambda x: (without(x) / mixed(x)) ** a * mixed(x), ends)
    return float(mpmath.log(max(there, back)) / (a - 1))


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("rate", [0.5, 0.05])
def test_the_least_noise_costs_what_it_may_and_not_less(epsilon: float, rate: float) -> None:
    fund = RdpFilter.for_gaussians(budget=Budget(epsilon=epsilon, delta=1e-6), adjacency=A)
    amount = fund.limit / 40
    noise = least_noise(fund, amount=amount, sampling_rate=rate)
    true = divergence(noise, rate, fund.order)
    assert amount * 0.999 < true <= amount * (1 + 1e-9)
    assert divergence(noise / 2, rate, fund.order) > 2 * amount  # half the noise is seen


@pytest.mark.parametrize("rate", [0.5, 0.05])
def test_a_selection_on_a_sample_costs_what_it_may(rate: float) -> None:
    """Against the worst ε-DP release, randomised response, on a sample: exact sums of two terms."""
    fund = RdpFilter.for_gaussians(budget=BUDGET, adjacency=A)
    amount, order = fund.limit / 40, fund.order
    epsilon = most_epsilon(fund, amount=amount, sampling_rate=rate)
    p = 1 / (1 + exp(-epsilon))
    other, one = (1 - p, p), (p, 1 - p)
    mixed = tuple((1 - rate) * b + rate * a for a, b in zip(one, other, strict=True))
    for left, right in ((mixed, other), (other, mixed)):
        true = log(sum((a / b) ** order * b for a, b in zip(left, right, strict=True)))
        assert true / (order - 1) <= amount * (1 + 1e-9)
    event = PoissonPureEvent(epsilon=epsilon, sampling_rate=rate, adjacency=A)
    assert fund.cost(event) > 0.999 * amount


def test_without_samples_the_least_noise_is_in_closed_form() -> None:
    renyi = RdpFilter.for_gaussians(budget=BUDGET, adjacency=A)
    exact = GdpFilter(budget=BUDGET, adjacency=A)
    for amount in (1e-4, 0.01, 0.2):
        found = least_noise(renyi, amount=amount, sampling_rate=1.0)
        assert found == pytest.approx(sqrt(renyi.order / (2 * amount)), rel=1e-11)
        assert least_noise(exact, amount=amount, sampling_rate=1.0) == pytest.approx(
            1 / sqrt(amount), rel=1e-11
        )


def test_two_releases_on_one_sample_cost_more_than_the_filter_would_charge() -> None:
    """Why each has a sample of its own: as one they have √½ of the noise, and one coin."""
    fund = RdpFilter.for_gaussians(budget=BUDGET, adjacency=A)
    for noise, rate in ((2.0, 0.1), (5.0, 0.3), (20.0, 0.05)):
        alone = divergence(noise, rate, fund.order)
        assert divergence(noise / sqrt(2), rate, fund.order) > 2 * alone * (1 + 1e-4)


def test_the_loss_range_of_a_selection_is_not_counted_on_in_a_sample() -> None:
    """A range of ε is ε-DP, which is what a sample amplifies; its smaller zCDP it is not."""
    event = sampled(BoundedRangeEvent(epsilon=0.5, adjacency=A), 0.1)
    assert event == PoissonPureEvent(epsilon=0.5, sampling_rate=0.1, adjacency=A)


class Watching:
    """A federation that notes what it is asked, and who is in each sample."""

    def __init__(self) -> None:
        self.inner = VectorizedFederation(
            random_data(SIZES, WIDTH), task=TASK, sampling=streams(3, "parties")
        )
        self.sizes = self.inner.sizes
        self.asked: list[Query] = []
        self.samples: list[tuple[int, ...]] = []

    def sum(self, query: Query) -> Any:
        self.asked.append(query)
        drawn = draw(query, TASK, SIZES, streams(3, "parties")(query.round), units=sum(SIZES))
        assert drawn.sample is not None
        self.samples.append(tuple(drawn.sample.tolist()))
        return self.inner.sum(query)


@pytest.mark.parametrize("name", NAMES)
def test_every_release_has_a_sample_of_its_own_and_is_charged_as_one(name: str) -> None:
    strategy = build(
        name, TASK, epsilon=2.0, adjacency="add-remove", sampling_rate=0.2, **SHORT[name]
    )
    world = Watching()
    train(strategy, world)
    plan = strategy.plan
    assert isinstance(plan, AdaptivePlan)
    assert isinstance(plan.filter, RdpFilter)
    assert len(world.asked) == plan.rounds > 6
    assert len(set(world.samples)) == len(world.samples)
    kinds = {"agd": {GradientQuery, LossQuery}, "learned-protection": {GradientQuery}}[name]
    assert {type(query) for query in world.asked} == kinds
    for number, query in enumerate(world.asked):
        assert query.round == number
        assert query.sampling_rate == 0.2
        assert query.event == plan.event(number)
        assert isinstance(query.event, (PoissonGaussianEvent, PoissonPureEvent))
    accountant = RdpAccountant(adjacency=A, orders=(plan.filter.order,))
    spent = accountant.compose_all((plan.event(number), 1) for number in range(plan.rounds))
    assert spent.epsilon(BUDGET.delta) <= BUDGET.epsilon * (1 + 1e-9)
    assert np.isfinite(strategy.theta).all()


def test_losses_are_those_of_the_sample() -> None:
    data = random_data(SIZES, WIDTH)
    world = VectorizedFederation(data, task=TASK, sampling=streams(5, "p"), workers=1)
    points = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]])
    query = LossQuery(
        run="run",
        round=0,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=PoissonPureEvent(epsilon=0.1, sampling_rate=0.3, adjacency=A),
        points=points,
        clip=1.0,
        sampling_rate=0.3,
    )
    chosen = draw(query, TASK, SIZES, streams(5, "p")(0), units=sum(SIZES)).sample
    assert chosen is not None
    X, y = (
        each[chosen].astype(np.float64) for each in (data.dataset.train.X, data.dataset.train.y)
    )
    by_hand = np.minimum(np.logaddexp(0, -y[:, None] * (X @ points.T)), 1.0).sum(axis=0)
    np.testing.assert_allclose(world.sum(query).value, by_hand, rtol=1e-5)


def first_release(name: str, *, rate: float, seed: int) -> float:
    """Of a run without noise: the norm of a mean gradient, by itself or as a release."""
    once: dict[str, Any] = {"rounds": 1} if name == "agd" else {"horizon": 1}
    strategy = build(
        name, TASK, adjacency="add-remove", noise_free=True, sampling_rate=rate, **once
    )
    world = VectorizedFederation(random_data(SIZES, WIDTH), task=TASK, sampling=streams(seed, "p"))
    query = strategy.ask()
    assert query is not None
    assert isinstance(strategy, AdaptiveStrategy)
    assert strategy._step is not None
    release = strategy._step.draw(world.sum(query), streams(seed, "noise")(0))
    return float(np.linalg.norm(release))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_divided_by_is_the_expected_sample(name: str) -> None:
    """Without noise, over all coins, a sampled mean is the mean: not a half of it, nor twice."""
    sampled_means = [first_release(name, rate=0.5, seed=seed) for seed in range(40)]
    exact = first_release(name, rate=1.0, seed=0)
    assert exact > 0.1
    # √(1/(qN)) of the longest gradient, or of C, is more than the s.d. of one of the forty.
    assert abs(float(np.mean(sampled_means)) - exact) < 6 / sqrt(0.5 * TASK.records * 40)


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_for_add_remove_adjacency(name: str) -> None:
    with pytest.raises(ValueError, match="adjacency must be 'add-remove' with sampling_rate"):
        build(name, TASK, adjacency="replace-one", sampling_rate=0.5)
