"""A table read some rows at a time is the table read at once, to the bit, with the same errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fedpriv.data import DataError, Dataset, parse_schema, read_table
from fedpriv.data.store import spool
from fedpriv.data.tables import batches

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 500
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "min": 0, "max": 90, "fill": 40},
    "job": {"kind": "category", "values": ["clerk", "nurse", "none"]},
}
SECRET = "Zq7Secret"  # noqa: S105 (a marker, to be found in no message)


@pytest.fixture(autouse=True)
def _few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CSV_BYTES", 700)
    monkeypatch.setattr(batches, "PARQUET_ROWS", 37)


def columns(seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    age = [None if u < 0.1 else round(90 * u, 3) for u in rng.random(ROWS)]
    return {
        "age": age,
        "job": rng.choice(["clerk", "nurse", "none"], ROWS).tolist(),
        "town": rng.choice(["b", "a", "d, e", "c"], ROWS).tolist(),
        "who": [None if u == 7 else f"p{u}" for u in rng.integers(0, 90, ROWS)],
        "apart": rng.choice(["yes", "no"], ROWS, p=[0.2, 0.8]).tolist(),
        "pay": rng.choice(["high", "low"], ROWS).tolist(),
    }


def write(folder: Path, kind: str, values: dict[str, list[Any]]) -> Path:
    path, table = folder / f"mine.{kind}", pa.table(values)
    if kind == "csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path, row_group_size=50)
    return path


def schema(**changes: Any) -> Any:
    values = {"label": "pay", "positive": "high", "columns": COLUMNS, "missing": "drop"}
    return parse_schema({**values, **changes})


def assert_equal(one: Dataset, other: Dataset) -> None:
    for part in ("train", "test"):
        first, second = getattr(one, part), getattr(other, part)
        for name in ("X", "y", "party"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
            if getattr(first, name) is not None:
                assert getattr(first, name).dtype == getattr(second, name).dtype
        assert (first.person is None) == (second.person is None)
        if first.person is not None:
            np.testing.assert_array_equal(first.person.codes, second.person.codes)
            np.testing.assert_array_equal(first.person.hashes, second.person.hashes)
    for fact in ("name", "task", "feature_names", "max_norm", "party_names", "classes"):
        assert getattr(one, fact) == getattr(other, fact)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"party": "town"},
        {"party": "town", "person": "who", "test_column": "apart", "test_values": ["yes"]},
        {"columns": {**COLUMNS, "pay": {"kind": "category", "values": ["low", "high"]}}},
    ],
    ids=["plain", "parties", "persons and tests", "declared label"],
)
def test_a_spooled_table_is_the_table(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    path, rules = write(tmp_path, kind, columns()), schema(**changes)
    (tmp_path / "files").mkdir()
    assert_equal(spool.spooled(path, rules, tmp_path / "files"), read_table(path, rules)[0])


def test_numbers_as_labels_and_classes_are_spooled_too(tmp_path: Path) -> None:
    for name, label in (
        ("numbers", {"kind": "number", "min": 0, "max": 90}),
        ("classes", {"kind": "category", "values": ["nurse", "clerk", "none"]}),
    ):
        column = "age" if name == "numbers" else "job"
        rules = parse_schema(
            {
                "label": column,
                "missing": "drop",
                "columns": {**COLUMNS, column: label},
            }
        )
        path = write(tmp_path, "csv", columns())
        (tmp_path / name).mkdir()
        assert_equal(spool.spooled(path, rules, tmp_path / name), read_table(path, rules)[0])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_errors_name_the_row_of_the_file_and_quote_nothing(tmp_path: Path, kind: str) -> None:
    values = columns()
    values["job"][300] = SECRET
    path = write(tmp_path, kind, values)
    (tmp_path / "files").mkdir()
    with pytest.raises(
        DataError, match=r"'job': 1 value is none of .*, first in row 301"
    ) as caught:
        spool.spooled(path, schema(), tmp_path / "files")
    assert SECRET not in str(caught.value)


def test_a_damaged_file_is_refused_without_its_cells(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", columns())
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "files").mkdir()
    path.write_bytes(b"".join([*lines[:400], SECRET.encode() + b"\n", *lines[400:]]))
    with pytest.raises(DataError, match="rows that do not have the 6 columns") as caught:
        spool.spooled(path, schema(), tmp_path / "files")
    assert SECRET not in str(caught.value)
    path.write_bytes(b"".join([*lines[:400], b"1,\xff\xfe,a,p,no,low\n", *lines[400:]]))
    with pytest.raises(DataError, match="cannot be read as csv"):
        spool.spooled(path, schema(), tmp_path / "files")
    path.write_bytes(lines[0])
    with pytest.raises(DataError, match="is empty: it has a header and no rows"):
        spool.spooled(path, schema(), tmp_path / "files")
    declared = schema(columns={**COLUMNS, "pay": {"kind": "category", "values": ["low", "high"]}})
    assert_equal(
        spool.spooled(path, declared, tmp_path / "files", empty=True),
        read_table(path, declared, empty=True)[0],
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_row_that_is_too_long_is_not_taken_for_none(end: str, tmp_path: Path) -> None:
    """Whatever ends its lines: all rows would be left out without a word."""
    path = write(tmp_path, "csv", columns())
    header = path.read_bytes().splitlines()[0]
    path.write_bytes(header + end.encode() + b"1,none," + b"a" * 3000 + b",p,no,low" + end.encode())
    (tmp_path / "files").mkdir()
    with pytest.raises(DataError, match="cannot be read as csv"):
        spool.spooled(path, schema(), tmp_path / "files", empty=True)
