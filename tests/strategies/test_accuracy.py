"""Private evaluation: the noise of its counts, what it costs, and what they say of a model."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from fedpriv.audit.likelihood_ratio import epsilon_lower_bound
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.strategy.base import Run
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, SkellamEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.randomness import RandomStream
from fedpriv.strategies import accuracy
from fedpriv.strategies.common.building import Setup
from tests.federation.worlds import linear_task, party_data, random_data, streams

if TYPE_CHECKING:
    from fedpriv.strategies.accuracy import Accuracy

SIZES = (30, 20, 25, 25)
TASK = linear_task(SIZES, 2)
THETA = np.array([1.0, 0.0])
BOTH = pytest.mark.parametrize("adjacency", list(Adjacency), ids=lambda each: each.value)


def setup(adjacency: Adjacency, *, shares: bool = False, seed: int = 0, **budget: Any) -> Setup:
    return Setup(
        task=TASK,
        adjacency=adjacency,
        run=Run(name="e", noise=streams(seed, "noise")),
        allowance=Budget(**{"epsilon": 1.0, "delta": 1e-5, **budget}),
        sharing=Sharing(parties=4, dropout=0.25) if shares else None,
    )


def moved(adjacency: Adjacency) -> float:
    """By hand: one record leaves one of two counts, and under replace-one enters the other."""
    return sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0


@BOTH
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_noise_at_the_server_is_what_an_independent_accountant_asks_for(
    adjacency: Adjacency, epsilon: float
) -> None:
    plan = accuracy.build(setup(adjacency, epsilon=epsilon), THETA).plan
    assert plan is not None
    (mechanism,) = plan.mechanisms
    noise = mechanism.noise_stddev / moved(adjacency)  # per sensitivity, found by hand
    oracle = pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(noise)).get_epsilon(1e-5)
    assert 0.99 * epsilon < oracle <= epsilon
    event = plan.event(0)
    assert isinstance(event, GaussianEvent)
    assert event.relative_noise <= noise  # what is charged for is no more than what is there


@BOTH
def test_shares_of_the_fewest_honest_parties_have_the_noise_that_is_charged(
    adjacency: Adjacency,
) -> None:
    plan = accuracy.build(setup(adjacency, shares=True), THETA).plan
    assert plan is not None
    (mechanism,) = plan.mechanisms
    assert isinstance(mechanism, SharedNoise)
    assert mechanism.share.honest == 2  # of four one may be missing, and one colludes
    event = plan.event(0)
    assert isinstance(event, SkellamEvent)
    assert event.variance == pytest.approx(2 * mechanism.share.variance, rel=1e-12)
    step = plan.step
    assert event.l2_sensitivity * step >= moved(adjacency)
    assert event.l1_sensitivity * step >= moved(adjacency) ** 2
    # As wide as Skellam noise is here, it is Gaussian but for a correction that costs more.
    noise = sqrt(event.variance) * step / moved(adjacency)
    oracle = pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(noise)).get_epsilon(1e-5)
    assert 0.85 < oracle < 1.0


def released(strategy: Accuracy, labels: np.ndarray) -> np.ndarray:
    """The real road from records to a release: question, integers, noise."""
    X = np.tile([[0.5, 0.0]], (sum(SIZES), 1))
    data = party_data(X, labels, SIZES)
    federation = VectorizedFederation(data, task=TASK, sampling=streams(7, "shares"))
    query = strategy.ask()
    assert query is not None
    strategy.learn(federation.sum(query))
    assert strategy.counts is not None
    return strategy.counts


def found(*, factor: float, draws: int = 500_000) -> float:
    """ε that releases on two neighbours show, with noise of ``factor`` times what was planned.

    One right record becomes a wrong one: (100, 0) or (99, 1). The exact sums come from the real
    question; the noise from the real mechanism, drawn so often.
    """
    strategy = accuracy.build(setup(Adjacency.REPLACE_ONE), THETA)
    (mechanism,) = strategy._plan.mechanisms
    assert isinstance(mechanism, GaussianMechanism)
    query = strategy._query()
    sums = []
    for wrong in (0, 1):
        labels = np.where(np.arange(sum(SIZES)) < wrong, -1.0, 1.0)
        X = np.tile([[0.5, 0.0]], (sum(SIZES), 1))
        data = party_data(X, labels, SIZES)
        federation = VectorizedFederation(data, task=TASK, sampling=streams(0, "p"))
        sums.append(federation.sum(query).total)
    law = replace(mechanism, stddev=mechanism.noise_stddev * factor)
    stream = RandomStream.seeded(11, "audit", 0)
    shift = (sums[1] - sums[0]).astype(np.float64)
    statistics = [
        (total + law.noise((draws, 2), step=query.grid.step, stream=stream)) @ shift
        for total in sums
    ]
    return epsilon_lower_bound(statistics[1], statistics[0], confidence=1 - 1e-9, delta=1e-5)


def test_releases_on_neighbours_do_not_show_more_than_the_stated_epsilon() -> None:
    """A correct implementation fails with a probability of at most 10⁻⁹."""
    assert found(factor=1.0) <= 1.0


def test_half_of_the_noise_is_caught() -> None:
    assert found(factor=0.5) > 1.0


@BOTH
@pytest.mark.parametrize("shares", [False, True])
def test_the_release_is_the_counts_and_the_planned_noise(
    adjacency: Adjacency, shares: bool
) -> None:
    labels = np.where(np.arange(100) % 4 == 0, -1.0, 1.0)  # 75 right, 25 wrong
    strategy = accuracy.build(setup(adjacency, shares=shares, epsilon=4.0), THETA)
    counts = released(strategy, labels)
    (mechanism,) = strategy._plan.mechanisms
    reach = 7 * mechanism.noise_stddev * (sqrt(2) if shares else 1.0)  # four shares, two counted
    assert np.abs(counts - [75, 25]).max() < reach < 25
    assert (counts != [75, 25]).all()
    assert (strategy.theta == THETA).all()
    assert strategy.ask() is None  # one release


def test_without_delta_there_is_no_gaussian_noise() -> None:
    with pytest.raises(ValueError, match="delta must be positive for noisy counts"):
        accuracy.build(setup(Adjacency.REPLACE_ONE, delta=0.0), THETA)


# What the counts say.


def coverage(*, stated: float, truth: tuple[float, float], draws: int = 4000) -> int:
    """How many of the intervals hold the true accuracy, where the noise has a deviation of 5."""
    rng = np.random.default_rng(5)
    right, wrong = truth
    share = right / (right + wrong)
    held = 0
    for noise in rng.normal(0, 5.0, size=(draws, 2)):
        each = accuracy.estimate(np.array(truth) + noise, noise_stddev=stated)
        held += each.low <= share <= each.high
    return held


@pytest.mark.parametrize("truth", [(900.0, 100.0), (60.0, 40.0), (20.0, 2.0), (0.0, 30.0)])
def test_the_interval_holds_the_accuracy_as_often_as_it_says(truth: tuple[float, float]) -> None:
    """Of 4000, each with at least 95 %: fewer than 3715 has a probability below 10⁻⁹."""
    assert coverage(stated=5.0, truth=truth) >= 3715


def test_an_interval_for_half_the_noise_is_caught() -> None:
    assert coverage(stated=2.5, truth=(900.0, 100.0)) < 3715


def test_an_estimate_stays_among_the_accuracies() -> None:
    few = accuracy.estimate(np.array([3.0, -2.0]), noise_stddev=5.0)
    assert (few.accuracy, few.low, few.high) == (1.0, 0.0, 1.0)
    none = accuracy.estimate(np.array([-3.0, 1.0]), noise_stddev=5.0)
    assert (none.accuracy, none.low, none.high) == (None, 0.0, 1.0)
    sure = accuracy.estimate(np.array([750.0, 250.0]), noise_stddev=1e-9)
    assert (sure.low, sure.high) == pytest.approx((0.75, 0.75), abs=1e-9)


def test_a_data_set_of_one_kind_is_scored_like_any_other() -> None:
    data = random_data(SIZES, 2)
    federation = VectorizedFederation(data, task=TASK, sampling=streams(0, "p"))
    strategy = accuracy.build(setup(Adjacency.ADD_REMOVE, epsilon=50.0), THETA)
    query = strategy.ask()
    assert query is not None
    strategy.learn(federation.sum(query))
    assert strategy.counts is not None
    right = ((data.dataset.train.X @ THETA >= 0) == (data.dataset.train.y > 0)).mean()
    (mechanism,) = strategy._plan.mechanisms
    found = accuracy.estimate(strategy.counts, noise_stddev=mechanism.noise_stddev)
    assert found.accuracy == pytest.approx(right, abs=0.05)
