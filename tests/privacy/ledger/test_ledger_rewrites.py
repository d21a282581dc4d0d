"""A ledger rewritten with hashes that fit must still make sense, and is told by its old head."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.ledger import Ledger, LedgerTampered
from fedpriv.privacy.ledger.composition import Cost, randomised_response_mu
from fedpriv.privacy.ledger.storage.chain import COLUMNS, GENESIS, _hash, canonical_json
from tests.privacy.ledger.tampering import first_bad_row, rows_of, write

A = Adjacency.ADD_REMOVE


def rechained(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with numbers, previous hashes and hashes that fit."""
    chained: list[dict[str, Any]] = []
    for number, row in enumerate(rows, start=1):
        values = {**row, "seq": number, "prev_hash": chained[-1]["hash"] if chained else GENESIS}
        values["hash"] = _hash([values[name] for name in COLUMNS[:-1]])
        chained.append(values)
    return chained


def lies(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What is wrong, and a ledger that is wrong in this way, but with a perfect chain of hashes."""

    def place(kind: str) -> int:
        return next(i for i, row in enumerate(rows) if row["kind"] == kind)

    def edited(place_of: str, **values: Any) -> list[dict[str, Any]]:
        index = place(place_of)
        return [*rows[:index], {**rows[index], **values}, *rows[index + 1 :]]

    def without(kind: str) -> list[dict[str, Any]]:
        return [row for i, row in enumerate(rows) if i != place(kind)]

    def extended(kind: str, **values: Any) -> list[dict[str, Any]]:
        totals = {name: rows[-1][name] for name in ("total_amount", "total_delta")}
        return [*rows, {**rows[place(kind)], **totals, "amount": 0.0, **values}]

    nothing = {"amount": 0.0, "delta": 0.0, "total_amount": 0.0, "total_delta": 0.0}
    louder = canonical_json(GaussianEvent(relative_noise=3.0, adjacency=A).to_dict())
    ruinous = canonical_json(PureEvent(epsilon=30.0, adjacency=A).to_dict())
    yield "it charges", edited("reserved", amount=1e-9)
    yield "it charges", edited("declared", delta=1e-9)
    yield "it charges", [{**row, **nothing} for row in rows]
    yield "it charges", edited("reserved", detail=louder)
    yield "its totals", edited("committed", total_amount=0.0)
    yield "its totals", edited("simulated", total_delta=1e-9)
    yield "before a composition", without("composition")
    yield "created for", edited("created", detail=rows[0]["detail"].replace('"gdp"', '"rdp"'))
    yield "never declared", without("declared")
    yield "was not reserved", without("reserved")
    yield "may not stand here", [*rows, rows[0]]
    yield "out of turn", extended("data")
    yield "out of turn", extended("data", round=2)
    yield "makes no sense", extended("data", round=1)
    yield "may not have this run", extended("data", round=0)
    yield "without a reason", extended("data", round=1, detail='{"fingerprint":"x","reason":""}')
    yield "was reserved before", extended("reserved")
    yield "was committed before", extended("committed")
    yield "began before it was declared", extended("declared")
    yield "its run was recorded before", extended("simulated")
    yield "its run was recorded before", extended("simulated", run="run")
    yield "its run is simulated", extended("reserved", run="study")
    yield "not one of the releases", extended("reserved", run="declared", round=9, ordinal=3)
    yield (
        "spends more than the budget",
        extended("reserved", round=9, detail=ruinous, **ruined(rows[-1], 30.0)),
    )
    yield "not canonical", edited("simulated", detail='{"seed": 7}')
    yield "makes no sense", edited("reserved", kind="something else")
    yield "makes no sense", edited("reserved", detail='{"kind":"unknown"}')
    yield "makes no sense", edited("composition", detail='{"mode":"free"}')
    yield "makes no sense", edited("declared", detail="[]")
    yield (
        "belongs to a committed row",
        edited("simulated", release=b"x", release_hash=sha256(b"x").digest()),
    )


def ruined(last: dict[str, Any], epsilon: float) -> dict[str, float]:
    """Cost and totals of a pure release after ``last``."""
    amount = randomised_response_mu(epsilon) ** 2
    total = Cost(amount=last["total_amount"]) + Cost(amount=amount)
    return {"amount": amount, "total_amount": total.amount}


def test_a_rewritten_ledger_must_still_make_sense(original: Path, tmp_path: Path) -> None:
    """Even with every hash recomputed, costs and rules are checked from the events themselves."""
    for problem, rows in lies(rows_of(original)):
        path = Path(shutil.copy(original, tmp_path / "copy.ledger"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP INDEX once")
            connection.execute("DROP INDEX allowance")
        write(path, rechained(rows), head=True)
        with (
            Ledger.open(path, read_only=True) as ledger,
            pytest.raises(LedgerTampered, match=problem),
        ):
            ledger.verify()


def test_a_rewrite_that_changes_nothing_is_valid(path: Path) -> None:
    """The twin of the test above: what it rejects, it rejects for the reason it names."""
    write(path, rechained(rows_of(path)), head=True)
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()


def test_compacting_the_file_changes_no_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()


def test_a_consistent_rewrite_is_found_by_a_head_kept_elsewhere(path: Path) -> None:
    with Ledger.open(path, read_only=True) as ledger:
        kept = ledger.head
    write(path, rechained(rows_of(path)[:-3]), head=True)
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()  # it holds together: nobody can tell from the file alone
    assert first_bad_row(path, expected_head=kept) is None


def test_a_kept_head_stays_valid_when_rows_are_added(path: Path) -> None:
    with Ledger.open(path) as ledger:
        kept, rows = ledger.head, ledger.verify().rows
        ledger.record_simulation("later", {})
        found = ledger.verify(expected_head=kept)
        assert (found.expected_row, found.rows) == (rows, rows + 1)
        assert found.head == ledger.head != kept
