"""A party's policy: the runs that it joins, and the queries that it turns away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedpriv.federation.deployed.guard import check_engagement, check_terms
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.level import LEVELS, Protection
from fedpriv.federation.queries.kinds import (
    QUERIES,
    AccuracyQuery,
    ErmQuery,
    GradientQuery,
    HessianQuery,
    LossQuery,
    MomentsQuery,
    Query,
    RiskGradientQuery,
    StatisticsQuery,
)
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.federation.task import PersonBounds
from fedpriv.learning.losses import Squared
from fedpriv.learning.training.settings import LocalSgd
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    Event,
    LaplaceEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import Design
from fedpriv.privacy.unit import Unit
from tests.federation.deployed.policies import (
    ENGAGEMENT,
    ERM,
    EVENT,
    GRID,
    POLICY,
    QUERY,
    TASK,
    charged,
    refused,
)

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE

# The run.

SELECTED = BoundedRangeEvent(epsilon=0.1, adjacency=R)
LOSS = LossQuery(
    run=QUERY.run, round=0, grid=GRID, event=SELECTED, points=np.zeros((2, 3)), clip=1.0
)
ACCURACY = AccuracyQuery(run=QUERY.run, round=0, grid=GRID, event=EVENT, theta=np.zeros(3))
JOINT = RiskGradientQuery(
    run=QUERY.run, round=0, grid=GRID, event=EVENT, theta=np.zeros(3), exchange=0
)
MOMENTS = MomentsQuery(run=QUERY.run, round=0, grid=GRID, event=EVENT)
HESSIAN = HessianQuery(
    run=QUERY.run, round=0, grid=GRID, event=EVENT, theta=np.zeros(3), exchange=1
)


def test_an_honest_run_is_joined_and_an_honest_query_costs_its_event() -> None:
    check_engagement(ENGAGEMENT, POLICY)
    assert charged(QUERY) == EVENT
    assert charged(ERM) == EVENT


def test_a_release_for_a_unit_that_the_policy_does_not_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for_party = replace(EVENT, unit=Unit.PARTY)
    with pytest.raises(ValueError, match="must be 'record' or 'person' for 'gradient'"):
        replace(QUERY, event=for_party)
    monkeypatch.setattr(GradientQuery, "units", tuple(Unit))  # a kind that bounds all three
    asked = replace(QUERY, event=for_party)
    refused(asked, "unit 'party', all records of one party, and the policy of this party allows re")
    refused(asked, "budget of this party is for one record", units=("record", "party"))
    everything = replace(POLICY, units=tuple(Unit))
    assert check_terms(asked, ENGAGEMENT, everything, R, Unit.PARTY) == for_party
    with pytest.raises(QueryRefused, match="budget of this party is for all records of one party"):
        check_terms(QUERY, ENGAGEMENT, everything, R, Unit.PARTY)


def test_true_numbers_of_records_are_not_for_the_unit_of_a_party(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of persons, minimisers rest on a declared number."""
    monkeypatch.setattr(ErmQuery, "units", tuple(Unit))
    everything = replace(POLICY, units=tuple(Unit))
    assert check_terms(ERM, ENGAGEMENT, everything, R, Unit.RECORD) == EVENT
    persons = replace(TASK, persons=PersonBounds(records=2), in_place=False)
    for_person = replace(ERM, event=replace(EVENT, unit=Unit.PERSON))
    engagement = replace(ENGAGEMENT, task=persons)
    assert check_terms(for_person, engagement, everything, R, Unit.PERSON) == for_person.event
    weighted = replace(ERM, event=replace(EVENT, unit=Unit.PARTY))
    with pytest.raises(QueryRefused, match="and the unit 'record', where an answer rests on"):
        check_terms(weighted, ENGAGEMENT, everything, R, Unit.PARTY)


def test_noise_of_the_partys_own_is_for_the_unit_that_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GradientQuery, "units", tuple(Unit))
    everything = replace(POLICY, units=tuple(Unit))
    for unit in (Unit.RECORD, Unit.PARTY):  # of persons, a party's own noise is refused
        noise = LocalNoise(law="gaussian", relative_noise=2.0, adjacency=R, unit=unit)
        local = replace(QUERY, local=noise)
        event = local.local_event(TASK)
        assert event is not None
        assert check_terms(replace(local, event=event), ENGAGEMENT, everything, R, unit) == event
        wrong = replace(event, unit=Unit.RECORD if unit is Unit.PARTY else Unit.PARTY)
        with pytest.raises(QueryRefused, match="not that of the noise which the party is asked"):
            check_terms(replace(local, event=wrong), ENGAGEMENT, everything, R, wrong.unit)


@pytest.mark.parametrize(
    ("change", "policy", "message"),
    [
        ({"strategy": "pooled"}, {}, "no run of strategy 'pooled'"),
        ({"protection": Protection(level="off")}, {}, "asks for secure aggregation 'off'"),
        ({}, {"secure_aggregation": "active"}, "'semi-honest', and this party insists on 'active'"),
        ({}, {"colluding": 0.7}, "fraction of 0.1 of colluding parties, and this party for 0.7"),
        ({"protection": Protection(corrupt=0.0)}, {}, "a fraction of 0 of colluding parties"),
        ({}, {"min_parties": 4}, "roster has 3 parties"),
        (
            {"task": replace(TASK, persons=PersonBounds(parties=2), in_place=False)},
            {"person_parties": 3},
            "records at 2 parties at most, and this party on 3",
        ),
    ],
)
def test_a_run_that_offers_less_than_the_policy_is_not_joined(
    change: dict[str, Any], policy: dict[str, Any], message: str
) -> None:
    engagement = replace(ENGAGEMENT, **change)
    with pytest.raises(QueryRefused, match=message):
        check_engagement(engagement, replace(POLICY, **policy))
    with pytest.raises(QueryRefused, match=message):
        check_terms(QUERY, engagement, replace(POLICY, **policy), R, Unit.RECORD)


def test_more_protection_than_the_policy_asks_for_is_welcome() -> None:
    for least, stated in ((a, b) for i, a in enumerate(LEVELS) for b in LEVELS[i:]):
        engagement = replace(ENGAGEMENT, protection=Protection(level=stated))
        check_engagement(engagement, replace(POLICY, secure_aggregation=least))


# The query.


def test_a_query_of_a_foreign_run_is_refused() -> None:
    refused(replace(QUERY, run="gradient-perturbation-abd-1"), "of another run")
    refused(replace(QUERY, run="gradient-perturbation-abc1"), "of another run")


def test_a_kind_of_query_that_the_policy_does_not_name_is_refused() -> None:
    refused(ERM, "does not answer queries of kind 'erm'", queries=("gradient",))


def test_a_larger_clip_is_refused_to_the_last_bit() -> None:
    charged(replace(QUERY, clip_norm=1.0))
    above = replace(QUERY, clip_norm=float(np.nextafter(1.0, 2.0)))
    refused(above, "part in the answer by 1, and .* most 1")
    loss = LossQuery(
        run=QUERY.run, round=0, grid=GRID, event=SELECTED, points=np.zeros((2, 3)), clip=3.0
    )
    refused(loss, "part in the answer by 3, and this party allows at most 1")
    charged(loss, max_clip=3.0)


def test_max_clip_binds_a_gradient_with_its_count() -> None:
    """With κ = 1.5 a record adds 3/4 as much to a count as to the sum: C alone is too little."""
    counted = replace(QUERY, clip_norm=1.0, counting=1.5)
    charged(counted, max_clip=1.25)
    refused(counted, "part in the answer by 1.25, and .* most 1.2", max_clip=1.2)


def test_max_clip_binds_scaled_coordinates_in_the_units_of_a_gradient() -> None:
    """Clipped to 1 in units of 100 is clipped to 100: the scale says what a record may add."""
    scaled = replace(QUERY, clip_norm=0.5, scale=np.array([1.0, 0.1, 2.0]))
    charged(scaled, max_clip=1.0)
    refused(replace(scaled, scale=np.array([1.0, 0.1, 2.5])), "part in the answer by 1.25")


def test_max_clip_binds_second_moments_by_the_square_of_the_longest_vector() -> None:
    """B² of the features, B² + s²Y² with the label, a quarter of it with logistic weights."""
    refused(MOMENTS, "part in the answer by 1, and .* most 0.9", max_clip=0.9)
    labelled = replace(MOMENTS, label_scale=0.5, label_bound=1.0)
    refused(labelled, r"part in the answer by 1\.25")
    assert charged(labelled, max_clip=1.26) == EVENT
    weighted = replace(labelled, weighting="logistic", theta=np.zeros(3))
    assert charged(weighted, max_clip=0.32) == EVENT
    refused(weighted, r"part in the answer by 0\.3125", max_clip=0.3)
    refused(MOMENTS, "does not answer queries of kind 'moments'", queries=("gradient",))


@pytest.mark.parametrize("least", [0.5, 0.999])
def test_max_clip_binds_what_is_not_clipped_by_the_bound_on_its_gradients(least: float) -> None:
    """G of the logistic loss is 1: minimisers and exact gradients are sums of such gradients."""
    for query in (ERM, JOINT):
        charged(query, max_clip=1.0)
        refused(query, f"part in the answer by 1, and .* most {least:g}", max_clip=least)


def test_max_clip_binds_exact_gradients_at_the_point_that_is_asked_about() -> None:
    """The squared loss has no bound on all points: the farther the point, the longer a gradient."""
    squared = replace(TASK, loss=Squared(radius=1.0, label_bound=1.0))
    engagement = replace(ENGAGEMENT, task=squared)
    policy = replace(POLICY, max_clip=2.0)
    check_terms(JOINT, engagement, policy, R, Unit.RECORD)
    far = replace(JOINT, theta=np.full(3, 100.0))
    with pytest.raises(QueryRefused, match=r"part in the answer by 174\.\d+, and .* most 2"):
        check_terms(far, engagement, policy, R, Unit.RECORD)


VECTOR: tuple[Event, ...] = (
    EVENT,
    ZcdpEvent(rho=0.1, adjacency=R),
    PureEvent(epsilon=0.1, adjacency=R),
    LaplaceEvent(relative_noise=2.0, adjacency=R),
)
APPROXIMATE = ApproximateEvent(epsilon=0.1, delta=1e-7, adjacency=R)
OF_SHARES: tuple[Event, ...] = (
    SkellamEvent(variance=1e4, l1_sensitivity=9.0, l2_sensitivity=3.0, adjacency=R),
    DistributedGaussianEvent(
        shares=3,
        share_stddev=100.0,
        l1_sensitivity=9.0,
        l2_sensitivity=3.0,
        dimension=3,
        adjacency=R,
    ),
)


@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        (QUERY, VECTOR),
        (ERM, (*VECTOR, APPROXIMATE)),
        (JOINT, (*VECTOR, APPROXIMATE)),
        (LOSS, (SELECTED, VECTOR[2])),
        (ACCURACY, VECTOR[:2]),
        (MOMENTS, VECTOR),
        (HESSIAN, (APPROXIMATE,)),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_kind_of_query_is_charged_with_the_kinds_of_event_that_are_about_it(
    query: Query, allowed: tuple[Event, ...]
) -> None:
    """That of a selection on a sum, or of shares where there are none, is another theorem's."""
    for event in (*VECTOR, APPROXIMATE, SELECTED, *OF_SHARES):
        stated = replace(query, event=event)
        if event in allowed:
            assert charged(stated) == event
        else:
            refused(stated, f"kind {query.kind!r} is charged as .*states {event.kind!r}")


def test_every_kind_of_query_has_its_kinds_of_event_and_its_bound() -> None:
    """A new kind of query must say both, or a deployed party does not know what to charge."""
    trained = LocalTrainingQuery(
        run=QUERY.run,
        round=0,
        grid=QUERY.grid,
        event=replace(EVENT, unit=Unit.PARTY),
        theta=QUERY.theta,
        training=LocalSgd(steps=1, learning_rate=0.1),
        clip_norm=1.0,
    )
    design = Design(blocks=(Block(kind="total"),))
    told = StatisticsQuery(run=QUERY.run, round=0, grid=QUERY.grid, event=EVENT, design=design)
    stated: tuple[Query, ...] = (
        QUERY, ERM, JOINT, LOSS, ACCURACY, MOMENTS, HESSIAN, trained, told,
    )  # fmt: skip
    assert {type(query) for query in stated} == set(QUERIES.values())
    for query in stated:
        assert query.record_bound(TASK) == (0.25 if query is HESSIAN else 1.0)
        assert query.events
