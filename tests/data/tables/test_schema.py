"""Schemas: what they accept, and how they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.data import DataError, parse_schema, read_schema

if TYPE_CHECKING:
    from pathlib import Path

AGE = {"kind": "number", "min": 17, "max": 90}
JOB = {"kind": "category", "values": ["a", "b"]}


def base(**changes: Any) -> dict[str, Any]:
    values = {"label": "income", "positive": ">50K", "columns": {"age": AGE, "job": JOB}}
    return values | changes


def test_the_documented_shape_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(
        'label = "income"\n'
        'positive = ">50K"\n'
        'party = "state"\n'
        'out_of_range = "clamp"\n'
        "[columns.age]\n"
        'kind = "number"\n'
        "min = 17\n"
        "max = 90\n"
        "[columns.job]\n"
        'kind = "category"\n'
        'values = ["a", "b"]\n'
    )
    schema = read_schema(path)
    assert schema.task == "binary"
    assert schema.party == "state"
    assert schema.out_of_range == "clamp"
    assert schema.missing == "reject"
    assert schema.feature_names == ("age", "job=a", "job=b")


def test_the_label_decides_the_task() -> None:
    grade = {"kind": "category", "values": ["low", "middle", "high"]}
    pay = {"kind": "number", "min": 0, "max": 1e6}
    without = {"label": "y", "positive": None}
    assert parse_schema(base(**without, columns={"age": AGE, "y": grade})).task == "multiclass"
    assert parse_schema(base(**without, columns={"age": AGE, "y": pay})).task == "regression"


def test_integers_and_booleans_are_categories_by_their_text() -> None:
    column = {"kind": "category", "values": [1, "2", True]}
    schema = parse_schema(base(positive=1, columns={"c": column}))
    assert schema.positive == "1"
    assert schema.feature_names == ("c=1", "c=2", "c=true")


def number(**changes: Any) -> dict[str, Any]:
    return base(columns={"age": AGE | changes})


def category(**changes: Any) -> dict[str, Any]:
    return base(columns={"job": JOB | changes})


def with_label(**column: Any) -> dict[str, Any]:
    return base(columns={"age": AGE, "income": column})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "label is missing; it names the column that is learned"),
        (base(positiv=1), "unknown key 'positiv'; known are label, "),
        (base(positiv=1), "Did you mean 'positive'?"),
        (number(maximum=3), "columns.age: unknown key 'maximum'; known are kind, min, max, "),
        (number(kind="numbr"), "columns.age: kind must be 'number' or 'category', got 'numbr'."),
        (
            base(columns={"age": {"min": 0}}),
            "columns.age: kind is missing; it is 'number' or 'category'.",
        ),
        (base(columns={"age": 3}), "columns.age: must be a table, got 3."),
        (base(columns={}), "columns: Dictionary should have at least 1 item"),
        (number(min=90), "columns.age: min must be below max, got 90.0 and 90.0."),
        (number(min=91), "columns.age: min must be below max, got 91.0 and 90.0."),
        (number(min=float("nan")), "columns.age.min: must be a finite number, got nan."),
        (number(max=float("inf")), "columns.age.max: must be a finite number, got inf."),
        (number(min=-1e308, max=1e308), "columns.age: max - min must be finite."),
        (number(min="17"), "columns.age.min: must be a number, got '17'."),
        (number(min=True), "columns.age.min: must be a number, got True."),
        (number(fill=5), "columns.age: fill must lie in [17.0, 90.0], got 5.0."),
        (category(values=["a", "a"]), "columns.job: values must differ from each other."),
        (category(values=[1, "1"]), "columns.job: values must differ from each other."),
        (category(values=[]), "columns.job.values: Tuple should have at least 1 item"),
        (category(values=[1.5]), "columns.job.values.0: must be a text that is not blank"),
        (category(values=[" "]), "columns.job.values.0: must be a text that is not blank"),
        (category(fill="c"), "columns.job: fill must be one of values, got 'c'."),
        (
            category(out_of_range="clip"),
            "columns.job.out_of_range: must be 'reject' or 'clamp', got",
        ),
        (base(out_of_range="clip"), "out_of_range: must be 'reject' or 'clamp', got 'clip'."),
        (base(missing="fill"), "missing: must be 'reject' or 'drop', got 'fill'."),
        (base(delimiter="||"), "delimiter: must be one character, got '||'."),
        (base(party="income"), "party must be another column than label."),
        (base(positive=None), "give positive, or describe the label in [columns.income]"),
        (base(columns={"income": JOB}), "columns must describe at least one feature."),
        (
            with_label(**JOB),
            "positive must be one of the values in [columns.income]: 'a', 'b'; got '>50K'.",
        ),
        (
            with_label(**AGE),
            "positive must be one of the values in [columns.income], and it has none; got '>50K'.",
        ),
        (
            with_label(kind="category", values=[">50K", "<=50K"], fill=">50K"),
            "[columns.income]: a label cannot have a fill.",
        ),
        (
            with_label(kind="category", values=[">50K", "<=50K"], out_of_range="clamp"),
            "[columns.income]: out_of_range has no meaning for a label or a party",
        ),
        (base(party="age"), "[columns.age]: a party must be a category without fill."),
    ],
)
def test_a_bad_schema_is_refused_with_its_place(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_schema(values)
    assert message in str(caught.value)
    assert str(caught.value).startswith("schema: ")


def test_a_schema_that_is_not_toml_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.toml' cannot be read: No such file"):
        read_schema(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("label = income")
    with pytest.raises(DataError, match=r"bad\.toml' is not TOML: .*line 1"):
        read_schema(tmp_path / "bad.toml")
    (tmp_path / "empty.toml").write_text("")
    with pytest.raises(DataError, match=r"empty\.toml: label is missing"):
        read_schema(tmp_path / "empty.toml")
