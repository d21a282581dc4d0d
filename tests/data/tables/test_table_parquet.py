"""A user's own table as Parquet: the same records as from CSV, and the same refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fedpriv.data import DataError, parse_schema, read_table
from tests.data.tables.own_tables import COLUMNS, SECRET

if TYPE_CHECKING:
    from pathlib import Path


def write_parquet(folder: Path, columns: dict[str, Any]) -> Path:
    path = folder / "mine.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("column", ["age", "job", "pay", "who"])
@pytest.mark.parametrize("text", [b"\xff", b"cl\xffrk"])
def test_texts_of_parquet_that_are_not_utf_8_are_refused_as_those_of_csv_are(
    column: str, text: bytes, tmp_path: Path
) -> None:
    """By Arrow's own error, or that of Python, which quotes the byte; some were admitted."""
    columns: dict[str, Any] = {
        "age": ["1", "2"], "job": ["clerk", "nurse"], "pay": ["high", "low"], "who": ["u", "v"]
    }  # fmt: skip
    raw = pa.array([columns[column][0].encode(), text])
    columns[column] = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    schema = parse_schema({"label": "pay", "positive": "high", "person": "who",
                           "out_of_range": "clamp", "columns": COLUMNS})  # fmt: skip
    with pytest.raises(DataError, match=r"mine\.parquet cannot be read as parquet"):
        read_table(write_parquet(tmp_path, columns), schema)


def test_parquet_equals_csv(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 1000
    table = pa.table(
        {
            "age": pa.array(rng.normal(5, 3, n).round(3), mask=rng.random(n) < 0.05),
            "level": pa.array(rng.integers(-1, 4, n), mask=rng.random(n) < 0.05),
            "job": pa.array(rng.choice(["clerk", "nurse", "pilot"], n)).dictionary_encode(),
            "member": pa.array(rng.random(n) < 0.5),
            "state": pa.array(rng.choice(["UT", "IA", "SD"], n), pa.large_string()),
            "pay": pa.array(rng.choice(["low", "high"], n), pa.large_string()),
        }
    )
    pa.csv.write_csv(table.set_column(2, "job", table["job"].cast(pa.string())), tmp_path / "t.csv")
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=300)
    columns = COLUMNS | {
        "level": {"kind": "category", "values": [0, 1, 2, 3]},
        "member": {"kind": "category", "values": [True, False]},
    }
    schema = parse_schema(
        {
            "label": "pay",
            "positive": "high",
            "party": "state",
            "out_of_range": "clamp",
            "missing": "drop",
            "missing_values": [-1],
            "columns": columns,
        }
    )
    (from_csv, csv_report), (from_parquet, report) = (
        read_table(tmp_path / name, schema) for name in ("t.csv", "t.parquet")
    )
    assert csv_report == report
    assert report.rows_kept < n
    assert set(report.clamped) == {"age", "job"}
    assert set(report.missing) == {"age", "level"}
    assert from_csv.party_names == from_parquet.party_names
    np.testing.assert_array_equal(from_csv.train.X, from_parquet.train.X)
    np.testing.assert_array_equal(from_csv.train.y, from_parquet.train.y)
    np.testing.assert_array_equal(from_csv.train.party, from_parquet.train.party)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("age", pa.array([True, False]), "column 'age': holds bool, not numbers"),
        ("age", pa.array([1, 2], pa.timestamp("ms")), r"holds timestamp\[ms\], not numbers"),
        ("age", pa.array([SECRET, "1"]), "column 'age': row 1 does not hold a number"),
        ("job", pa.array([1, 2], pa.timestamp("ms")), "not text, numbers, or true and false"),
        ("job", pa.array([1.5, 2.5]), "Column 'job': 2 values are none of the declared values"),
    ],
)
def test_a_parquet_column_of_the_wrong_type_is_refused(
    tmp_path: Path, column: str, values: Any, message: str
) -> None:
    columns = {"age": [1, 2], "job": ["clerk", "nurse"], "pay": ["high", "low"]} | {column: values}
    schema = parse_schema({"label": "pay", "positive": "high", "columns": COLUMNS})
    with pytest.raises(DataError, match=message):
        read_table(write_parquet(tmp_path, columns), schema)
