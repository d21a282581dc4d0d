"""A user's own table: encoding, rules, counts, and errors that quote no value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data import (
    Bounds,
    DataError,
    Dataset,
    LoadReport,
    bound,
    hold_out,
    parse_schema,
    partition,
    read_table,
)

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "Zq7Secret"  # noqa: S105 (a marker, to be found in no message)
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "min": 0, "max": 10},
    "job": {"kind": "category", "values": ["clerk", "nurse"]},
}
HEADER = "age,job,pay\n"
GOOD = HEADER + "0,clerk,high\n5,nurse,low\n10,clerk,low\n"


def read(folder: Path, content: str | bytes, **changes: Any) -> tuple[Dataset, LoadReport]:
    path = folder / "mine.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    values = {"label": "pay", "positive": "high", "columns": COLUMNS} | changes
    return read_table(path, parse_schema(values))


def refusal(folder: Path, content: str | bytes, **changes: Any) -> str:
    """The message of the refusal, after checking that no value rides along."""
    with pytest.raises(DataError) as caught:
        read(folder, content, **changes)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__
    return str(caught.value)


def test_numbers_are_scaled_and_categories_become_columns(tmp_path: Path) -> None:
    dataset, report = read(tmp_path, GOOD)
    assert dataset.name == "mine"
    assert dataset.feature_names == ("age", "job=clerk", "job=nurse")
    np.testing.assert_array_equal(dataset.train.X, [[-1, 1, 0], [0, 0, 1], [1, 1, 0]])
    np.testing.assert_array_equal(dataset.train.y, [1, -1, -1])
    assert dataset.classes == ("not high", "high")
    assert dataset.max_norm == pytest.approx(np.sqrt(2))
    assert report.to_dict() == {
        "rows_read": 3,
        "rows_kept": 3,
        "missing": {},
        "clamped": {},
        "ignored_columns": (),
    }


def test_blanks_a_byte_order_mark_and_other_columns_do_not_matter(tmp_path: Path) -> None:
    dataset, report = read(
        tmp_path, "\ufeff age ;note; job;pay\n 0 ;x;clerk ; high\n5;;nurse;low\n", delimiter=";"
    )
    np.testing.assert_array_equal(dataset.train.X, [[-1, 1, 0], [0, 0, 1]])
    assert report.ignored_columns == ("note",)


def test_a_quoted_value_may_hold_delimiters_and_line_breaks(tmp_path: Path) -> None:
    columns = {"job": {"kind": "category", "values": ["clerk, senior", "nurse\nnight"]}}
    dataset, _ = read(
        tmp_path, 'job,pay\n"clerk, senior",high\n"nurse\nnight",low\n', columns=columns
    )
    np.testing.assert_array_equal(dataset.train.X, [[1, 0], [0, 1]])


def test_classes_and_real_labels_come_from_the_described_label(tmp_path: Path) -> None:
    classes = {"pay": {"kind": "category", "values": ["low", "high"]}}
    dataset, _ = read(tmp_path, GOOD, positive=None, columns=COLUMNS | classes)
    assert dataset.task == "multiclass"
    assert dataset.classes == ("low", "high")
    np.testing.assert_array_equal(dataset.train.y, [1, 0, 0])
    real = {"age": COLUMNS["age"], "job": COLUMNS["job"]}
    dataset, _ = read(tmp_path, GOOD, positive=None, label="age", columns=real)
    assert dataset.task == "regression"
    np.testing.assert_array_equal(dataset.train.y, [-1, 0, 1])


def test_a_party_may_hold_one_class_if_the_labels_are_listed(tmp_path: Path) -> None:
    labels = {"pay": {"kind": "category", "values": ["low", "high"]}}
    dataset, _ = read(tmp_path, HEADER + "1,clerk,low\n", columns=COLUMNS | labels)
    np.testing.assert_array_equal(dataset.train.y, [-1])


def test_clamped_values_are_counted_and_moved_into_the_range(tmp_path: Path) -> None:
    content = HEADER + "-5,clerk,high\n1e300,pilot,low\n5,nurse,low\n"
    dataset, report = read(tmp_path, content, out_of_range="clamp")
    np.testing.assert_array_equal(dataset.train.X, [[-1, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert report.clamped == {"age": 2, "job": 1}


def test_a_column_may_have_a_rule_of_its_own(tmp_path: Path) -> None:
    columns = COLUMNS | {"age": COLUMNS["age"] | {"out_of_range": "reject"}}
    message = refusal(
        tmp_path, HEADER + "11,pilot,high\n1,clerk,low\n", columns=columns, out_of_range="clamp"
    )
    assert "Column 'age': 1 value is outside [0, 10], first in row 1." in message
    assert "'job'" not in message


def test_records_with_missing_values_are_dropped_and_counted(tmp_path: Path) -> None:
    content = HEADER + ",clerk,high\n5,?,low\nNaN,?,low\n5,nurse,low\n5,nurse,\n0,clerk,high\n"
    dataset, report = read(tmp_path, content, missing="drop", missing_values=["?"])
    np.testing.assert_array_equal(dataset.train.X, [[0, 0, 1], [-1, 1, 0]])
    assert report.rows_read == 6
    assert report.rows_kept == 2
    assert report.missing == {"age": 2, "job": 2, "pay": 1}


def test_missing_values_are_filled_with_public_constants(tmp_path: Path) -> None:
    columns = {"age": COLUMNS["age"] | {"fill": 10}, "job": COLUMNS["job"] | {"fill": "nurse"}}
    dataset, report = read(tmp_path, HEADER + ",clerk,high\n5,,low\n", columns=columns)
    np.testing.assert_array_equal(dataset.train.X, [[1, 1, 0], [0, 0, 1]])
    assert report.missing == {"age": 1, "job": 1}


def test_a_numeric_code_for_missing_is_known_however_it_is_written(tmp_path: Path) -> None:
    content = HEADER + "-9,clerk,high\n-9.00,nurse,low\n1,nurse,low\n1,clerk,high\n"
    _, report = read(tmp_path, content, missing="drop", missing_values=[-9])
    assert report.missing == {"age": 2}


def test_parties_are_the_values_of_their_column_in_order(tmp_path: Path) -> None:
    content = "age,job,pay,state\n0,clerk,high,UT\n5,nurse,low,IA\n5,nurse,low,UT\n"
    dataset, _ = read(tmp_path, content, party="state")
    assert dataset.party_names == ("IA", "UT")
    np.testing.assert_array_equal(dataset.train.party, [1, 0, 1])
    listed = {"state": {"kind": "category", "values": ["UT", "IA"]}}
    dataset, _ = read(tmp_path, content, party="state", columns=COLUMNS | listed)
    assert dataset.party_names == ("UT", "IA")
    assert dataset.feature_names == ("age", "job=clerk", "job=nurse")
    assert partition(bound(dataset, Bounds()), kind="natural").sizes.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("content", "changes", "fragments"),
    [
        pytest.param(
            HEADER + f"1,clerk,high\n{SECRET},nurse,low\n",
            {},
            ["mine.csv, column 'age': row 2 does not hold a number."],
            id="wrong type",
        ),
        pytest.param(
            "age,pay\n1,high\n2,low\n",
            {},
            ["mine.csv: the header lacks column 'job' of the schema ([columns.job])."],
            id="missing column",
        ),
        pytest.param(
            "Age,job,pay\n1,clerk,high\n",
            {},
            ["lacks column 'age' of the schema ([columns.age]). Upper and lower case differ."],
            id="case of a column",
        ),
        pytest.param(
            "age,job,pays\n1,clerk,high\n",
            {},
            ["lacks column 'pay' of the schema (label). Is 'pays' meant?"],
            id="misspelt column",
        ),
        pytest.param(
            f"{SECRET},{SECRET},pay\n1,clerk,high\n",
            {},
            ["mine.csv: columns 1 and 2 have the same name."],
            id="duplicate columns",
        ),
        pytest.param(
            f"{SECRET},clerk,high\n",
            {},
            ["the header lacks column 'age'"],
            id="no header",
        ),
        pytest.param(
            HEADER + f"1,clerk,{SECRET}\n1,nurse,low\n1,nurse,high\n",
            {},
            ["Label 'pay' has 3 different values, not 2.", "List the labels in [columns.pay]"],
            id="third label",
        ),
        pytest.param(
            HEADER + f"1,clerk,{SECRET}\n1,nurse,low\n",
            {},
            ["Label 'pay' is never equal to positive."],
            id="label never positive",
        ),
        pytest.param(
            HEADER + f"1,clerk,high\n1,nurse,{SECRET}\n",
            {
                "columns": COLUMNS | {"pay": {"kind": "category", "values": ["low", "high"]}},
                "out_of_range": "clamp",
            },
            ["Column 'pay': 1 value is none of the declared values, first in row 2."],
            id="label outside",
        ),
        pytest.param(
            HEADER + "1,clerk,high\n987654,nurse,low\n-987654,nurse,low\n",
            {},
            [
                "Column 'age': 2 values are outside [0, 10], first in row 2.",
                "set out_of_range = 'clamp'",
            ],
            id="bound violated",
        ),
        pytest.param(
            HEADER + f"1,{SECRET},high\n1,nurse,low\n",
            {},
            ["Column 'job': 1 value is none of the declared values, first in row 1."],
            id="category outside",
        ),
        pytest.param(
            HEADER + "1,clerk,high\n,nurse,low\n1,,low\n",
            {},
            [
                "Column 'age': 1 value is missing, first in row 2.",
                "Column 'job': 1 value is missing, first in row 3.",
                "or give [columns.job] a fill. Outside of a release, missing = 'drop' leaves",
            ],
            id="missing values",
        ),
        pytest.param(
            HEADER + "nan,clerk,high\n1,nurse,low\n",
            {},
            ["Column 'age': 1 value is missing, first in row 1."],
            id="NaN",
        ),
        pytest.param(
            HEADER + "1,clerk,high\n-inf,nurse,low\n1e999,nurse,low\n",
            {"out_of_range": "clamp"},
            ["Column 'age': 2 values are infinite, first in row 2."],
            id="infinite",
        ),
        pytest.param("", {}, ["mine.csv is empty: the first line must name"], id="empty file"),
        pytest.param(HEADER, {}, ["mine.csv is empty: it has a header and no rows."], id="no rows"),
        pytest.param(
            HEADER + ",clerk,high\n",
            {"missing": "drop"},
            ["every row has missing values; no record is left."],
            id="no row left",
        ),
        pytest.param(
            HEADER + f"1,clerk,high\n1,{SECRET}\n",
            {},
            ["do not have the 3 columns of the header: 1; the first, in line 3, has 2. A value"],
            id="ragged row",
        ),
        pytest.param(
            HEADER.encode() + b"1,\xff" + SECRET.encode() + b",high\n",
            {},
            ["mine.csv cannot be read as csv: it is not in UTF-8. Save it in that encoding"],
            id="not UTF-8",
        ),
        pytest.param(
            b"\xff\xfe\x00age",
            {},
            ["mine.csv cannot be read as csv"],
            id="header not UTF-8",
        ),
        pytest.param(
            f"age,job,pay,p\n1,clerk,high,UT\n1,nurse,low,{SECRET}\n",
            {
                "party": "p",
                "columns": COLUMNS | {"p": {"kind": "category", "values": ["UT"]}},
            },
            ["Column 'p': 1 value is none of the declared values, first in row 2."],
            id="party outside",
        ),
        pytest.param(
            "age,job,pay,p\n1,clerk,high,\n1,nurse,low,\n",
            {"party": "p"},
            ["Column 'p': 2 values are missing, first in row 1."],
            id="party missing everywhere",
        ),
    ],
)
def test_a_bad_file_is_refused_without_quoting_it(
    tmp_path: Path, content: str | bytes, changes: dict[str, Any], fragments: list[str]
) -> None:
    message = refusal(tmp_path, content, **changes)
    for fragment in fragments:
        assert fragment in message
    assert "987654" not in message


@given(n=st.integers(1, 300), data=st.data())
@settings(max_examples=50)
def test_the_first_row_that_is_no_number_is_found(
    n: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bad = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=5))
    rows = [f"{SECRET if i in bad else i % 10},clerk,high" for i in range(n)]
    message = refusal(tmp_path_factory.mktemp("table"), HEADER + "\n".join(rows))
    assert f"row {min(bad) + 1} does not hold a number" in message


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


def test_a_damaged_or_unknown_file_is_refused(tmp_path: Path) -> None:
    schema = parse_schema({"label": "pay", "positive": "high", "columns": COLUMNS})
    (tmp_path / "bad.parquet").write_text(SECRET)
    (tmp_path / "table.xlsx").write_text(SECRET)
    with pytest.raises(DataError, match=r"bad\.parquet cannot be read as parquet"):
        read_table(tmp_path / "bad.parquet", schema)
    with pytest.raises(DataError, match=r"must end in \.csv or \.parquet"):
        read_table(tmp_path / "table.xlsx", schema)
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv", schema)


def test_a_listed_party_may_have_no_record(tmp_path: Path) -> None:
    columns = COLUMNS | {"p": {"kind": "category", "values": ["UT", "IA"]}}
    table = "age,job,pay,p\n1,clerk,high,UT\n1,nurse,low,UT\n"
    dataset, _ = read(tmp_path, table, party="p", columns=columns)
    assert dataset.party_names == ("UT", "IA")
    assert dataset.train.party is not None
    assert dataset.train.party.tolist() == [0, 0]


def test_a_public_column_says_which_records_are_for_testing(tmp_path: Path) -> None:
    table = "age,job,pay,fold\n1,clerk,high,1\n2,nurse,low,5\n3,nurse,low,\n4,clerk,high,5\n"
    dataset, report = read(tmp_path, table, test_column="fold", test_values=["5", "6"])
    assert (len(dataset.train), len(dataset.test), report.rows_kept) == (2, 2, 4)
    assert dataset.test.X[:, 0].tolist() == sorted(dataset.test.X[:, 0].tolist())
    assert "fold" not in dataset.feature_names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_column": "fold"}, "given together"),
        ({"test_values": ["5"]}, "given together"),
        ({"test_column": "pay", "test_values": ["low"]}, "another column than label"),
    ],
)
def test_a_test_column_needs_its_values_and_is_not_the_label(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, GOOD, **changes)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'fedpriv\[data\]'"):
        read(tmp_path, GOOD)


def test_an_own_table_can_be_held_out_bounded_and_partitioned(tmp_path: Path) -> None:
    rows = "".join(
        f"{i % 11},{'clerk' if i % 2 else 'nurse'},{'high' if i % 3 else 'low'}\n"
        for i in range(50)
    )
    dataset, _ = read(tmp_path, HEADER + rows)
    bounded = bound(hold_out(dataset), Bounds())
    parts = partition(bounded, kind="iid", parties=4, rng=np.random.default_rng(0))
    assert len(bounded.train) + len(bounded.test) == 50
    assert len(bounded.test) > 0
    assert np.ptp(parts.sizes) <= 1
    assert (np.linalg.norm(parts.dataset.train.X.astype(float), axis=1) <= 1).all()
