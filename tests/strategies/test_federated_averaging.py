"""Federated averaging: it is what the papers say, and a run that ends can go on."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.dropouts import Dropouts
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.party import Party
from fedpriv.learning.optimisers import Adam, Momentum, Nesterov, Yogi
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import federated_averaging as averaging
from tests.federation.worlds import linear_task, random_data, streams
from tests.strategies.averaging import DATA, MANY, federation, private
from tests.strategies.plain_training import MODELS, SIZES, WIDTH, Plain, make, task_of, trained

if TYPE_CHECKING:
    from pathlib import Path

BY_SIZE = [size / max(SIZES) for size in SIZES]
# float32 training against float64: relative 2⁻²⁴ a step, about ten steps a round, four rounds.
CLOSE = 3e-5


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_plain_federated_averaging_to_rounding(name: str, apart: bool) -> None:
    task = task_of(name)
    plain = Plain(task=task, data=DATA, rate=0.5, epochs=2)
    strategy = make(averaging, task, rounds=4, local_epochs=2, local_learning_rate=0.5)
    start = np.array(strategy.theta)
    found = trained(strategy, federation(task, apart=apart))
    expected = plain.average(start, 4, lambda theta, mean: theta + mean, weights=BY_SIZE)
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
    assert np.abs(found - start).max() > 0.05


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"local_momentum": 0.7}, {"momentum": 0.7}),
        ({"proximal": 0.9}, {"proximal": 0.9}),
        ({"local_momentum": 0.5, "proximal": 0.3, "batch_size": 4}, {}),
    ],
    ids=["momentum", "proximal", "both"],
)
def test_local_momentum_and_the_proximal_term_are_those_of_the_papers(
    name: str, options: dict[str, Any], more: dict[str, Any]
) -> None:
    task = task_of(name)
    more = more or {"momentum": 0.5, "proximal": 0.3, "batch": 4}
    plain = Plain(task=task, data=DATA, rate=0.3, epochs=2, **more)
    strategy = make(averaging, task, rounds=3, local_epochs=2, local_learning_rate=0.3, **options)
    start = np.array(strategy.theta)
    found = trained(strategy, federation(task))
    expected = plain.average(start, 3, lambda theta, mean: theta + mean, weights=BY_SIZE)
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
    without = replace(plain, momentum=0.0, proximal=0.0)
    other = without.average(start, 3, lambda theta, mean: theta + mean, weights=BY_SIZE)
    assert np.abs(found - other).max() > 1e-3  # the terms matter here


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("momentum", Momentum(learning_rate=1 - 0.9, decay=0.9)),
        ("nesterov", Nesterov(learning_rate=1 - 0.9, decay=0.9)),
        ("adam", Adam(learning_rate=0.01, stability=1e-3)),
        ("yogi", Yogi(learning_rate=0.01, stability=1e-3)),
    ],
)
def test_the_server_takes_the_mean_update_for_a_gradient_downhill(name: str, rule: Any) -> None:
    task = task_of("logistic")
    plain = Plain(task=task, data=DATA, rate=0.5)
    state = rule.start(np.zeros(WIDTH))

    def step(theta: Any, mean: Any) -> Any:
        nonlocal state
        theta, state = rule.step(theta, -mean, state)
        return theta

    expected = plain.average(np.zeros(WIDTH), 4, step, weights=[1.0] * 4)
    strategy = make(
        averaging, task, rounds=4, local_learning_rate=0.5, optimiser=name, weights="equal"
    )
    np.testing.assert_allclose(trained(strategy, federation(task)), expected, rtol=0, atol=CLOSE)


def test_one_step_on_all_records_is_a_step_of_gradient_descent() -> None:
    """FedSGD: the mean over parties by size is the mean over records."""
    task = task_of("logistic", regulariser=0.0)
    strategy = make(
        averaging, task, rounds=1, local_steps=1, batch_size="all", local_learning_rate=1.0
    )
    X, y = DATA.dataset.train.X.astype(np.float64), DATA.dataset.train.y.astype(np.float64)
    expected = (y / 2) @ X / len(X)
    np.testing.assert_allclose(trained(strategy, federation(task)), expected, atol=1e-6)


def test_a_cohort_is_public_and_its_mean_is_over_its_members() -> None:
    task = task_of("logistic")
    strategy = make(averaging, task, rounds=3, cohort=2, local_learning_rate=0.5)
    world, plain = federation(task), Plain(task=task, data=DATA, rate=0.5)
    theta, cohorts = np.zeros(WIDTH), set()
    for round_ in range(3):
        query = strategy.ask()
        members = tuple(np.flatnonzero(query.trainees(4)).tolist())
        cohorts.add(members)
        updates = np.array([BY_SIZE[j] * plain.update(theta, j, round_)[0] for j in members])
        theta = theta + updates.sum(axis=0) / sum(BY_SIZE[j] for j in members)
        strategy.learn(world.sum(query))
        assert len(members) == 2
    np.testing.assert_allclose(strategy.theta, theta, rtol=0, atol=CLOSE)
    assert len(cohorts) > 1


def test_a_sample_is_drawn_by_coins_and_divided_by_what_is_expected() -> None:
    task = linear_task(MANY, 4)
    world = federation(task)
    strategy = make(
        averaging, task, rounds=40, party_rate=0.25, weights="equal", clip=1e-6, learning_rate=1e-9
    )
    everybody = make(averaging, task, rounds=1, weights="equal", clip=1e-6)
    whole = world.sum(everybody.ask()).value  # of updates that are all clipped to the same length
    shares = []
    while (query := strategy.ask()) is not None:
        answer = world.sum(query)
        assert len(answer.sizes) == len(MANY)  # who stayed out does not show
        shares.append(answer.value @ whole / (whole @ whole))
        before = strategy.theta.copy()
        strategy.learn(answer)
        moved = (strategy.theta - before) / 1e-9
        np.testing.assert_allclose(moved, answer.value * 1e-6 / (0.25 * 60), rtol=1e-5, atol=1e-12)
    assert np.mean(shares) == pytest.approx(0.25, abs=6 * sqrt(0.25 * 0.75 / (60 * 40)))
    assert np.std(shares) > 0.02


def test_who_drops_out_counts_as_one_who_did_not_move() -> None:
    """Dropping out is no sampling: the divisor stays."""
    task = linear_task(MANY, 4)
    dropouts = Dropouts(parties=60, fraction=0.2, seed=0)
    strategy = make(averaging, task, rounds=1, weights="equal", clip=1.0)
    query = strategy.ask()
    answer = federation(task, dropouts=dropouts).sum(query)
    absent = dropouts.silent(0)
    assert absent
    assert len(answer.sizes) == 60 - len(absent)
    data, total = random_data(MANY, 4), np.zeros(4, np.int64)
    for number in set(range(60)) - set(absent):
        party = Party(
            data.party(number),
            task=task,
            number=number,
            sampling=streams(0, "p"),
            policy=Policy(unpaid=True),
        )
        total += query.grid.decode(party.answer(query))
    np.testing.assert_allclose(answer.value, total * query.grid.step, atol=1e-5)
    strategy.learn(answer)
    np.testing.assert_allclose(strategy.theta, answer.value / 60)


# A run that ends and goes on.


@pytest.mark.parametrize("options", [{}, {"clip_quantile": 0.5, "count_noise": 5.0}])
def test_a_restored_run_ends_as_if_uninterrupted(options: dict[str, Any]) -> None:
    task = task_of("logistic")
    whole, broken, again = (
        private(task, rounds=5, party_rate=0.5, optimiser="adam", **options) for _ in range(3)
    )
    trained(whole, federation(task))
    for _ in range(2):
        broken.learn(federation(task).sum(broken.ask()))
    again.restore(broken.checkpoint())
    assert (trained(again, federation(task)) == whole.theta).all()
    assert again._clip == whole._clip


@pytest.mark.parametrize("options", [{}, {"party_rate": 0.5}, {"clip_quantile": 0.5}])
def test_what_was_committed_is_replayed_from_the_ledger(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """A process that crashed: its releases are taken from the ledger, and none is drawn again."""
    task = task_of("logistic")
    more = {"count_noise": 9.0} if "clip_quantile" in options else {}
    path, budget = tmp_path / "ledger", Budget(epsilon=6.0, delta=1e-5)

    def begun(ledger: Ledger) -> Any:
        return private(task, ledger=ledger, rounds=4, clip=0.1, **options, **more)

    with Ledger.create(
        path,
        data_name="d",
        budget=budget,
        adjacency="add-remove",
        unit=Unit.PARTY,
        composition="rdp",  # it has a price for sampled rounds, too
    ) as ledger:
        one = begun(ledger)
        for _ in range(2):
            one.learn(federation(task).sum(one.ask()))
        left, clip = one.theta.copy(), one._clip
    with Ledger.open(path) as ledger:
        again = begun(ledger)
        query = again.ask()
        assert (query.round, again.round) == (2, 2)
        assert (again.theta == left).all()
        assert again._clip == clip
        trained_again = again.theta.copy()
        again.learn(federation(task).sum(query))
        assert (again.theta != trained_again).any()
        assert ledger.settings.unit is Unit.PARTY
        assert {event.unit for event, _ in again.plan.releases} == {Unit.PARTY}
