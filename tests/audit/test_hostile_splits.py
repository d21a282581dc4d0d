"""Attacks by the side of the test split that a record is on: on it hang who trains, and how many.

Whether a record is trained on follows from that record, and how many are is private where a hash
decides, public where a column does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import fedpriv.simulations.experiment.records.data as loading
from fedpriv.data import load
from fedpriv.data.tables.release_rules import require_releasable
from fedpriv.data.tables.schema import parse_schema
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.experiment.records.data import party_records
from tests.audit.examination import difference
from tests.audit.neighbours import GRADIENTS, OUTPUT, Case, table, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.laboratory import Laboratory
    from tests.audit.neighbours import Row

FOUR = 4  # records, of which about 3 are trained on: 4/3 in float32 is more than in float64


def _trained_on(case: Case, rows: list[Row], folder: Path) -> int:
    """How many records of the last party the hash leaves for training."""
    return int(party_records(read_experiment(write(case, rows, folder))).data.sizes[-1])


def test_a_party_whose_records_are_all_trained_on_is_not_refused(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    """A quotient of integers was a float32, and of the least bit more than the headroom: whether
    the hash took one of a party's records decided whether there was a release, which was paid."""
    case = Case(name="all", strategy=OUTPUT, model={"name": "squared"})
    rows = table(case.task)
    west = [row for row in rows if row["clinic"] == "west"][:FOUR]
    rest = [row for row in rows if row["clinic"] != "west"]
    doses = (f"{number / 1000:.3f}" for number in range(1000))

    def changed(own: list[Row], place: int, trained: int) -> list[Row]:
        """The party with another record at a place, so that so many of them are trained on."""
        for dose in doses:
            others = [*own[:place], {**own[place], "dose": dose}, *own[place + 1 :]]
            if _trained_on(case, [*rest, *others], tmp_path / dose) == trained:
                return others
        raise AssertionError("no record on that side was found.")

    whole = west[:1]
    for place, row in enumerate(west):
        whole = changed([*whole[:place], row], place, place + 1)
    fewer = changed(whole, 0, FOUR - 1)
    one = laboratory.run(case, [*rest, *whole], tmp_path / "one")
    other = laboratory.run(case, [*rest, *fewer], tmp_path / "other", script=one)
    assert (one.code, other.code) == (0, 0), (one.said, other.said)


@dataclass(frozen=True, kw_only=True)
class ByFeature(Case):
    """A test set that a feature sets apart."""

    def schema(self) -> dict[str, Any]:
        return {**super().schema(), "test_column": "ward", "test_values": ["icu"]}


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_feature_decides_how_many_records_there_are(
    adjacency: str, laboratory: Laboratory, tmp_path: Path
) -> None:
    """Counted, and published as public: one exchanged ward showed in the number of records."""
    case = ByFeature(name="feature", strategy=GRADIENTS, adjacency=adjacency)
    rows = table(case.task)
    place = next(i for i, row in enumerate(rows) if row["ward"] == "er")
    exchanged = [*rows[:place], {**rows[place], "ward": "icu"}, *rows[place + 1 :]]
    one = laboratory.run(case, rows, tmp_path / "one")
    other = laboratory.run(case, exchanged, tmp_path / "other", script=one)
    assert (one.code, one.said) == (other.code, other.said)
    assert "test_column 'ward' must not be a feature" in one.said or not difference(
        case, one, other
    )


@pytest.mark.parametrize("deployed", [False, True])
def test_a_column_that_sets_records_apart_is_no_feature(deployed: bool) -> None:
    schema = ByFeature(name="feature", strategy=GRADIENTS).schema()
    del schema["party"], schema["columns"]["clinic"]
    with pytest.raises(ValueError, match="test_column 'ward' must not be a feature"):
        require_releasable(parse_schema(schema), deployed=deployed)
    schema["test_column"] = "fold"
    require_releasable(parse_schema(schema), deployed=deployed)


def test_a_statement_says_whose_word_a_test_column_rests_on(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    case = Case(name="fold", strategy={**GRADIENTS, "rounds": 1}, fold=True)
    done = laboratory.run(case, table(case.task), tmp_path / "one")
    (sentence,) = done.json("statement.json")["run"]["assumptions"]
    assert "the column 'fold' of the table, whose values are taken to be public" in sentence


def test_no_count_decides_whose_split_a_built_in_data_set_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 0.21 it was its own with 1000 of 5000 for testing, and by hash with 999 of 4999."""
    whole = load("synthetic")
    study = {
        "data": {"name": "synthetic", "test_fraction": 0.21},
        "strategy": {"name": "output-perturbation"},
    }
    sides = []
    for kept in (slice(0, None), slice(1, None)):
        some = replace(whole, test=whole.test.take(kept))
        monkeypatch.setattr(loading, "load", lambda _name, root, some=some: some)
        sides.append(party_records(read_experiment(study)).own_test)
    assert sides == [True, True]
