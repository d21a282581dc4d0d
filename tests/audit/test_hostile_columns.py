"""Hostile columns: what one value does to how the values of all other records are read."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedpriv.data.split
from fedpriv.data import read_table
from fedpriv.data.tables.schema import parse_schema
from tests.audit.examination import difference
from tests.audit.neighbours import GRADIENTS, Case, table

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS, LAST = 1000, Decimal("1.25")
"""Many records, and the value of the one that is exchanged."""


def read(values: list[Any], folder: Path, *, kind: Any = None, code: str = "99.99") -> list[float]:
    """The feature of all records but the last, from a column of the type that Arrow gives it."""
    schema = parse_schema(
        {
            "label": "y",
            "positive": "1",
            "out_of_range": "clamp",
            "missing_values": [code],
            "columns": {
                "a": {"kind": "number", "min": 0, "max": 10, "fill": 0},
                "y": {"kind": "category", "values": [0, 1]},
            },
        }
    )
    columns = {"a": pa.array(values, kind), "y": [0] * len(values)}
    parquet.write_table(pa.table(columns), folder / "t.parquet")
    dataset, _ = read_table(folder / "t.parquet", schema)
    return list(dataset.train.X[:-1, 0].tolist())


@pytest.mark.parametrize("code", ["99.99", "98.6", "999.9", "0.1"])
def test_the_digits_of_one_decimal_number_change_no_other(code: str, tmp_path: Path) -> None:
    """A column has one scale, by which Arrow rounds: 500 records went from 1 to -1 with one."""
    values = [Decimal(code), Decimal("3.14")] * (ROWS // 2) + [LAST]
    here = read(values, tmp_path, code=code)
    assert here[0] == -1  # the code for a missing value, which 0 fills
    for digits in range(3, 16):
        longer = [*values[:-1], LAST + Decimal(1).scaleb(-digits)]
        assert read(longer, tmp_path, code=code) == here, digits


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("uint64", [2**53 + 1, 3, 2**63 + 1]),
        ("float64", [2.0**53, 3.0, float("nan")]),
        ("decimal", [Decimal(2**53 + 1), Decimal(3), Decimal("0.5")]),
        ("text", [str(2**53 + 1), "3", "0.5"]),
        ("dictionary", [str(2**53 + 1), "3", "0.5"]),
    ],
)
def test_a_number_is_the_same_in_every_type_that_its_column_may_have(
    kind: str, values: list[Any], tmp_path: Path
) -> None:
    types = {
        "decimal": pa.decimal128(38, 18),
        "text": pa.string(),
        "dictionary": pa.dictionary(pa.int8(), pa.string()),
    }
    plain = read([2**53 + 1, 3, 1], tmp_path, code=str(2**53 + 1))
    assert plain == pytest.approx([-1, -0.4])
    found = read(values, tmp_path, kind=types.get(kind) or kind, code=str(2**53 + 1))
    assert found == plain


def test_a_record_that_a_hash_of_next_to_nothing_takes_is_still_counted(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 - 1e-17 is 1, as if there were no split: "records: 49" told who was made for its hash."""
    case = Case(name="hardly any", strategy=GRADIENTS, data={"test_fraction": 1e-17})
    rows = table("binary")
    one = laboratory.run(case, rows, tmp_path / "one")
    monkeypatch.setattr(fedpriv.data.split, "below", lambda _, drawn: np.arange(len(drawn)) == 20)
    other = laboratory.run(case, rows, tmp_path / "other", script=one)
    assert one.json("result.json")["records"] == len(rows)
    assert difference(case, one, other) == []


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ({**GRADIENTS, "sampling_rate": 0.5}, {}),
        ({"name": "adaptive-clipping", "rule": "coordinate", "rounds": 2}, {"name": "softmax"}),
        ({"name": "agd", "rounds": 2}, {"name": "mlp", "hidden": [3]}),
    ],
    ids=["sampled", "coordinate", "agd"],
)
def test_the_only_record_that_a_column_leaves_for_training_may_leave(
    strategy: dict[str, Any], model: dict[str, Any], laboratory: Laboratory, tmp_path: Path
) -> None:
    """A table of test records alone is released like any other, noise and nothing else."""
    case = Case(
        name="last", strategy=strategy, model=model, adjacency="add-remove", fold=True, epsilon=0.5
    )
    rows = [{**row, "fold": "5"} for row in table(case.task)]
    rows[7]["fold"] = "1"
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, rows[:7] + rows[8:], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0), one.said + other.said
    assert difference(case, one, other) == []
