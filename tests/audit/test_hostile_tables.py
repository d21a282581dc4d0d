"""Neighbouring files, both admitted by their schema, that a release must not tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import read_table
from fedpriv.data.marks import below, marks
from fedpriv.data.tables.schema import parse_schema
from fedpriv.simulations.experiment.catalogue import checked
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import prepare
from tests.audit.examination import difference, limit
from tests.audit.laboratory import moved
from tests.audit.neighbours import GRADIENTS, OUTPUT, Case, table, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Row

CODES = parse_schema(
    {
        "label": "y",
        "positive": "1",
        "out_of_range": "clamp",
        "columns": {
            "a": {"kind": "number", "min": 0, "max": 1, "fill": 0},
            "t": {"kind": "category", "values": [0, 1], "fill": 0},
            "y": {"kind": "category", "values": [0, 1]},
        },
    }
)


@dataclass(frozen=True, kw_only=True)
class Crowd(Case):
    """A release for many parties."""

    parties: int = 160

    def schema(self) -> dict[str, Any]:
        found = super().schema()
        found["columns"]["clinic"]["values"] = [f"c{j:03}" for j in range(self.parties)]
        return found


# Whether there is a release.


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_label_that_the_schema_admits_decides_whether_there_is_a_release(
    adjacency: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """A label beyond a `label_bound` below 1 was found in the table, and refused it."""
    case = Case(
        name="bound",
        strategy=GRADIENTS,
        adjacency=adjacency,
        model={"name": "squared", "label_bound": 0.5},
    )
    rows = [{**row, "outcome": "0.3"} for row in table("number")]
    other = [{**rows[0], "outcome": "0.9"}, *rows[1 if adjacency == "replace-one" else 0 :]]
    one, two = (laboratory.run(case, some, tmp_path / str(len(some))) for some in (rows, rows[1:]))
    three = laboratory.run(case, other, tmp_path / "other")
    assert {(done.code, done.said) for done in (one, two, three)} == {(2, one.said)}
    assert "label_bound of at least 1" in one.said


def test_no_number_that_is_far_out_of_range_is_told_of(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """It overflowed on its way to the end of the range, with a warning."""
    case = Case(name="far", strategy=GRADIENTS)
    rows = table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    for place, far in enumerate(("1e308", "-1.7e308", "1e-400", "-0.0")):
        changed = [{**row, "age": far} if row is rows[3] else row for row in rows]
        other = laboratory.run(case, changed, tmp_path / str(place), script=one)
        assert (other.code, other.said) == (one.code, one.said)
        assert difference(case, one, other) == []


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("column", ["a", "t"])
@pytest.mark.parametrize("rows", [1, 2])
def test_no_missing_value_changes_how_a_parquet_column_is_read(
    column: str, missing: bool, rows: int, tmp_path: Path
) -> None:
    """A column of codes with a gap is written as floating-point numbers, one of gaps as nothing."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns: dict[str, Any] = {"a": [1, 0][:rows], "t": [1, 0][:rows], "y": [1, 0][:rows]}
    if missing:
        columns[column] = [None] if rows == 1 else [float("nan"), 0.0]
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    dataset, report = read_table(tmp_path / "t.parquet", CODES)
    assert report.missing == ({column: 1} if missing else {})
    assert report.clamped == {}
    first = {"a": [-1.0, 0.0, 1.0], "t": [1.0, 1.0, 0.0]}[column] if missing else [1.0, 0.0, 1.0]
    assert dataset.train.X[0].tolist() == first


# Who is in the sum.


def test_a_hash_that_takes_few_records_is_one_that_moves_others(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """Sizes rounded to all records looked like records that stay in place.

    Which parties are solved in which blocks then followed from who is tested on, and one step of
    the solver more or less moved the parties beside the changed one: by 7.6 times what was stated.
    """
    rng = np.random.default_rng(4)
    case = Crowd(
        name="few",
        strategy={**OUTPUT, "tolerance": 0.15686251276006472},
        model={"name": "huber-svm", "smoothing": 0.1},
        data={"test_fraction": 1e-4},
    )
    some: list[Row] = [
        {
            "age": f"{rng.uniform(0, 100):.2f}",
            "dose": f"{rng.uniform(-1, 1):.3f}",
            "ward": str(rng.choice(["icu", "er"])),
        }
        for _ in range(100)
    ]
    for row in some:
        score = float(row["age"]) / 50 - 1 + float(row["dose"]) + rng.normal() / 3
        row["outcome"] = "yes" if score > 0 else "no"
    rows = [{**row, "clinic": f"c{j:03}"} for j in range(case.parties) for row in some]
    tested = _tested_on(case, {**rows[0]}, rng, tmp_path / "drawn")
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, [tested, *rows[1:]], tmp_path / "other", script=one)
    assert difference(case, one, other) == []
    assert moved(one.releases[0], other.releases[0]) <= limit(one.releases[0])


def _tested_on(case: Case, row: Row, rng: np.random.Generator, folder: Path) -> Row:
    """The row at another age, such that the hash sets it apart for testing."""
    drawn = [{**row, "age": f"{age:.3f}"} for age in rng.uniform(0, 100, 30_000)]
    write(case, drawn, folder)
    dataset, _ = read_table(folder / "clinic.csv", parse_schema(case.schema()))
    seed = checked(parse_experiment(case.experiment(folder))).seed_of("test split")
    fraction = case.data["test_fraction"]
    (found, *_) = np.flatnonzero(
        below(fraction, marks(dataset.train, purpose="test split", seed=seed))
    )
    return drawn[found]


@pytest.mark.parametrize(
    ("data", "in_place"),
    [
        ({"test_fraction": 0.0}, True),
        ({"test_fraction": 1e-4}, False),
        ({"test_fraction": 1e-17}, False),  # 1 - 1e-17 is 1 in floating point
        ({"test_fraction": 0.9}, False),
        ({"partition": "hashed", "parties": 1, "test_fraction": 0.0}, True),
    ],
    ids=str,
)
def test_only_records_that_no_hash_moves_are_in_place(
    data: dict[str, Any], in_place: bool, tmp_path: Path
) -> None:
    """And only the others may be tested on as public ones, or be left out of what is counted."""
    case = Case(name="places", strategy=OUTPUT, data=data)
    write(case, table("binary"), tmp_path / "data")
    prepared = prepare(parse_experiment(case.experiment(tmp_path / "data")))
    assert prepared.task.in_place == in_place
    assert prepared.own_test == in_place


# What was tried, and found nothing.


@pytest.mark.parametrize(
    "fraction", [None, 0.0, 0.5], ids=["default split", "no split", "half of all tested on"]
)
@pytest.mark.parametrize("kind", ["last of its party", "one of many copies", "one of two parties"])
def test_a_record_that_leaves_shows_through_its_noise_alone(
    kind: str, fraction: float | None, laboratory: Laboratory, tmp_path: Path
) -> None:
    rows = table("binary")
    data: dict[str, Any] = {"test_fraction": fraction}
    if kind == "last of its party":
        others = [row for row in rows if row["clinic"] != "west"]
        rows = [*others, next(row for row in rows if row["clinic"] == "west")]
    elif kind == "one of many copies":
        rows = [*rows, *([dict(rows[0])] * 20)]
    else:
        data |= {"partition": "hashed", "parties": 2, "records": 50}
    case = Case(name=kind, strategy=GRADIENTS, adjacency="add-remove", data=data)
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[:-1], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0)
    assert difference(case, one, other) == []


@pytest.mark.parametrize(
    "content",
    [
        "a,t,y\r\n0.5,1,1\r\n",
        "\ufeffa,t,y\n0.5,1,1",
        'a,t,y\n"0.5","1","1"\n',
        " a ,t, y\n +0.50 , 1 ,\t1 \n\n",
        "t,y,more,a\n1,1,\u00e9,5e-1\n",
    ],
    ids=["lines", "mark", "quotes", "blanks", "order"],
)
def test_a_record_is_the_same_however_it_is_spelled(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content.encode())
    dataset, report = read_table(tmp_path / "t.csv", CODES)
    assert dataset.train.X.tolist() == [[0.0, 0.0, 1.0]]
    assert dataset.train.y.tolist() == [1.0]
    assert (report.missing, report.clamped) == ({}, {})
