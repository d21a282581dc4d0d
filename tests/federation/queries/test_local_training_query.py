"""The query of federated averaging: what it states, what it refuses, and that the wire keeps it."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.queries.bounds import fits, share_mechanism
from fedpriv.federation.queries.encoding import from_bytes, to_bytes
from fedpriv.federation.queries.local_training import RANGE, SLACK, LocalTrainingQuery
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, SkellamEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task

A, R = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
SIZES = (20, 5, 40)
TASK = linear_task(SIZES, 3)
EVENT = GaussianEvent(adjacency=A, unit=Unit.PARTY, relative_noise=3.0)
SGD = LocalSgd(epochs=2, batch_size=8, learning_rate=0.5, momentum=0.1, proximal=0.2)
PLAIN = LocalTrainingQuery(
    run="r",
    round=1,
    grid=FixedPoint(step=2.0**-20),
    event=EVENT,
    theta=np.array([0.5, -1.0, 2.0]),
    training=SGD,
    clip_norm=0.25,
)
SAMPLED = replace(
    PLAIN,
    event=PoissonGaussianEvent(
        adjacency=A, unit=Unit.PARTY, relative_noise=3.0, sampling_rate=0.25
    ),
    party_rate=0.25,
)
QUERIES = {
    "plain": PLAIN,
    "sampled": SAMPLED,
    "cohort": replace(PLAIN, cohort=2, seed=7, weights="equal"),
    "counting": replace(PLAIN, counting=0.125),
    "control": replace(
        PLAIN, control=np.array([1.0, 2.0, 3.0]), training=LocalSgd(steps=3, learning_rate=0.1)
    ),
    "unpaid": replace(PLAIN, event=None, clip_norm=None, grid=FixedPoint(step=2.0**-40, bits=64)),
}


@pytest.mark.parametrize("name", QUERIES)
def test_the_wire_keeps_every_field(name: str) -> None:
    query = QUERIES[name]
    again = from_bytes(to_bytes(query))
    assert isinstance(again, LocalTrainingQuery)
    assert to_bytes(again) == to_bytes(query)
    assert again.training == query.training
    assert (again.party_rate, again.cohort, again.seed) == (
        query.party_rate,
        query.cohort,
        query.seed,
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"clip_norm": None}, "clip_norm must be given with an event"),
        ({"clip_norm": None, "event": None, "counting": 1.0}, "clip_norm must be given"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"clip_norm": 2.0**401}, "clip_norm must lie in"),
        ({"clip_norm": 2.0**-401}, "clip_norm must lie in"),
        ({"party_rate": 0.0}, "party_rate"),
        ({"party_rate": 0.5, "cohort": 2}, "party_rate must be 1 with a cohort"),
        ({"cohort": 0}, "cohort"),
        ({"seed": -1}, "seed"),
        ({"weights": "square"}, "weights"),
        ({"counting": -1.0}, "counting"),
        ({"event": SAMPLED.event}, "party_rate must be the sampling rate of the event"),
        ({"event": replace(EVENT, unit=Unit.RECORD)}, "unit of the event must be 'party'"),
        ({"event": replace(EVENT, unit=Unit.PERSON)}, "unit of the event must be 'party'"),
        ({"control": np.zeros(2)}, "control must be a vector, got shape"),
        ({"control": np.zeros(3)}, "control must be None with a count or local momentum"),
        ({"theta": np.array([np.nan, 0, 0])}, "theta must be finite"),
    ],
)
def test_what_cannot_be_promised_is_no_query(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        replace(PLAIN, **changes)


def test_shares_are_for_everybody_in_every_round() -> None:
    share = NoiseShare(law="skellam", parameter=1e6, minimum=3, colluders=1)
    with pytest.raises(ValueError, match="party_rate must be 1 with a cohort"):
        replace(PLAIN, party_rate=0.5, cohort=2, share=share)
    mechanism = share_mechanism(replace(PLAIN, share=share), TASK)
    assert mechanism is not None
    assert isinstance(mechanism.event(), SkellamEvent)
    assert mechanism.event().unit is Unit.PARTY


def test_it_states_what_a_party_can_do_to_a_sum() -> None:
    """In units of C: one answer, or two; a count adds in squares."""
    for adjacency, times in ((A, 1), (R, 2)):
        found = PLAIN.sensitivity(TASK, sizes=SIZES, adjacency=adjacency)
        assert found == pytest.approx(times * SLACK, rel=1e-15)
        counting = replace(PLAIN, counting=0.5)
        found = counting.sensitivity(TASK, sizes=SIZES, adjacency=adjacency)
        assert found == pytest.approx(times * hypot(1, 0.25), rel=1e-11)
    assert QUERIES["unpaid"].sensitivity(TASK, sizes=SIZES, adjacency=A) is None
    assert PLAIN.record_bound(TASK) == 0.25
    assert QUERIES["unpaid"].record_bound(TASK) == np.inf


def test_width_weight_and_reach() -> None:
    assert [QUERIES[name].answer_width(TASK) for name in ("plain", "counting", "control")] == [
        3,
        4,
        6,
    ]
    assert [PLAIN.weight(TASK, size) for size in SIZES] == [0.5, 0.125, 1.0]
    assert PLAIN.party_weights(TASK, np.array(SIZES)).tolist() == [0.5, 0.125, 1.0]
    assert PLAIN.total_weight(TASK) == 1.625
    assert SAMPLED.total_weight(TASK) == 1.625 / 4
    assert QUERIES["cohort"].total_weight(TASK) == 2.0
    equal = replace(PLAIN, weights="equal")
    assert equal.party_weights(TASK, np.array(SIZES)).tolist() == [1.0, 1.0, 1.0]
    assert equal.total_weight(TASK) == 3.0
    assert PLAIN.reach(TASK, 20) == 0.5
    assert replace(PLAIN, counting=4.0).reach(TASK, 20) == 2.0
    assert QUERIES["unpaid"].reach(TASK, 20) == RANGE
    assert fits(PLAIN, TASK)
    assert not fits(replace(PLAIN, grid=FixedPoint(step=2.0**-31)), TASK)


def test_a_guard_counts_the_steps_and_the_cohort() -> None:
    assert PLAIN.local_steps(TASK) == 2 * 5  # two epochs of 40 records in batches of 8
    assert QUERIES["control"].local_steps(TASK) == 3
    assert [QUERIES[name].remembering for name in ("plain", "control")] == [False, True]
    check_query(QUERIES["cohort"], TASK, Policy(unpaid=True))
    with pytest.raises(QueryRefused, match="cohort must be at most the 3 parties"):
        check_query(replace(PLAIN, cohort=4), TASK, Policy(unpaid=True))
    with pytest.raises(QueryRefused, match="theta must be finite with 3 coordinates"):
        check_query(replace(PLAIN, theta=np.zeros(4)), TASK, Policy(unpaid=True))


def test_cohorts_and_orders_follow_from_the_seed_the_run_and_the_round() -> None:
    query = QUERIES["cohort"]
    assert query.trainees(50).sum() == 2
    assert (query.trainees(50) == replace(query, theta=np.zeros(3)).trainees(50)).all()
    others = [replace(query, seed=8), replace(query, run="s"), replace(query, round=2)]
    assert len({query.key, *(other.key for other in others)}) == 4
    assert any((query.trainees(50) != other.trainees(50)).any() for other in others)
    assert replace(query, cohort=None).trainees(50).all()


def test_every_party_is_in_a_cohort_as_often_as_any_other() -> None:
    counts = sum(
        replace(QUERIES["cohort"], cohort=3, round=round_).trainees(10).astype(int)
        for round_ in range(2000)
    )
    # Hypergeometric per round, 600 ± 20.5 in all: seven deviations leave 3e-12 a party.
    assert np.abs(counts - 600).max() < 7 * np.sqrt(2000 * 0.3 * 0.7)
