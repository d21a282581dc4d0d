"""Preprocessing for prediction takes the path of training, to the bit, from any kind of table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data import Bounds, DataError, Preprocessing, bound, load, parse_schema, read_table

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data import Schema

SECRET = "Zq7Secret"  # noqa: S105 (a marker, to be found in no message)
BOUNDS = [
    Bounds(),
    Bounds(norm=0.3, intercept=0.0),
    Bounds(norm=2.0, intercept=0.5, scaling="divide"),
]


def schema(**changes: Any) -> Schema:
    return parse_schema(
        {
            "label": "pay",
            "positive": "high",
            "out_of_range": "clamp",
            "missing_values": ["-9"],
            "columns": {
                "age": {"kind": "number", "min": 17, "max": 90, "fill": 40},
                "job": {"kind": "category", "values": ["clerk", "nurse", "3"], "fill": "nurse"},
            },
        }
        | changes
    )


def preprocessing(bounds: Bounds | None = None, **changes: Any) -> Preprocessing:
    found = schema(**changes)
    return Preprocessing(
        feature_names=found.feature_names,
        max_norm=2**0.5,
        bounds=bounds or Bounds(),
        schema=found,
    )


ROWS: dict[str, list[Any]] = {
    "age": [17.0, 33.3, 1e9, None, 90.0, -9.0],
    "job": ["clerk", None, "3", "nurse", "pilot", " clerk "],
    "pay": ["high", "low", "low", "high", "low", "low"],
}


def written(folder: Path, rows: dict[str, list[Any]]) -> Path:
    path = folder / "mine.csv"
    cells = [["" if cell is None else str(cell) for cell in column] for column in rows.values()]
    lines = [",".join(rows), *(",".join(row) for row in zip(*cells, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("bounds", BOUNDS)
def test_every_kind_of_table_becomes_what_training_has_seen(tmp_path: Path, bounds: Bounds) -> None:
    path = written(tmp_path, ROWS)
    trained = bound(read_table(path, schema())[0], bounds)
    apply = trained.preprocessing
    assert apply is not None
    parquet = tmp_path / "mine.parquet"
    pa.parquet.write_table(pa.table(ROWS), parquet)
    frame = pd.DataFrame(ROWS)
    tables = [
        path,
        str(path),
        parquet,
        pa.table(ROWS),
        ROWS,
        frame,
        frame.astype({"job": "category"}),
    ]
    for table in tables:
        np.testing.assert_array_equal(apply.features(table), trained.train.X)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(-1e30, 1e30), st.integers(0, 100)),
            st.sampled_from([None, "clerk", "nurse", "3", "pilot"]),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_row_is_what_it_is_whatever_rows_are_beside_it(rows: list[tuple[Any, Any]]) -> None:
    apply = preprocessing()
    ages, jobs = [None if a is None else float(a) for a, _ in rows], [job for _, job in rows]
    together = apply.features({"age": ages, "job": jobs})
    apart = [apply.features({"age": [a], "job": [j]}) for a, j in zip(ages, jobs, strict=True)]
    np.testing.assert_array_equal(together, np.concatenate(apart))
    assert (np.linalg.norm(together.astype(np.float64), axis=1) <= 1).all()


def test_an_array_holds_scaled_features() -> None:
    dataset = load("synthetic")
    bounded = bound(dataset, Bounds())
    assert bounded.preprocessing is not None
    X = np.array(dataset.train.X)
    np.testing.assert_array_equal(bounded.preprocessing.features(X), bounded.train.X)
    columns = dict(zip(dataset.feature_names, X.T, strict=True))
    np.testing.assert_array_equal(bounded.preprocessing.features(columns), bounded.train.X)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((2, 4)), None),
        (np.zeros((2, 5)), "records × 4 features"),
        (np.zeros(4), "records × 4 features"),
        (np.full((1, 4), "a"), "must hold numbers"),
        (np.full((1, 4), np.nan), "must be finite"),
        (np.full((1, 4), 1e300), "must be finite"),
        ({"age": [1.0]}, "lacks column 'job'"),
        ({"Age": [1.0], "job": ["clerk"]}, "lacks column 'age'.* Upper and lower case"),
        ({"age": [1.0, 2.0], "job": ["clerk"]}, "same number of rows"),
        ({"age": [], "job": []}, "at least one"),
        ({"age": [SECRET], "job": ["clerk"]}, "column 'age': row 1 does not hold a number"),
        ({"age": [[1.0]], "job": ["clerk"]}, "column 'age': holds list"),
        ({"age": [1.0, SECRET], "job": ["clerk", "clerk"]}, "column 'age': must be a list"),
        ({"age": [np.inf], "job": ["clerk"]}, "infinite, first in row 1"),
        (pd.DataFrame([[1.0, 2.0, "clerk"]], columns=["age", "age", "job"]), "have the same name"),
        ([1.0, 2.0], "must be a DataFrame"),
        (3, "must be a DataFrame"),
        ("absent.csv", "absent.csv does not exist"),
    ],
)
def test_what_is_no_table_is_refused_without_a_value(table: Any, message: str | None) -> None:
    if message is None:
        assert preprocessing().features(table).shape == (2, 5)
        return
    with pytest.raises(DataError, match=message) as caught:
        preprocessing().features(table)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("rule", ["drop", "reject"])
def test_a_row_is_never_dropped_silently(rule: str) -> None:
    columns = {"age": {"kind": "number", "min": 0, "max": 10}}
    apply = preprocessing(columns=columns, missing=rule)
    with pytest.raises(DataError, match=r"missing value that the schema has no fill for: 1, first"):
        apply.features({"age": [1.0, None, 2.0]})


def test_values_out_of_range_follow_the_rule_of_the_schema() -> None:
    with pytest.raises(DataError, match=r"1 value is outside \[17, 90\], first in row 2"):
        preprocessing(out_of_range="reject").features({"age": [20, 91], "job": ["3", "3"]})


def test_features_must_be_those_of_the_schema() -> None:
    with pytest.raises(ValueError, match="feature_names"):
        Preprocessing(feature_names=("a",), max_norm=1.0, bounds=Bounds(), schema=schema())
