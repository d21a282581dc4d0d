"""A ledger is made for one unit of privacy, says so in every row, and pays for no other."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import Event, GaussianEvent, PureEvent
from fedpriv.privacy.ledger import (
    Kind,
    Ledger,
    LedgerConflict,
    LedgerMismatch,
    LedgerTampered,
    Settings,
    fitting_composition,
)
from fedpriv.privacy.ledger.reservations import event_json
from fedpriv.privacy.ledger.write_off import write_off
from fedpriv.privacy.unit import Unit
from tests.privacy.test_events import EVENTS

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
QUIET = GaussianEvent(relative_noise=50.0, adjacency=A)
PURE = PureEvent(epsilon=0.01, adjacency=A)
RULES = ("gdp", "basic", "rdp", "auto")


def made(folder: Path, unit: Unit | str, *, composition: str = "gdp") -> Ledger:
    return Ledger.create(
        folder / f"{unit}.ledger",
        data_name="clinic",
        budget=BUDGET,
        adjacency=A,
        composition=composition,
        unit=unit,
    )


def quiet(composition: str, unit: Unit) -> Event:
    return replace(PURE if composition == "basic" else QUIET, unit=unit)


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("composition", RULES)
def test_a_ledger_carries_its_unit_from_the_first_row_to_the_last(
    tmp_path: Path, unit: Unit, composition: str
) -> None:
    event = quiet(composition, unit)
    with made(tmp_path, unit.value, composition=composition) as ledger:
        ledger.commit(ledger.reserve(event, run="one", round=0), b"release")
        ledger.declare("two", [(event, 2)], delta=0.0 if composition == "basic" else None)
        ledger.reserve(event, run="two", round=0)
        path = tmp_path / f"{unit}.ledger"
    with Ledger.open(path, unit=unit) as ledger:
        assert ledger.settings.unit is unit
        assert ledger.settings.terms == f"{unit.words}, add-remove"
        assert ledger.verify().rows == ledger.length
        exported = json.loads(json.dumps(ledger.export()))
        rule = ledger.spent().composition
        assert rule is not None
        assert rule.unit is unit
        ledger.require_room("three", [(event, 1)], delta=0.0)
        assert ledger.foresee(event, run="one", round=0) == "committed"
    assert exported["settings"]["unit"] == unit.value
    charged = [row for row in exported["rows"] if row["kind"] in ("reserved", "declared")]
    assert len(charged) == 3
    for row in charged:
        stated = row["detail"]["releases"][0][0] if row["kind"] == "declared" else row["detail"]
        assert stated["unit"] == unit.value


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.kind)
def test_no_kind_of_release_is_paid_from_the_ledger_of_another_unit(
    tmp_path: Path, event: Event
) -> None:
    for unit in Unit:
        with made(tmp_path, unit, composition="rdp") as ledger:
            rows = ledger.length
            for other in Unit:
                if other is unit:
                    continue
                asked = replace(event, adjacency=A, unit=other)
                for request in requests(ledger, asked):
                    with pytest.raises(ValueError, match=f"unit of the event is '{other.value}'"):
                        request()
            assert ledger.length == rows


def requests(ledger: Ledger, event: Event) -> list[Callable[[], Any]]:
    """Every way to ask a ledger for one release."""
    block = [(event, 1)]
    return [
        lambda: ledger.reserve(event, run="run", round=0),
        lambda: ledger.foresee(event, run="run", round=0),
        lambda: ledger.declare("run", block),
        lambda: ledger.require_price(block),
        lambda: ledger.require_room("run", block),
    ]


@pytest.mark.parametrize("composition", RULES)
def test_releases_of_two_units_do_not_share_a_ledger(tmp_path: Path, composition: str) -> None:
    with made(tmp_path, "party", composition=composition) as ledger:
        own, other = quiet(composition, Unit.PARTY), quiet(composition, Unit.RECORD)
        ledger.reserve(own, run="own", round=0)
        for request in requests(ledger, other):
            with pytest.raises(ValueError, match=r"one record .* one party do not add up"):
                request()
        with pytest.raises(ValueError, match="unit of the event"):
            ledger.declare("mixed", [(own, 1), (other, 1)])
        assert ledger.reserve(own, run="own", round=1).status == "reserved"


def test_a_ledger_of_another_unit_is_not_opened_and_the_refusal_says_what_to_do(
    tmp_path: Path,
) -> None:
    made(tmp_path, "party").close()
    path = tmp_path / "party.ledger"
    with pytest.raises(LedgerMismatch) as refusal:
        Ledger.open(path, unit="record")
    said = str(refusal.value)
    assert "unit of this ledger is 'party', not 'record'" in said
    assert "Let privacy.unit = 'party' (in a deployment, of its budget)" in said
    assert "fedpriv ledger init --unit record" in said
    assert "loses at most what both ledgers say together" in said
    Ledger.open(path).close()
    with pytest.raises(ValueError, match="unit must be one of"):
        made(tmp_path, "household")


@pytest.mark.parametrize("composition", RULES)
def test_a_budget_is_written_off_in_its_own_unit(tmp_path: Path, composition: str) -> None:
    with made(tmp_path, "person", composition=composition) as ledger:
        assert write_off(ledger, run="lost").left.share < 1e-9
        ledger.verify()


@pytest.mark.parametrize("unit", Unit)
def test_the_rule_that_a_run_fits_is_looked_for_in_its_unit(unit: Unit) -> None:
    event = GaussianEvent(relative_noise=20.0, adjacency=A, unit=unit)
    chosen = fitting_composition([(event, 1)], delta=1e-6, budget=BUDGET, adjacency=A, unit=unit)
    assert chosen == "gdp"


def test_a_row_of_another_unit_is_found(tmp_path: Path) -> None:
    """Whoever can write the file could plant one; its hashes would be right."""
    with made(tmp_path, "party") as ledger:
        cost = ledger.reserve(replace(QUIET, unit=Unit.PARTY), run="run", round=0).spent.total
        with ledger._store.writing():
            ledger._store.append(
                ledger._store.tail(),
                kind=Kind.RESERVED,
                run="run",
                round=1,
                detail=event_json(QUIET),
                cost=cost,
            )
        with pytest.raises(LedgerTampered, match=r"row 4 .*unit of the event is 'record'"):
            ledger.verify()


# Ledgers from before there were units.


@contextmanager
def before_units() -> Iterator[None]:
    """Rows as they were written then: neither settings nor events name a unit."""

    def without(method: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
        return lambda self: {k: v for k, v in method(self).items() if k != "unit"}

    event_json.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Event, "to_dict", without(Event.to_dict))
        patch.setattr(Settings, "to_dict", without(Settings.to_dict))
        yield
    event_json.cache_clear()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with before_units(), made(tmp_path, "record") as ledger:
        ledger.commit(ledger.reserve(QUIET, run="by round", round=0), b"release")
        ledger.declare("whole", [(QUIET, 2)])
        ledger.reserve(QUIET, run="whole", round=0)
        assert all('"unit"' not in row.detail for row in ledger.rows())
    return tmp_path / "record.ledger"


def test_an_old_ledger_is_one_of_records_and_goes_on(old: Path) -> None:
    with Ledger.open(old, unit="record") as ledger:
        assert ledger.settings.unit is Unit.RECORD
        before = ledger.verify().spent.total.amount
        assert before == pytest.approx(3 / 50**2)
        ledger.reserve(QUIET, run="new", round=0)
        ledger.declare("new whole", [(QUIET, 1)])
        ledger.reserve(QUIET, run="new whole", round=0)
        assert ledger.verify().spent.total.amount == pytest.approx(5 / 50**2)
    with pytest.raises(LedgerMismatch, match="unit of this ledger is 'record'"):
        Ledger.open(old, unit="party")


def test_a_run_of_an_old_ledger_is_over(old: Path) -> None:
    """What it reserved, and what is left of what it declared, is found by the words of its rows."""
    with Ledger.open(old) as ledger:
        rows = ledger.length
        with pytest.raises(LedgerConflict, match="reserved for another event"):
            ledger.reserve(QUIET, run="by round", round=0)
        for number in (0, 1):
            with pytest.raises(LedgerConflict):
                ledger.reserve(QUIET, run="whole", round=number)
        with pytest.raises(LedgerConflict, match="declared with other releases"):
            ledger.declare("whole", [(QUIET, 2)])
        assert ledger.length == rows
