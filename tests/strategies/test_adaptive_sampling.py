"""Adaptive clipping on Poisson samples: gradients and count are one sampled release a round."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.task import PersonBounds
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PoissonGaussianEvent, PoissonPartsEvent, PoissonSkellamEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.plan import grid_sensitivity
from tests.federation.worlds import (
    SilentFederation,
    build,
    linear_task,
    party_data,
    random_data,
    streams,
    train,
)

RULES = ("quantile", "coordinate")
SIZES, WIDTH, RATE = (60, 40), 3, 0.3
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
PERSONS = replace(TASK, in_place=False, persons=PersonBounds(records=2, parties=2))
OPTIONS: dict[str, Any] = {"rounds": 5, "sampling_rate": RATE, "adjacency": "add-remove"}


def sampled(rule: str, task: Any = TASK, **changes: Any) -> Any:
    return build("adaptive-clipping", task, **{**OPTIONS, "rule": rule, **changes})


def asked(rule: str, task: Any = TASK, **changes: Any) -> GradientQuery:
    query = sampled(rule, task, **changes).ask()
    assert isinstance(query, GradientQuery)
    return query


@pytest.mark.parametrize("rule", RULES)
def test_the_stated_epsilon_is_that_of_an_independent_accountant(rule: str) -> None:
    """Its noise on what a record adds by hand, (1, κ/2), on samples: all rounds together."""
    strategy = sampled(rule, rounds=20, epsilon=0.8)
    plan, counting = strategy.plan, asked(rule, rounds=20, epsilon=0.8).counting or 0.0
    assert {type(plan.event(index)) for index in range(20)} == {PoissonGaussianEvent}
    noise = plan.mechanisms[0].noise_stddev / hypot(1.0, counting / 2)
    event = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(noise))
    oracle = pld.PLDAccountant(value_discretization_interval=1e-3)
    spent = oracle.compose(dp_accounting.SelfComposedDpEvent(event, 20)).get_epsilon(1e-6)
    assert plan.accountant == "pld"
    assert plan.epsilon <= 0.8
    assert plan.epsilon == pytest.approx(spent, rel=0.02)
    assert spent <= plan.epsilon * 1.005  # no more than stated, but for the oracle's own rounding


@pytest.mark.parametrize("rule", RULES)
def test_a_sample_needs_less_noise_than_all_records(rule: str) -> None:
    whole, part = (sampled(rule, sampling_rate=rate).plan.mechanisms[0] for rate in (1.0, RATE))
    assert part.noise_stddev < 0.6 * whole.noise_stddev


def neighbours(query: GradientQuery, *, seed: int, turned: bool) -> tuple[Any, Any]:
    """Sums of one sample with and without a last record, whose coin is the last one.

    Its gradient is the longest that the features allow, along the first coordinate or against it.
    """
    rest = random_data(SIZES, WIDTH).dataset.train
    X, y = rest.X.copy(), rest.y.astype(np.float32)
    X[-1], y[-1] = (0.999999, 0, 0), (1 if turned else -1)
    worlds = (party_data(X, y, SIZES), party_data(X[:-1], y[:-1], (SIZES[0], SIZES[1] - 1)))
    one, other = (
        VectorizedFederation(data, task=TASK, sampling=streams(seed, "p"), workers=1)
        .sum(query)
        .value
        for data in worlds
    )
    return one, other


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_a_record_moves_a_sample_by_one_vector_or_not_at_all(rule: str, clip: float) -> None:
    """Out of the sample it is nowhere: also not among those that are counted as clipped."""
    query = asked(rule, clip=clip)
    moved = query.sensitivity(TASK, sizes=SIZES, adjacency=Adjacency.ADD_REMOVE)
    assert moved is not None
    limit = grid_sensitivity(moved, dimension=query.answer_width(TASK), step=query.grid.step)
    mechanism = sampled(rule, clip=clip).plan.mechanisms[0]
    assert isinstance(mechanism, GaussianMechanism)
    assert mechanism.sensitivity == pytest.approx(limit)
    distances = []
    for seed in range(12):
        one, other = neighbours(query, seed=seed, turned=bool(seed % 2))
        distances.append(float(np.linalg.norm(one - other)))
        if query.counting is not None and distances[-1]:
            sign = 1 if clip == 10.0 else -1
            assert one[-1] - other[-1] == sign * query.counting / 2  # exact
    assert max(distances) <= limit
    assert 0.0 in distances
    if clip == 0.1:
        assert max(distances) > 0.99 * limit  # reached: with less noise it would be seen


@pytest.mark.parametrize("rule", RULES)
def test_neighbours_of_samples_are_add_remove(rule: str) -> None:
    with pytest.raises(ValueError, match="adjacency must be 'add-remove' with Poisson sampling"):
        sampled(rule, adjacency="replace-one")


@pytest.mark.parametrize("rule", RULES)
def test_a_party_refuses_an_event_of_fewer_records_than_the_query_asks_for(rule: str) -> None:
    """A person at two parties has two coins, and the event is of both."""
    query = asked(rule, PERSONS, unit="person")
    assert isinstance(query.event, PoissonPartsEvent)
    assert query.event.parts == 2
    check_query(query, PERSONS, Policy())
    terms = {"relative_noise": query.event.relative_noise, "sampling_rate": RATE}
    one = PoissonGaussianEvent(adjacency=query.event.adjacency, unit=query.event.unit, **terms)
    with pytest.raises(QueryRefused, match="samples at 2 parties"):
        check_query(replace(query, event=one), PERSONS, Policy())


@pytest.mark.parametrize("rule", RULES)
def test_a_part_of_a_person_is_an_equal_part_of_the_sensitivity(rule: str) -> None:
    """What the theorem on several samples asks for, κ and the grid included."""
    query = asked(rule, PERSONS, unit="person")
    stated = sampled(rule, PERSONS, unit="person").plan.mechanisms[0].sensitivity
    grid = np.sqrt(WIDTH) * query.grid.step  # of the gradients: counts are exact
    part = hypot(query.clip_norm + grid, (query.counting or 0.0) / 2)
    assert 2 * part <= stated <= 2 * part * 1.001


@pytest.mark.parametrize("rule", RULES)
def test_shares_of_noise_on_samples(rule: str) -> None:
    query = asked(rule, sharing={}, epsilon=2.0)
    assert query.share is not None
    assert isinstance(query.event, PoissonSkellamEvent)
    assert query.event.sampling_rate == query.sampling_rate == RATE
    check_query(query, TASK, Policy())  # a party finds the same event from its own numbers
    plan = sampled(rule, sharing={}, epsilon=2.0).plan
    assert account(plan.releases, delta=1e-6, accountant="rdp").epsilon == pytest.approx(2.0, 1e-4)
    with pytest.raises(ValueError, match="share_law must be 'auto' or 'skellam' with sampling"):
        sampled(rule, sharing={"share_law": "discrete-gaussian"})
    with pytest.raises(ValueError, match="amplification is known for Gaussian noise only"):
        sampled(rule, PERSONS, unit="person", sharing={})


class Half:
    """Parties of whose samples half the gradients are clipped, and all are along one coordinate."""

    def __init__(self, rate: float) -> None:
        self.sizes, self.expected = SIZES, rate * sum(SIZES)

    def sum(self, query: Any) -> Sum:
        total = np.zeros(query.answer_width(TASK), np.int64)
        total[0] = round(self.expected / query.grid.step)
        return Sum(total=total, step=query.grid.step, sizes=SIZES)


@pytest.mark.parametrize("rule", RULES)
def test_means_are_of_the_expected_sample(rule: str) -> None:
    """As with all records: neither step nor bound depends on the rate, but for noise."""
    ends = []
    for rate in (1.0, 0.1):
        strategy = sampled(
            rule, sampling_rate=rate, rounds=1, noise_free=True, learning_rate=1.0, quantile=0.4
        )
        train(strategy, Half(rate))
        ends.append((*strategy.theta, strategy._clip))
    assert ends[1] == pytest.approx(ends[0])
    assert ends[0][0] < -0.5


def test_the_noise_that_is_taken_from_a_spread_is_that_of_the_sample() -> None:
    """Of s²(z² − 1), cut at zero, the mean is 0.484·s²; noise of all records would leave 0.9·s²."""
    task = linear_task(SIZES, 4000, regulariser=0.05)
    strategy = sampled(
        "coordinate", task, rounds=1, sampling_rate=0.2, spread_decay=1e-9,
        least_variance=1e-30, most_variance=1e30,
    )  # fmt: skip
    scale, noise = strategy._scale()[0], strategy.plan.mechanisms[0].noise_stddev
    train(strategy, SilentFederation(task, sampling=streams(0, "p")))
    spread = strategy._variance - 1e-9  # √(h₁·h₂) = 1 before
    expected = scale * noise / (0.2 * sum(SIZES))
    assert spread.mean() / expected**2 == pytest.approx(0.484, abs=0.08)


@pytest.mark.parametrize("rule", RULES)
def test_it_learns_from_samples(rule: str) -> None:
    sizes = (3000, 1500)
    task = linear_task(sizes, 4, regulariser=0.05)
    world = VectorizedFederation(random_data(sizes, 4), task=task, sampling=streams(0, "p"))
    best = train(build("pooled", task), world).theta
    found = train(sampled(rule, task, rounds=30, epsilon=2.0), world).theta
    assert found @ best / np.linalg.norm(found) / np.linalg.norm(best) > 0.97
