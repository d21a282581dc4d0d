"""Refusals of a user's own table: each says what is wrong, and none quotes a value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data import DataError, parse_schema, read_table
from tests.data.tables.own_tables import COLUMNS, GOOD, HEADER, SECRET, read, refusal

if TYPE_CHECKING:
    from pathlib import Path


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
