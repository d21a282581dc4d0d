"""A party's file, rule by rule, and every query that its policy turns away."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.data import Bounds
from fedpriv.federation.deployed.guard import (
    Engagement,
    check_engagement,
    check_terms,
    relative_noise,
)
from fedpriv.federation.deployed.policy import PartyPolicy, parse_party, read_party
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.level import LEVELS, Protection
from fedpriv.federation.queries.bounds import share_mechanism
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
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.ledger import LedgerMismatch
from fedpriv.privacy.mechanisms.laws import LAWS
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.objective.objective import OBJECTIVE_LAWS, ObjectiveNoise
from fedpriv.privacy.planning.statistics.statistics_blocks import Block
from fedpriv.privacy.planning.statistics.statistics_design import Design
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
SERVER = "sha256:" + "0" * 64
FILE: dict[str, Any] = {
    "version": 1,
    "party": {
        "name": "north",
        "data": "records.csv",
        "schema": "schema.toml",
        "ledger": "north.ledger",
        "identity": "identity.key",
        "roster": "roster.toml",
        "state": "state",
    },
    "budget": {"epsilon": 2.0, "delta": 1e-6, "adjacency": "replace-one"},
    "policy": {
        "strategies": ["gradient-perturbation"],
        "queries": ["gradient", "erm"],
        "min_parties": 3,
        "max_clip": 1.0,
        "min_noise": 0.5,
        "noise_at": "server",
        "secure_aggregation": "active",
        "server": SERVER,
        "server_identity": SERVER,
    },
}


def file(**tables: Any) -> dict[str, Any]:
    values = deepcopy(FILE)
    for table, keys in tables.items():
        values[table] = {**values[table], **keys}
    return values


# The file.


def test_paths_are_those_beside_the_file_and_everything_is_read(tmp_path: Path) -> None:
    found = parse_party(FILE, folder=tmp_path)
    assert found.name == "north"
    assert found.data == tmp_path / "records.csv"
    assert found.certificate == tmp_path / "ca.crt"
    assert (found.budget.epsilon, found.budget.delta) == (2.0, 1e-6)
    assert found.adjacency is R
    assert found.policy.queries == ("gradient", "erm")
    assert found.policy.colluding == 0.1
    assert (found.unit, found.policy.units) == (Unit.RECORD, (Unit.RECORD,))


def test_a_budget_for_another_unit_is_what_its_ledger_is_made_for(tmp_path: Path) -> None:
    found = parse_party(file(budget={"unit": "party"}), folder=tmp_path)
    assert (found.unit, found.policy.units) == (Unit.PARTY, (Unit.PARTY,))
    with found.terms.new_ledger(found.ledger, name="north") as ledger:
        assert ledger.settings.unit is Unit.PARTY
    found.terms.open_ledger(found.ledger).close()
    with pytest.raises(LedgerMismatch, match="unit of this ledger is 'party'"):
        parse_party(FILE, folder=tmp_path).terms.open_ledger(found.ledger)


def test_only_where_a_record_is_exchanged_the_number_of_records_is_public() -> None:
    public = [
        (unit, adjacency)
        for unit in ("record", "person", "party")
        for adjacency in ("replace-one", "add-remove")
        if parse_party(
            file(budget={"unit": unit, "adjacency": adjacency}), folder=Path()
        ).counts_public
    ]
    assert public == [("record", "replace-one")]


def test_a_file_is_read_from_the_disk_or_named_in_the_error(tmp_path: Path) -> None:
    from fedpriv._toml import to_toml

    path = tmp_path / "party.toml"
    path.write_text(to_toml(FILE))
    assert read_party(path) == parse_party(FILE, folder=tmp_path.resolve())
    path.write_text("version = ")
    with pytest.raises(ValueError, match=r"party\.toml' is not TOML"):
        read_party(path)
    with pytest.raises(ValueError, match=r"cannot be read: No such file"):
        read_party(tmp_path / "none.toml")


@pytest.mark.parametrize("table", ["party", "budget", "policy"])
def test_every_key_but_the_optional_ones_must_be_there(table: str) -> None:
    for key in FILE[table]:
        values = deepcopy(FILE)
        del values[table][key]
        with pytest.raises(ValueError, match=rf"^{table}\.{key} is missing"):
            parse_party(values, folder=Path())
    values = deepcopy(FILE)
    del values[table]
    with pytest.raises(ValueError, match=rf"^\[{table}\] must be a table with"):
        parse_party(values, folder=Path())


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"policy": {"min_party": 3}}, r"^policy\.min_party is not .* 'min_parties'\? Known here"),
        ({"budget": {"epsilom": 1.0}}, r"^budget\.epsilom is not a known key.*'epsilon'"),
        ({"party": {"date": "x"}}, r"^party\.date is not a known key.*'data'"),
        ({"party": {"data": 3}}, r"^party\.data must be text, got 3"),
        ({"party": {"name": ""}}, r"^party\.name must be text, got ''"),
        ({"budget": {"epsilon": 0}}, r"^budget\.epsilon must be positive and finite, got 0"),
        ({"budget": {"delta": 1}}, r"^budget\.delta must lie in \[0, 1\), got 1"),
        ({"budget": {"adjacency": "add"}}, r"^budget\.adjacency must be .*, got 'add'"),
        ({"budget": {"unit": "patient"}}, r"^budget\.unit must be one of 'record'.*'patient'"),
        ({"policy": {"units": []}}, r"^policy\.units must name at least one"),
        ({"policy": {"units": "party"}}, r"^policy\.units must be a list of names, got 'party'"),
        ({"policy": {"units": ["parties"]}}, r"^policy\.unit must be one of .*'parties'"),
        (
            {"policy": {"units": ["record"]}, "budget": {"unit": "party"}},
            r"^policy\.units must name the unit of the budget, 'party', got \['record'\]",
        ),
        ({"policy": {"strategies": []}}, r"^policy\.strategies must name at least one"),
        ({"policy": {"strategies": "x"}}, r"^policy\.strategies must be a list of names, got 'x'"),
        ({"policy": {"queries": ["gradeint"]}}, r"^policy\.queries\[0\] .* mean 'gradient'"),
        ({"policy": {"min_parties": 1}}, r"^policy\.min_parties must be at least 2, got 1"),
        ({"policy": {"min_parties": 2.5}}, r"^policy\.min_parties must be an integer"),
        ({"policy": {"max_seconds": 0.0}}, r"^policy\.max_seconds must be positive"),
        ({"policy": {"max_seconds": float("inf")}}, r"^policy\.max_seconds must be positive"),
        ({"policy": {"max_clip": 0.0}}, r"^policy\.max_clip must be positive"),
        ({"policy": {"max_clip": float("nan")}}, r"^policy\.max_clip must be positive"),
        ({"policy": {"min_noise": -1}}, r"^policy\.min_noise must be finite and at least 0"),
        ({"policy": {"noise_at": "party"}}, r"^policy\.noise_at must be one of .*'parties'"),
        ({"policy": {"secure_aggregation": "of"}}, r"^policy\.secure_aggregation .* got 'of'"),
        ({"policy": {"colluding": 1.0}}, r"^policy\.colluding must lie in \[0, 1\)"),
        ({"policy": {"server": "sha256:12"}}, r"^policy\.server must be 'sha256:' and 64"),
        ({"policy": {"server_identity": 5}}, r"^policy\.server_identity must be 'sha256:' and 64"),
        (
            {"policy": {"noise_at": "parties", "secure_aggregation": "off"}},
            r"^policy\.secure_aggregation must not be 'off' .* Set it to 'active'",
        ),
    ],
)
def test_an_error_names_the_key_the_value_the_rule_and_the_remedy(
    tables: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse_party(file(**tables), folder=Path())


def test_a_file_of_another_version_or_with_another_table_is_refused() -> None:
    with pytest.raises(ValueError, match="version must be 1, got 2"):
        parse_party({**FILE, "version": 2}, folder=Path())
    with pytest.raises(ValueError, match=r"polices is not a known key.*'policy'"):
        parse_party({**FILE, "polices": {}}, folder=Path())


def test_the_file_on_the_documents_page_is_accepted_and_names_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "party-policy.md").read_text()
    values = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    found = parse_party(values, folder=Path("/home"))
    assert found.policy.noise_at == "parties"
    assert values["policy"].keys() == {field.name for field in fields(PartyPolicy)}
    assert values["party"].keys() == {*FILE["party"], "certificate", "test"}


# The run.

TASK = linear_task((40, 25, 60), 3, regulariser=0.1)
POLICY = PartyPolicy(
    strategies=("gradient-perturbation",),
    queries=("gradient", "erm", "loss", "risk-gradient", "accuracy", "moments", "hessian"),
    min_parties=3,
    max_clip=1.0,
    min_noise=0.5,
    noise_at="server",
    secure_aggregation="semi-honest",
    server=SERVER,
    server_identity=SERVER,
)
ENGAGEMENT = Engagement(
    strategy="gradient-perturbation",
    run="gradient-perturbation-abc",
    task=TASK,
    bounds=Bounds(),
    protection=Protection(level="semi-honest"),
    roster=bytes(32),
    budget=Budget(epsilon=1.0, delta=1e-6),
    shown=bytes(32),
)
EVENT = GaussianEvent(relative_noise=2.0, adjacency=R)
GRID = FixedPoint(step=2.0**-20, bits=64)
QUERY = GradientQuery(
    run="gradient-perturbation-abc-1",
    round=0,
    grid=GRID,
    event=EVENT,
    theta=np.zeros(3),
    clip_norm=1.0,
)
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
ERM = ErmQuery(run=QUERY.run, round=0, grid=GRID, event=EVENT, regulariser=0.1, tolerance=1e-6)


def charged(query: Query, *, adjacency: Adjacency = R, **policy: Any) -> Event:
    return check_terms(query, ENGAGEMENT, replace(POLICY, **policy), adjacency, Unit.RECORD)


def refused(query: Query, message: str, *, adjacency: Adjacency = R, **policy: Any) -> None:
    with pytest.raises(QueryRefused, match=message):
        charged(query, adjacency=adjacency, **policy)


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


@pytest.mark.parametrize("base", [QUERY, ERM], ids=["gradient", "erm"])
def test_a_law_that_is_for_study_is_refused(base: GradientQuery | ErmQuery) -> None:
    """Its event is honest about √d, but what it states is not what it gives."""
    for law in LAWS:
        local = LocalNoise(law=law, relative_noise=20.0, adjacency=R)
        mechanism = replace(base, local=local).local_mechanism(TASK, TASK.smallest)
        assert mechanism is not None
        query = replace(base, local=local, event=mechanism.event())
        if law.startswith("unsound"):
            refused(query, f"the law '{law}' is for study")
        else:
            charged(query)


def test_a_perturbed_objective_for_study_is_refused() -> None:
    for law in OBJECTIVE_LAWS:
        delta = 1e-6 if law == "gaussian" else 0.0
        objective = ObjectiveNoise(law=law, epsilon=0.05, delta=delta, adjacency=R)
        query = replace(ERM, objective=objective)
        query = replace(query, event=query.local_event(TASK))
        if law.startswith("unsound"):
            refused(query, f"the law '{law}' is for study")
        else:
            charged(query)


def test_a_minimiser_that_the_records_decide_the_steps_to_is_refused() -> None:
    """M/λ is the server's choice; beyond 10⁷ whether a solver ends is a matter of the records."""
    charged(replace(ERM, regulariser=1e-6, tolerance=0.01))
    refused(replace(ERM, regulariser=1e-9, tolerance=0.01), "better conditioned: M/λ is 2.5e\\+08")


def test_smaller_noise_is_refused_to_the_last_bit() -> None:
    charged(replace(QUERY, event=replace(EVENT, relative_noise=0.5)))
    less = replace(EVENT, relative_noise=float(np.nextafter(0.5, 0.0)))
    refused(replace(QUERY, event=less), "noise of 0.5 sensitivities, and .* insists on 0.5")


def test_a_query_without_an_event_is_refused() -> None:
    refused(replace(QUERY, event=None), "states no privacy event")


def test_an_event_under_another_adjacency_than_the_budget_is_refused() -> None:
    refused(replace(QUERY, event=replace(EVENT, adjacency=A)), "stated under 'add-remove'")
    charged(replace(QUERY, event=replace(EVENT, adjacency=A)), adjacency=A)


def test_an_amplification_by_more_sampling_than_is_asked_for_is_refused() -> None:
    """A server that states q = 0.01 and takes every record would pay a hundredth."""
    event = PoissonGaussianEvent(relative_noise=2.0, sampling_rate=0.01, adjacency=A)
    sampled = replace(QUERY, event=event, sampling_rate=0.01)
    assert charged(sampled, adjacency=A) == event
    refused(replace(sampled, sampling_rate=0.02), "counts on a sample of 0.01", adjacency=A)
    refused(replace(sampled, sampling_rate=1.0), "counts on a sample of 0.01", adjacency=A)
    whole = RiskGradientQuery(
        run=QUERY.run, round=0, grid=GRID, event=event, theta=np.zeros(3), exchange=0, headroom=2
    )
    refused(whole, "states 'poisson-gaussian'", adjacency=A)


def test_less_amplification_than_there_was_is_accepted() -> None:
    event = GaussianEvent(relative_noise=2.0, adjacency=A)
    charged(replace(QUERY, event=event, sampling_rate=0.01), adjacency=A)


def test_an_answer_weighted_by_size_needs_replace_one() -> None:
    event = replace(EVENT, adjacency=A)
    refused(replace(ERM, event=event), "must be 'replace-one'", adjacency=A)
    refused(replace(QUERY, event=event, weights="equal"), "must be 'replace-one'", adjacency=A)


def test_noise_at_the_server_is_refused_by_a_party_that_does_not_trust_it() -> None:
    refused(QUERY, "its noise at the server", noise_at="parties")
    refused(ERM, "its noise at the server", noise_at="parties")


def test_noise_of_the_partys_own_is_accepted_and_its_event_recomputed() -> None:
    local = LocalNoise(law="gaussian", relative_noise=2.0, adjacency=R)
    query = replace(QUERY, local=local)
    assert charged(query, noise_at="parties") == EVENT
    more = replace(EVENT, relative_noise=2.0001)
    refused(replace(query, event=more), "not that of the noise", noise_at="parties")


SHARE = NoiseShare(law="skellam", parameter=1e14, minimum=3, colluders=1)


def shared(share: NoiseShare = SHARE, **changes: Any) -> GradientQuery:
    """A query with shares of noise and their true event."""
    stated = replace(QUERY, share=share, **changes)
    mechanism = share_mechanism(stated, TASK)
    assert mechanism is not None
    return replace(stated, event=mechanism.event())


def test_the_event_of_shares_is_recomputed_by_the_party() -> None:
    query = shared()
    assert charged(query, noise_at="parties") == query.event
    assert isinstance(query.event, SkellamEvent)
    for tampered in (
        replace(query.event, variance=2 * query.event.variance),
        replace(query.event, l2_sensitivity=query.event.l2_sensitivity / 2),
        EVENT,
    ):
        refused(replace(query, event=tampered), "not that of the shares", noise_at="parties")


def test_shares_that_claim_a_clip_other_than_the_querys_own_are_refused() -> None:
    """The event of C = 1/2 beside a query that clips at 1: half of the sensitivity."""
    half = shared(clip_norm=0.5)
    refused(replace(half, clip_norm=1.0), "not that of the shares", noise_at="parties")


def test_shares_sized_for_other_sizes_than_the_rosters_are_refused() -> None:
    """A server that lies about n_j has another sensitivity of an average of minimisers."""
    share = NoiseShare(law="skellam", parameter=1e14, minimum=3, colluders=1)
    lie = linear_task((4000, 2500, 6000), 3, regulariser=0.1)
    stated = replace(ERM, share=share)
    for task, honest in ((TASK, True), (lie, False)):
        mechanism = share_mechanism(stated, task)
        assert mechanism is not None
        query = replace(stated, event=mechanism.event())
        if honest:
            charged(query, noise_at="parties")
        else:
            refused(query, "not that of the shares", noise_at="parties")


def test_shares_for_fewer_colluders_than_the_party_fears_are_refused() -> None:
    engagement = replace(ENGAGEMENT, protection=Protection(corrupt=0.4))
    for colluders, message in ((0, "sized for 0 colluders"), (1, None)):
        query = shared(replace(SHARE, colluders=colluders))
        policy = replace(POLICY, colluding=0.34, noise_at="parties")
        if message is None:
            check_terms(query, engagement, policy, R, Unit.RECORD)
        else:
            with pytest.raises(QueryRefused, match=message):
                check_terms(query, engagement, policy, R, Unit.RECORD)


def test_a_sum_that_could_wrap_around_is_refused() -> None:
    refused(replace(QUERY, grid=FixedPoint(step=2.0**-40, bits=32)), "wrap around")


@pytest.mark.parametrize(
    "event",
    [
        GaussianEvent(relative_noise=4.0, adjacency=R),
        PoissonGaussianEvent(relative_noise=4.0, sampling_rate=0.1, adjacency=A),
        LaplaceEvent(relative_noise=4.0, adjacency=R),
        PureEvent(epsilon=0.25, adjacency=R),
        PoissonPureEvent(epsilon=0.25, sampling_rate=0.1, adjacency=A),
        BoundedRangeEvent(epsilon=0.25, adjacency=R),
        ApproximateEvent(epsilon=0.25, delta=1e-6, adjacency=R),
        ZcdpEvent(rho=1 / 32, adjacency=R),
        SkellamEvent(variance=64.0, l1_sensitivity=3.0, l2_sensitivity=2.0, adjacency=R),
        DistributedGaussianEvent(
            shares=4,
            share_stddev=4.0,
            l1_sensitivity=3.0,
            l2_sensitivity=2.0,
            dimension=1,
            adjacency=R,
        ),
    ],
    ids=lambda event: event.kind,
)
def test_every_kind_of_event_has_its_noise_on_one_scale(event: Event) -> None:
    assert relative_noise(event) == pytest.approx(4.0, rel=1e-12)


def test_noise_on_that_scale_is_what_the_accountant_charges_a_gaussian_for() -> None:
    assert GdpAccountant(adjacency=R).cost(EVENT) == pytest.approx(relative_noise(EVENT) ** -2)
