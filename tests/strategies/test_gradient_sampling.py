"""Poisson samples of second-order steps and of local gradients: price, divisor, and who is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.draws import draw
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.queries.kinds import GradientQuery, MomentsQuery
from fedpriv.federation.task import PersonBounds
from fedpriv.learning.moments import UNITS, symmetric
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PoissonGaussianEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.plan import grid_sensitivity
from tests.federation.worlds import build, linear_task, party_data, random_data, streams, train

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query

NAMES = ("second-order", "local-gradient-perturbation")
SIZES, WIDTH, RATE = (60, 40), 3, 0.3
TASK = linear_task(SIZES, WIDTH, regulariser=0.05)
PERSONS = PersonBounds(records=2, parties=2)
OPTIONS: dict[str, Any] = {"rounds": 5, "sampling_rate": RATE, "adjacency": "add-remove"}


def sampled(name: str, task: Any = TASK, **changes: Any) -> Any:
    return build(name, task, **{**OPTIONS, **changes})


def oracle(noises: list[float], rate: float) -> float:
    """ε by dp-accounting's loss distributions, of one sampled Gaussian release after the other."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for noise in noises:
        release = dp_accounting.GaussianDpEvent(noise)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, release))
    return float(accountant.get_epsilon(1e-6))


@pytest.mark.parametrize("name", NAMES)
def test_the_stated_epsilon_is_that_of_an_independent_accountant(name: str) -> None:
    plan = sampled(name, epsilon=0.8, clip=0.5).plan
    assert {type(plan.event(index)) for index in range(plan.rounds)} == {PoissonGaussianEvent}
    # What a record adds, by hand: ‖x·xᵀ‖ = 1 to the matrix, C to a gradient.
    matrix = [1.0] if name == "second-order" else []
    by_hand = [*matrix, *[0.5] * 5]
    noises = [m.noise_stddev / moved for m, moved in zip(plan.mechanisms, by_hand, strict=True)]
    spent = oracle(noises, RATE)
    assert plan.epsilon <= 0.8
    assert spent == pytest.approx(plan.epsilon, rel=0.02)
    assert spent <= plan.epsilon * 1.005  # but for the oracle's own rounding
    assert oracle([noise / 2 for noise in noises], RATE) > 1.6  # half the noise is seen


def neighbours(query: Query, *, seed: int) -> float:
    """How far apart the sums of one sample are with and without a last, longest record."""
    rest = random_data(SIZES, WIDTH).dataset.train
    X, y = rest.X.copy(), rest.y.astype(np.float32)
    X[-1], y[-1] = (0.999999, 0, 0), 1
    worlds = (party_data(X, y, SIZES), party_data(X[:-1], y[:-1], (SIZES[0], SIZES[1] - 1)))
    one, other = (
        VectorizedFederation(data, task=TASK, sampling=streams(seed, "p"), workers=1)
        .sum(query)
        .value
        for data in worlds
    )
    return float(np.linalg.norm(one - other))


@pytest.mark.parametrize("kind", ["moments", "gradient"])
def test_a_record_moves_a_sample_by_its_part_or_not_at_all(kind: str) -> None:
    strategy = sampled("second-order", clip=0.1)
    query, mechanism = strategy.ask(), strategy.plan.mechanisms[0]
    if kind == "gradient":
        world = VectorizedFederation(
            random_data(SIZES, WIDTH), task=TASK, sampling=streams(0, "p"), workers=1
        )
        strategy.learn(world.sum(query))
        query, mechanism = strategy.ask(), strategy.plan.mechanisms[1]
    assert query.kind == kind
    assert isinstance(mechanism, GaussianMechanism)
    moved = query.sensitivity(TASK, sizes=SIZES, adjacency=Adjacency.ADD_REMOVE)
    limit = grid_sensitivity(moved, dimension=query.answer_width(TASK), step=query.grid.step)
    assert mechanism.sensitivity == pytest.approx(limit)
    distances = [neighbours(query, seed=seed) for seed in range(12)]
    assert max(distances) <= limit
    assert max(distances) > 0.99 * limit  # reached: with less noise it would be seen
    assert 0.0 in distances


def test_second_moments_are_those_of_the_sample() -> None:
    query = sampled("second-order").ask()
    assert isinstance(query, MomentsQuery)
    data = random_data(SIZES, WIDTH)
    world = VectorizedFederation(data, task=TASK, sampling=streams(7, "p"), workers=1)
    chosen = draw(query, TASK, SIZES, streams(7, "p")(0), units=sum(SIZES)).sample
    assert chosen is not None
    assert 10 < len(chosen) < 60
    X = data.dataset.train.X[chosen].astype(np.float64)
    found = symmetric(world.sum(query).value)
    # A number of a record is cut off at 1/UNITS, and there are two in a product.
    np.testing.assert_allclose(found, X.T @ X, atol=2 * len(chosen) / UNITS)


@pytest.mark.parametrize("name", NAMES)
def test_a_party_refuses_an_event_of_fewer_records_than_the_query_asks_for(name: str) -> None:
    query = sampled(name).ask()
    check_query(query, TASK, Policy())
    assert isinstance(query.event, PoissonGaussianEvent)
    if name == "second-order":
        persons = replace(TASK, in_place=False, persons=PERSONS)
        of_persons = sampled(name, persons, unit="person").ask()
        check_query(of_persons, persons, Policy())
        alone = PoissonGaussianEvent(
            relative_noise=of_persons.event.relative_noise,
            sampling_rate=RATE,
            adjacency=of_persons.event.adjacency,
            unit=of_persons.event.unit,
        )
        with pytest.raises(QueryRefused, match="samples at 2 parties"):
            check_query(replace(of_persons, event=alone), persons, Policy())
    else:  # its noise is its own: the event follows from it
        with pytest.raises(QueryRefused, match="not that of the noise"):
            check_query(
                replace(query, event=replace(query.event, sampling_rate=RATE / 2)), TASK, Policy()
            )


def test_local_noise_on_a_sample_is_the_partys_own() -> None:
    """Its relative noise is that of a sum at the server, and the sum has the noise of all."""
    query = sampled("local-gradient-perturbation").ask()
    assert isinstance(query, GradientQuery)
    assert query.sampling_rate == RATE
    plan = sampled("gradient-perturbation").plan
    mechanism = plan.mechanisms[0]
    assert query.local is not None
    assert query.local.relative_noise == pytest.approx(
        mechanism.noise_stddev / mechanism.sensitivity, rel=1e-9
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_from_samples(name: str) -> None:
    """Without noise, steps along sampled means end near the model of all records."""
    data = random_data(SIZES, WIDTH)
    world = VectorizedFederation(data, task=TASK, sampling=streams(1, "p"), workers=1)
    options: dict[str, Any] = {"rounds": 30, "noise_free": True, "clip": 1.0}
    found = train(sampled(name, **options), world).theta
    exact = train(sampled(name, **options, sampling_rate=1.0), world).theta
    assert np.linalg.norm(exact) > 0.5
    assert np.linalg.norm(found - exact) < 0.5 * np.linalg.norm(exact)
