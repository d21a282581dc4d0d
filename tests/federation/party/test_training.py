"""Local training at parties: one answer whoever computes it, bounded whatever the records are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.engines.simulated_keys import simulated_coin
from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.party import Party
from fedpriv.federation.party.training import coins
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.learning.threads import one_thread
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import party_data, random_data, streams
from tests.strategies.plain_training import MODELS, task_of

if TYPE_CHECKING:
    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.task import Task

SIZES = (9, 1, 24, 40, 2, 13, 5)
WIDTH = 36
DATA = random_data(SIZES, WIDTH)
EVENT = GaussianEvent(adjacency=Adjacency.ADD_REMOVE, unit=Unit.PARTY, relative_noise=3.0)
GRID = FixedPoint(step=2.0**-20)


def query_for(task: Task, **changes: Any) -> LocalTrainingQuery:
    made: dict[str, Any] = {
        "run": "r",
        "round": 3,
        "grid": GRID,
        "event": EVENT,
        "theta": task.model.initial(np.random.default_rng(0)).numpy(),
        "training": LocalSgd(epochs=2, batch_size=5, learning_rate=0.5, regulariser=0.01),
        "clip_norm": 0.3,
    }
    return LocalTrainingQuery(**{**made, **changes})


def federation(task: Task, data: PartitionedDataset = DATA, **more: Any) -> VectorizedFederation:
    return VectorizedFederation(data, task=task, sampling=streams(1, "parties"), **more)


def party(number: int, task: Task, data: PartitionedDataset = DATA) -> Party:
    stream = streams(1, "parties")
    return Party(
        data.party(number),
        task=task,
        size=task.sizes[number],
        number=number,
        sampling=stream,
        coin=simulated_coin(stream, number),
        policy=Policy(unpaid=True),
    )


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "equal": {"weights": "equal"},
    "counting": {"counting": 0.5},
    "cohort": {"cohort": 3},
    "sampled": {"party_rate": 0.5, "event": None},
    "control": {"control": True},
    "unclipped": {
        "event": None,
        "clip_norm": None,
        "grid": FixedPoint(step=2.0**-40, bits=64),
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_is_that_of_the_parties_own_answers(name: str, case: str) -> None:
    """Engines agree: to the bit where every party trains alone, else to float32."""
    task = task_of(name, SIZES)
    changes = dict(CASES[case])
    if "control" in changes:
        changes["control"] = np.linspace(-0.1, 0.1, task.dimension)
    query = query_for(task, **changes)
    total = np.zeros(query.answer_width(task), query.grid.dtype)
    with one_thread():  # as the workers of the engine: kernels round by their threads
        for number in range(len(SIZES)):
            total += party(number, task).answer(query)
    expected = query.grid.decode(total)
    alone = federation(task, apart=True).sum(query)
    assert (alone.total == expected).all()
    together = federation(task).sum(query)
    assert together.sizes == SIZES
    tolerance = 1e-5 * len(SIZES) / query.grid.step  # of an update of norm 1, for every party
    assert np.abs(together.total - expected).max() <= tolerance
    assert np.abs(expected).max() > 100 * tolerance or case == "unclipped"


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_do_not_matter(workers: int) -> None:
    task = task_of("mlp", SIZES)
    query = query_for(task)
    assert (
        federation(task, workers=workers).sum(query).total
        == federation(task, workers=1).sum(query).total
    ).all()


def test_who_is_told_of_each_other_only_by_the_sum() -> None:
    """Trained apart, a party answers the same to the bit whatever the others hold."""
    task = task_of("mlp", SIZES)
    query = query_for(task, weights="equal")
    before = federation(task, apart=True).sum(query).total - np.array(
        query.grid.decode(party(3, task).answer(query))
    )
    rng = np.random.default_rng(5)
    X, y = DATA.dataset.train.X.copy(), DATA.dataset.train.y.astype(np.float32)
    begin = sum(SIZES[:3])
    fewer = 7  # of the 40 records of party 3
    keep = np.r_[0 : begin + fewer, begin + 40 : len(X)]
    X, y = X[keep], y[keep]
    X[begin : begin + fewer] = rng.normal(size=(fewer, WIDTH)) / 10
    changed = party_data(X, y, (9, 1, 24, fewer, 2, 13, 5))
    after = federation(task, changed, apart=True).sum(query).total - query.grid.decode(
        party(3, task, changed).answer(query)
    )
    assert (before == after).all()


def test_a_party_that_stays_out_answers_zero_and_nobody_sees_its_coin() -> None:
    task = task_of("logistic", SIZES)
    query = query_for(task, party_rate=0.4, event=None)
    tossed = coins(query, len(SIZES), streams(1, "parties")(3))
    assert 0 < tossed.sum() < len(SIZES)
    for number, joins in enumerate(tossed):
        answer = party(number, task).answer(query)
        assert bool(answer.any()) == joins
    found = federation(task).sum(query)
    assert found.sizes == SIZES
    assert found.diagnostics["clipped"] <= 1


def test_a_party_that_stays_out_brings_its_share_of_the_noise_all_the_same() -> None:
    """And the share is not made of the bits that its coin was."""
    task, out = task_of("logistic", SIZES), 0
    share = NoiseShare(law="skellam", parameter=1e6, minimum=3)
    grid = FixedPoint(step=2.0**-20, bits=64)
    query = query_for(task, party_rate=0.4, share=share, grid=grid)
    for seed in range(20):
        sampling = partial(RandomStream.seeded, seed)
        alone = Party(DATA.party(0), task=task, sampling=sampling, size=task.sizes[0])
        stream = sampling(query.round)
        if not coins(query, 1, stream)[0]:
            expected = share.draw_sum(1, dimension=query.answer_width(task), stream=stream)
            assert (alone.compute(query).view(np.int64) == expected).all()
            out += 1
    assert out


def test_coins_fall_as_often_as_they_are_said_to_and_independently() -> None:
    query = query_for(task_of("logistic", SIZES), party_rate=0.3, event=None)
    tossed = np.array(
        [coins(query, 50, RandomStream.seeded(0, "coins", index)) for index in range(400)]
    )
    # 20,000 coins: seven deviations of 0.00324 leave 3e-12.
    assert tossed.mean() == pytest.approx(0.3, abs=7 * np.sqrt(0.21 / tossed.size))
    # Variance of the number of parties in a round, 10.5 if they are independent; within 40 %.
    assert 0.6 * 10.5 < tossed.sum(axis=1).var() < 1.4 * 10.5
    assert coins(replace(query, party_rate=1.0), 50, RandomStream.seeded(0)).all()


def test_a_count_is_of_those_whose_update_was_not_clipped() -> None:
    task = task_of("logistic", SIZES)
    norms = []
    for number in range(len(SIZES)):
        free = query_for(
            task,
            event=None,
            clip_norm=None,
            weights="equal",
            grid=FixedPoint(step=2.0**-40, bits=64),
        )
        norms.append(np.linalg.norm(free.grid.decode(party(number, task).answer(free)) * 2.0**-40))
    middle = float(np.sort(norms)[3] * 1.0001)
    query = query_for(task, clip_norm=middle, counting=0.5)
    found = federation(task).sum(query)
    assert found.value[-1] == 0.5 / 2 * (4 - 3)
    assert found.diagnostics["clipped"] == pytest.approx(3 / 7)


@pytest.mark.parametrize("weights", ["equal", "proportional"])
@pytest.mark.parametrize("counting", [None, 0.25])
def test_no_answer_is_longer_than_stated_whatever_the_records_are(
    weights: str, counting: float | None
) -> None:
    """Huge steps, huge labels' worth of disagreement, diverging training: the clip holds."""
    task = task_of("mlp", SIZES)
    for rate in (1e-3, 1.0, 1e4, 1e30):
        training = LocalSgd(steps=20, batch_size=3, learning_rate=rate)
        query = query_for(task, training=training, weights=weights, counting=counting)
        for number, size in enumerate(SIZES):
            answer = query.grid.decode(party(number, task).answer(query)) * query.grid.step
            weight = query.weight(task, size)
            slack = np.sqrt(len(answer)) / 2 * query.grid.step
            assert np.linalg.norm(answer[: task.dimension]) <= weight * (1 + 1e-12) + slack
            if counting is not None:
                assert abs(answer[-1]) == counting / 2


def test_a_party_without_records_answers_zero() -> None:
    sizes = (5, 5)
    X, y = DATA.dataset.train.X[:5], DATA.dataset.train.y[:5].astype(np.float32)
    data = party_data(X, y, (5, 0))
    task = task_of("logistic", sizes)
    query = query_for(task, counting=0.5)  # nor is it counted: it is as good as none
    assert not party(1, task, data).answer(query).any()
    both = federation(task, data).sum(query).total
    assert (both == query.grid.decode(party(0, task, data).answer(query))).all()


def test_diverging_training_without_a_clip_is_an_error_and_not_a_wrapped_sum() -> None:
    task = task_of("logistic", SIZES)
    query = query_for(
        task,
        event=None,
        clip_norm=None,
        training=LocalSgd(steps=3, learning_rate=1e5),
        grid=FixedPoint(step=2.0**-40, bits=64),
    )
    with pytest.raises(ValueError, match="diverges"):
        federation(task).sum(query)


def test_shares_of_noise_are_on_top_of_the_update() -> None:
    task = task_of("logistic", SIZES)
    share = NoiseShare(law="skellam", parameter=1e8, minimum=7, colluders=1)
    quiet = query_for(task)
    mechanism = share_mechanism(replace(quiet, share=share), task)
    assert mechanism is not None
    query = replace(quiet, share=share, event=mechanism.event())
    one = Party(
        DATA.party(3),
        task=task,
        number=3,
        sampling=streams(1, "p"),
        noise=streams(1, "noise"),
        policy=Policy(unpaid=True),
    )
    noise = query.grid.decode(one.answer(query)) - query.grid.decode(party(3, task).answer(quiet))
    assert 0.5e8 < np.square(noise.astype(np.float64)).mean() < 2e8
