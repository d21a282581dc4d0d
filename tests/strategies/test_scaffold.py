"""SCAFFOLD: the algorithm of the paper, its one clip, and variates that stay at the parties."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import RecordDict

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.client_app import ContextStore
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.party import Party
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import federated_averaging, scaffold
from tests.federation.worlds import random_data, streams
from tests.strategies.plain_training import MODELS, SIZES, WIDTH, Plain, make, task_of, trained

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

DATA = random_data(SIZES, WIDTH)


def federation(task: Task, **more: Any) -> VectorizedFederation:
    return VectorizedFederation(DATA, task=task, sampling=streams(0, "parties"), **more)


@pytest.mark.parametrize("weights", ["equal", "proportional"])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_scaffold_as_in_the_paper_to_rounding(name: str, weights: str) -> None:
    task = task_of(name)
    strategy = make(
        scaffold, task, rounds=4, local_epochs=2, local_learning_rate=0.3, weights=weights
    )
    start = np.array(strategy.theta)
    counts = [size / max(SIZES) if weights == "proportional" else 1.0 for size in SIZES]
    plain = Plain(task=task, data=DATA, rate=0.3, epochs=2)
    expected = plain.scaffold(start, 4, weights=counts)
    found = trained(strategy, federation(task))
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)
    averaged = plain.average(start, 4, lambda theta, mean: theta + mean, weights=counts)
    assert np.abs(averaged - expected).max() > 1e-3  # the variates matter here


def test_its_fixed_point_is_the_joint_minimiser_where_federated_averaging_has_another() -> None:
    """What control variates are for: parties whose data disagree, and many local steps."""
    task = task_of("logistic", regulariser=0.1)
    options: dict[str, Any] = {
        "rounds": 200, "local_steps": 10, "batch_size": "all", "local_learning_rate": 1.0,
    }  # fmt: skip
    X, y = DATA.dataset.train.X.astype(np.float64), DATA.dataset.train.y.astype(np.float64)

    def slope(theta: np.ndarray) -> float:
        gradient = -(y / (1 + np.exp(y * (X @ theta)))) @ X / len(X) + 0.1 * theta
        return float(np.linalg.norm(gradient))

    assert slope(trained(make(scaffold, task, **options), federation(task))) < 1e-5
    drifted = trained(make(federated_averaging, task, **options), federation(task))
    assert slope(drifted) > 1e-3


def test_who_stays_out_keeps_its_variate() -> None:
    """With a cohort of one, c moves by a quarter of that party's change."""
    task = task_of("logistic")
    strategy = make(scaffold, task, rounds=3, cohort=1, weights="equal", local_learning_rate=0.5)
    plain, world = Plain(task=task, data=DATA, rate=0.5), federation(task)
    theta, c = np.zeros(WIDTH), np.zeros(WIDTH)
    own = [np.zeros(WIDTH) for _ in SIZES]
    for round_ in range(3):
        query = strategy.ask()
        (member,) = np.flatnonzero(query.trainees(4)).tolist()
        update, steps = plain.update(theta, member, round_, c - own[member])
        new = own[member] - c - update / (steps * 0.5)
        theta, c = theta + update, c + (new - own[member]) / 4
        own[member] = new
        strategy.learn(world.sum(query))
    np.testing.assert_allclose(strategy.theta, theta, atol=3e-5)
    np.testing.assert_allclose(strategy._variate, c, atol=3e-5)


def party(number: int) -> Party:
    return Party(
        DATA.party(number),
        task=task_of("logistic"),
        number=number,
        sampling=streams(0, "p"),
        policy=Policy(unpaid=True),
    )


def test_a_question_that_is_asked_again_gets_the_same_answer() -> None:
    """A sum that failed is asked for again: the variate is that before the round, both times."""
    strategy = make(scaffold, task_of("logistic"), rounds=3, local_learning_rate=0.5)
    first = strategy.ask()
    strategy.learn(federation(task_of("logistic")).sum(first))
    second = strategy.ask()
    one = party(2)
    one.answer(first)
    answers = [one.answer(second).tolist() for _ in range(2)]
    assert answers[0] == answers[1]
    assert party(2).answer(second).tolist() != answers[0]  # without a past, another shift


def test_a_party_that_lost_its_variate_begins_with_that_of_the_server() -> None:
    """c_j = c: no shift, as in a first round, where both are zero."""
    task = task_of("logistic")
    strategy = make(scaffold, task, rounds=2, local_learning_rate=0.5)
    strategy.learn(federation(task).sum(strategy.ask()))
    query = strategy.ask()
    assert np.abs(query.control).max() > 0
    update, steps = Plain(task=task, data=DATA, rate=0.5).update(query.theta, 0, 1)
    change = -query.control - update / (steps * 0.5)
    found = query.grid.decode(party(0).answer(query)) * query.grid.step
    expected = np.concatenate([update, change]) * SIZES[0] / max(SIZES)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_update_and_variate_are_clipped_as_one_vector() -> None:
    task = task_of("logistic")
    budget = Budget(epsilon=3.0, delta=1e-5)
    strategy = make(
        scaffold, task, budget=budget, rounds=2, clip=0.01, weights="equal", allow_swamped=True
    )
    assert strategy.plan.dimension == 2 * WIDTH
    assert strategy.plan.unit is Unit.PARTY
    query = strategy.ask()
    for number in range(len(SIZES)):
        answer = query.grid.decode(party(number).answer(query)) * query.grid.step
        slack = sqrt(2 * WIDTH) / 2 * query.grid.step
        assert 0.99 <= np.linalg.norm(answer) <= 1 + slack
        halves = np.linalg.norm(answer[:WIDTH]), np.linalg.norm(answer[WIDTH:])
        assert min(halves) > 0.05


def test_it_restores_what_the_server_knows() -> None:
    task = task_of("logistic")
    one, two = (make(scaffold, task, rounds=4, local_learning_rate=0.5) for _ in range(2))
    world = federation(task)
    for _ in range(2):
        one.learn(world.sum(one.ask()))
    two.restore(one.checkpoint())
    assert (two._variate == one._variate).all()
    assert (two.ask().control == one.ask().control).all()
    assert np.abs(two._variate).max() > 0


def test_it_is_released_like_any_other(tmp_path: Any) -> None:
    """Whatever became of a control variate, an answer is clipped: nothing more is to be paid."""
    task, budget = task_of("logistic"), Budget(epsilon=3.0, delta=1e-5)
    ledger = Ledger.create(
        tmp_path / "l", data_name="d", budget=budget, adjacency="add-remove", unit=Unit.PARTY
    )
    with ledger:
        options: dict[str, Any] = {"rounds": 3, "local_learning_rate": 0.5, "allow_swamped": True}
        strategy = make(scaffold, task, budget=budget, ledger=ledger, **options)
        for _ in range(3):  # each time parties that have forgotten everything
            strategy.learn(federation(task).sum(strategy.ask()))
        assert 2.99 < ledger.spent().guarantee.epsilon <= 3.0


def test_local_momentum_is_refused() -> None:
    query = make(scaffold, task_of("logistic"), rounds=1).ask()
    with pytest.raises(ValueError, match="control must be None with a count or local momentum"):
        replace(query, training=replace(query.training, momentum=0.5))


def test_a_variate_is_kept_where_every_message_has_a_process_of_its_own() -> None:
    """As on Ray: a fresh party, and nothing but the state of its node between two rounds."""
    task = task_of("logistic")
    strategy = make(scaffold, task, rounds=3, local_learning_rate=0.5)
    world, one, node = federation(task), party(2), RecordDict()
    while (query := strategy.ask()) is not None:
        expected = one.answer(query)
        store = ContextStore(node)
        with store.held():
            found = party(2).answer(query, store)
        assert found.tolist() == expected.tolist()
        if query.round == 2:  # whoever forgets answers something else
            assert party(2).answer(query).tolist() != found.tolist()
        strategy.learn(world.sum(query))
