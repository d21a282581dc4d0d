"""The unit of privacy: carried by all that is charged, and never mixed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy import events
from fedpriv.privacy.accountants import ACCOUNTANTS, UnsupportedEvent, account, pld
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import Event, GaussianEvent, PureEvent
from fedpriv.privacy.mechanisms import Mechanism
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax, Selection
from fedpriv.privacy.mechanisms.shares import SHARE_LAWS, NoiseShare, SharedNoise
from fedpriv.privacy.planning.filters import GdpFilter, PrivacyFilter, RdpFilter
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit, neighbours_in_words, sizes_are_public
from fedpriv.privacy.written_events import event_from_dict
from tests.privacy.mechanisms.test_mechanisms import EVERY
from tests.privacy.test_events import EVENTS

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
OTHER = (Unit.PERSON, Unit.PARTY)
every_unit = pytest.mark.parametrize("unit", Unit)


SHARED = [
    SharedNoise(
        adjacency=R,
        share=NoiseShare(law=law, parameter=4.0, minimum=3),
        l1_sensitivity=7.0,
        l2_sensitivity=3.0,
        dimension=5,
        step=0.5,
    )
    for law in SHARE_LAWS
]
PROBLEM = ObjectiveProblem(
    lipschitz=1.0,
    lipschitz_everywhere=True,
    curvature=0.25,
    curvature_rank=1,
    records=1000,
    regulariser=0.1,
    dimension=3,
    tolerance=1e-6,
)
SELECTIONS: list[Selection] = [
    kind(adjacency=A, epsilon=0.5, sensitivity=1.0)
    for kind in (ExponentialMechanism, ReportNoisyMax)
]

# --- What it says -------------------------------------------------------------------------------


def test_units_say_in_words_what_they_protect() -> None:
    assert [unit.words for unit in Unit] == [
        "one record",
        "all records of one person",
        "all records of one party",
    ]
    assert {(u, a): neighbours_in_words(u, a) for u in Unit for a in Adjacency} == {
        (Unit.RECORD, A): "one record more or less",
        (Unit.PERSON, A): "one person more or less, with all their records",
        (Unit.PARTY, A): "the whole answer of one party more or less",
        (Unit.RECORD, R): "one record exchanged for another, at its place and its party",
        (Unit.PERSON, R): "all records of one person exchanged for those of another",
        (Unit.PARTY, R): "all records of one party exchanged for others",
    }


def test_numbers_of_records_are_public_only_where_one_record_is_exchanged() -> None:
    assert [(u, a) for u in Unit for a in Adjacency if sizes_are_public(u, a)] == [(Unit.RECORD, R)]


def test_an_unknown_unit_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="unit must be one of 'record', 'person', 'party'"):
        Unit("household")


# --- Events and mechanisms ----------------------------------------------------------------------


def test_the_events_of_these_tests_are_all_there_are() -> None:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type)]
    known = {kind.kind for kind in kinds if issubclass(kind, Event) and kind is not Event}
    assert {event.kind for event in EVENTS} == known


@every_unit
@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_an_event_keeps_its_unit_on_paper(event: Event, unit: Unit) -> None:
    stated = replace(event, unit=unit)
    written = json.loads(json.dumps(stated.to_dict()))
    assert written["unit"] == unit.value
    assert event_from_dict(written) == stated
    assert event_from_dict(written).unit is unit
    assert (stated == event) is (unit is DEFAULT_UNIT)


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_an_event_that_was_written_without_a_unit_is_not_read(event: Event) -> None:
    written = event.to_dict()
    del written["unit"]
    with pytest.raises(ValueError, match="before events had a unit"):
        event_from_dict(written)
    with pytest.raises(ValueError, match="unit must be one of"):
        event_from_dict({**written, "unit": "household"})


@every_unit
@pytest.mark.parametrize("mechanism", [*EVERY, *SHARED], ids=lambda m: f"{m.name}-{m.title}")
def test_a_mechanism_hands_its_unit_to_its_event(mechanism: Mechanism, unit: Unit) -> None:
    assert replace(mechanism, unit=unit).event().unit is unit


@every_unit
def test_laplace_noise_on_one_number_hands_on_its_unit(unit: Unit) -> None:
    vectors = [m for m in EVERY if getattr(m, "dimension", None)]
    assert len(vectors) == 4
    assert {replace(m, dimension=1, unit=unit).event().unit for m in vectors} == {unit}  # type: ignore[call-arg]


@every_unit
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda s: s.name)
def test_a_selection_hands_its_unit_to_its_event(selection: Selection, unit: Unit) -> None:
    assert replace(selection, unit=unit).event().unit is unit


@every_unit
@pytest.mark.parametrize("law", ["l2-laplace", "gaussian"])
def test_objective_noise_hands_on_its_unit(law: Any, unit: Unit) -> None:
    noise = ObjectiveNoise(
        law=law, epsilon=1.0, delta=0.0 if law == "l2-laplace" else 1e-6, adjacency=R, unit=unit
    )
    mechanism = noise.mechanism(PROBLEM, step=1e-6)
    units = {mechanism.unit, mechanism.linear.unit, mechanism.output.unit, mechanism.event().unit}
    assert units == {unit}


@every_unit
@pytest.mark.parametrize("mechanism", EVERY[:3], ids=lambda m: m.name)
def test_local_noise_hands_on_its_unit(mechanism: Mechanism, unit: Unit) -> None:
    local = LocalNoise.like(replace(mechanism, unit=unit))
    assert local.unit is unit
    assert local.mechanism(sensitivity=2.0, dimension=5).event().unit is unit


@every_unit
@pytest.mark.parametrize("kind", ["gaussian", "laplace", "pure"])
def test_sampling_keeps_the_unit(kind: str, unit: Unit) -> None:
    (event,) = (each for each in EVENTS if each.kind == kind)
    stated = replace(event, adjacency=A, unit=unit)
    assert sampled(stated, 0.5).unit is sampled(stated, 1.0).unit is unit
    if kind == "gaussian":
        assert sampled(stated, 0.5, parts=2).unit is unit


# --- Adding up ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACCOUNTANTS)
@pytest.mark.parametrize("unit", OTHER)
def test_an_accountant_refuses_another_unit(name: str, unit: Unit) -> None:
    event = PureEvent(epsilon=0.1, adjacency=R)
    if name == "gdp":
        event = GaussianEvent(relative_noise=3.0, adjacency=R)  # type: ignore[assignment]
    other = replace(event, unit=unit)
    accountant = ACCOUNTANTS[name](adjacency=R)
    for refused in (
        lambda: accountant.compose(other),
        lambda: accountant.compose_all([(event, 1), (other, 1)]),
        lambda: account([(event, 1), (other, 1)], delta=1e-6, accountant=name),
        lambda: ACCOUNTANTS[name](adjacency=R, unit=unit).compose(event),
    ):
        with pytest.raises(ValueError, match=r"unit of the event is .* do not add up"):
            refused()


@every_unit
@pytest.mark.parametrize("name", ACCOUNTANTS)
@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_a_unit_changes_no_price(name: str, event: Event, unit: Unit) -> None:
    def epsilon(priced: Event) -> float | str | None:
        try:
            return account([(priced, 2)], delta=1e-5, accountant=name).epsilon
        except UnsupportedEvent as reason:
            return str(reason)

    assert epsilon(replace(event, unit=unit)) == epsilon(event)


@every_unit
def test_a_loss_that_does_not_fit_is_bounded_by_moments_in_its_own_unit(
    monkeypatch: pytest.MonkeyPatch, unit: Unit
) -> None:
    monkeypatch.setattr(pld, "_MOST_POINTS", 0)
    event = GaussianEvent(relative_noise=3.0, adjacency=R, unit=unit)
    numerical = ACCOUNTANTS["pld"](adjacency=R, unit=unit).compose(event)
    by_moments = ACCOUNTANTS["rdp"](adjacency=R, unit=unit).compose(event)
    assert numerical.epsilon(1e-6) == by_moments.epsilon(1e-6)


@pytest.mark.parametrize(
    "filter_",
    [
        GdpFilter(budget=BUDGET, adjacency=R),
        RdpFilter(budget=BUDGET, adjacency=R, order=16.0),
        RdpFilter.for_gaussians(budget=BUDGET, adjacency=R),
    ],
    ids=lambda f: f.name,
)
@pytest.mark.parametrize("unit", OTHER)
def test_a_filter_refuses_another_unit(filter_: PrivacyFilter, unit: Unit) -> None:
    event = GaussianEvent(relative_noise=50.0, adjacency=R)
    assert filter_.admit(event).unit is Unit.RECORD
    with pytest.raises(ValueError, match="unit of the event"):
        filter_.admit(replace(event, unit=unit))
    own = replace(filter_, unit=unit)
    assert own.admit(replace(event, unit=unit)).unit is unit
    with pytest.raises(ValueError, match="unit of the event"):
        own.affords(event)


@pytest.mark.parametrize("unit", OTHER)
def test_a_filter_made_for_releases_is_of_their_unit(unit: Unit) -> None:
    event = GaussianEvent(relative_noise=50.0, adjacency=R, unit=unit)
    assert RdpFilter.for_releases(budget=BUDGET, event=event).unit is unit
    assert RdpFilter.for_gaussians(budget=BUDGET, adjacency=R, unit=unit.value).unit is unit
