"""A description is private from the file on: neighbouring tables, every output, every sum.

As in `test_neighbouring_files` and `test_neighbouring_persons`, for `fedpriv describe`. A second
run is given the release of the first: whatever it writes must then be the same to the byte,
statistics included, which follow from released numbers alone. Neighbours that lose a value, or gain
one, are among those that are tried: what is missing is counted, and not refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.planning.statistics_design import Design
from tests.audit.examination import difference, findings
from tests.audit.neighbours import EXTREME, Case, moved, table
from tests.audit.test_neighbouring_persons import PersonCase
from tests.audit.test_neighbouring_persons import findings as person_findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.privacy.adjacency import Adjacency
    from tests.audit.neighbours import Laboratory, Row

DESCRIBE: dict[str, Any] = {
    "name": "describe",
    "bins": 8,
    "edges": {"dose": [-0.5, 0.5]},
    "correlation": ["age", "dose"],
    "tables": [["ward", "outcome"]],
    "survival": {
        "time": "age",
        "event": "outcome",
        "seen": "yes",
        "edges": [25, 50, 75],
        "by": "ward",
    },
}
MOMENTS: dict[str, Any] = {"name": "describe", "bins": 4}
HASHED = {"partition": "hashed", "parties": 4, "records": 50}

CASES = [
    Case(name="all statistics", strategy=DESCRIBE),
    Case(name="all, one more or less", strategy=DESCRIBE, adjacency="add-remove", file="parquet"),
    Case(name="moments and quantiles", strategy=MOMENTS, file="parquet"),
    Case(name="bounds", strategy={"name": "describe", "magnitudes": ["age", "dose"]}),
    Case(name="by hash, one more or less", strategy=MOMENTS, adjacency="add-remove", data=HASHED),
]
PERSONS = [
    PersonCase(name="exchanged", strategy=DESCRIBE, persons={"records": 2}),
    PersonCase(
        name="at two parties, one more or less",
        strategy=MOMENTS,
        adjacency="add-remove",
        persons={"parties": 2, "records": 3},
    ),
    PersonCase(
        name="records, exchanged at two parties",
        strategy={**MOMENTS, "per_person": "records"},
        persons={"parties": 2, "records": 3},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_description_shows_a_record_through_its_noise_alone(
    case: Case, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert findings(case, laboratory, tmp_path) == []
    assert (tmp_path / "one" / "out" / "statistics.json").exists()  # it was not refused


@pytest.mark.parametrize("case", PERSONS, ids=lambda case: case.name)
def test_a_description_shows_a_person_through_its_noise_alone(
    case: PersonCase, laboratory: Laboratory, tmp_path: Path
) -> None:
    assert person_findings(case, laboratory, tmp_path) == []


def changed(name: str, rows: list[Row]) -> list[Row]:
    rows = [dict(row) for row in rows]
    rows[EXTREME] |= {
        "value lost": {"age": ""},
        "all values lost": {"age": "", "dose": "", "ward": "", "outcome": ""},
        "out of range": {"age": "1e9", "dose": "-1e9", "ward": "nobody knows"},
        "on an edge": {"age": "50", "dose": "0.5"},
    }[name]
    return rows


@pytest.mark.parametrize("name", ["value lost", "all values lost", "out of range", "on an edge"])
def test_a_value_that_is_lost_shows_no_more_than_another(
    name: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    case, rows = Case(name=name, strategy=DESCRIBE), table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, changed(name, rows), tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0)
    assert difference(case, one, other) == []
    assert moved(one.releases[0], other.releases[0]) > 0


def test_half_of_a_sensitivity_is_found(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[..., float] = Design.sensitivity

    def half(self: Design, adjacency: Adjacency, **terms: Any) -> float:
        return 0.5 * whole(self, adjacency, **terms)

    monkeypatch.setattr(Design, "sensitivity", half)
    case = Case(name="half", strategy=DESCRIBE)
    assert any("a sum moved" in found for found in findings(case, laboratory, tmp_path))
