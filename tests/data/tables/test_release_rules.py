"""Schemas under which a release may be made: nothing is left to the file as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from fedpriv.data import DataError, parse_schema, refusing_features, require_releasable

SOUND: dict[str, Any] = {
    "label": "sick",
    "positive": "yes",
    "columns": {
        "sick": {"kind": "category", "values": ["no", "yes"]},
        "age": {"kind": "number", "min": 0, "max": 100},
        "job": {"kind": "category", "values": ["clerk", "nurse"]},
    },
}
UNDECLARED = {**SOUND, "columns": {"age": SOUND["columns"]["age"]}}
CLINICS = {"clinic": {"kind": "category", "values": ["a", "b"]}}
LISTED = {**SOUND, "party": "clinic", "columns": {**SOUND["columns"], **CLINICS}}


@pytest.mark.parametrize("deployed", [False, True])
def test_a_schema_that_leaves_nothing_open_passes(deployed: bool) -> None:
    regression = {"label": "age", "columns": SOUND["columns"]}
    for values in (SOUND, {**SOUND, "out_of_range": "clamp"}, regression):
        require_releasable(parse_schema(values), deployed=deployed)


@pytest.mark.parametrize("deployed", [False, True])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (UNDECLARED, r"label 'sick' must be described in \[columns\.sick\]"),
        ({**SOUND, "missing": "drop"}, "missing must not be 'drop'.* a fill"),
        ({**SOUND, "party": "clinic"}, "party.*'clinic'"),
        ({**UNDECLARED, "missing": "drop"}, "label 'sick' .*missing must not be"),
    ],
    ids=["label", "drop", "party", "both"],
)
def test_facts_of_a_whole_file_decide_nothing(
    values: dict[str, Any], message: str, deployed: bool
) -> None:
    with pytest.raises(DataError, match=f"^schema: .*{message}"):
        require_releasable(parse_schema(values), deployed=deployed)


def test_listed_parties_are_for_one_place_and_not_for_the_file_of_a_party() -> None:
    require_releasable(parse_schema(LISTED), deployed=False)
    with pytest.raises(DataError, match=r"party must not be given .*'clinic'"):
        require_releasable(parse_schema(LISTED), deployed=True)


def test_features_that_refuse_a_file_are_those_that_do_not_clamp_and_fill() -> None:
    assert refusing_features(parse_schema(SOUND)) == ("age", "job")
    columns = {
        "sick": SOUND["columns"]["sick"],
        "age": {**SOUND["columns"]["age"], "fill": 40, "out_of_range": "clamp"},
        "job": {**SOUND["columns"]["job"], "fill": "nurse"},
    }
    assert refusing_features(parse_schema({**SOUND, "columns": columns})) == ("job",)
    total = {**SOUND, "columns": columns, "out_of_range": "clamp"}
    assert refusing_features(parse_schema(total)) == ()
