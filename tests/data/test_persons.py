"""Persons: read from a table, kept together by splits and partitions, bounded one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data import (
    Bounds,
    DataError,
    Dataset,
    Persons,
    Records,
    bound,
    hold_out,
    load,
    parse_schema,
    partition,
    pooled,
    read_table,
)
from fedpriv.data.persons import at_few_parties, at_most, bounds_of_persons, grouped, joined

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SCHEMA: dict[str, Any] = {
    "label": "ill",
    "positive": "yes",
    "person": "patient",
    "columns": {
        "age": {"kind": "number", "min": 0, "max": 100},
        "ill": {"kind": "category", "values": ["no", "yes"]},
    },
}
ROWS = "patient,age,ill\nanna,10,no\nboris,20,yes\nanna,30,yes\n 7 ,40,no\n7,50,no\n"


def read(folder: Path, text: str, **changes: Any) -> Dataset:
    path = folder / "visits.csv"
    path.write_text(text)
    return read_table(path, parse_schema(SCHEMA | changes))[0]


def data(identifiers: list[Any], *, seed: int = 0, party: list[int] | None = None) -> Dataset:
    rng = np.random.default_rng(seed)
    n = len(identifiers)
    records = Records(
        X=rng.uniform(-0.5, 0.5, (n, 2)).astype(np.float32),
        y=np.where(rng.random(n) < 0.5, np.float32(-1), np.float32(1)),
        party=None if party is None else np.array(party),
        person=Persons.of(identifiers),
    )
    return Dataset(
        name="made",
        task="binary",
        train=records,
        test=records.take(slice(0, 0)),
        feature_names=("a", "b"),
        max_norm=1.0,
        party_names=() if party is None else ("x", "y", "z"),
        classes=("-1", "+1"),
    )


def codes(records: Records) -> NDArray[np.int64]:
    assert records.person is not None
    return records.person.codes


def test_a_person_column_says_whose_rows_are_whose_and_is_no_feature(tmp_path: Path) -> None:
    dataset = read(tmp_path, ROWS)
    assert dataset.feature_names == ("age",)
    assert codes(dataset.train).tolist() == [0, 1, 0, 2, 2]  # blanks do not make another person


def test_parquet_and_csv_name_the_same_persons(tmp_path: Path) -> None:
    table = pa.table({"patient": [7, 8, 7], "age": [1, 2, 3], "ill": ["no", "yes", "no"]})
    pyarrow.parquet.write_table(table, tmp_path / "visits.parquet")
    columns, _ = read_table(tmp_path / "visits.parquet", parse_schema(SCHEMA))
    rows = read(tmp_path, "patient,age,ill\n7,1,no\n8,2,yes\n7,3,no\n")
    for dataset in (columns, rows):
        assert codes(dataset.train).tolist() == [0, 1, 0]
    first, second = columns.train.person, rows.train.person
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.hashes, second.hashes)


def test_a_row_of_nobody_is_a_missing_value(tmp_path: Path) -> None:
    nobody = "patient,age,ill\nanna,10,no\n ,20,yes\n"
    with pytest.raises(DataError, match="'patient': 1 value is missing, first in row 2"):
        read(tmp_path, nobody)
    assert len(read(tmp_path, nobody, missing="drop").train) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"person": "ill"}, "another column than label, party and test_column"),
        ({"person": "age"}, r"\[columns.age\] must not be there: person names an identifier"),
        ({"party": "clinic", "person": "clinic"}, "another column than label"),
    ],
)
def test_an_identifier_is_neither_label_nor_party_nor_feature(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        parse_schema(SCHEMA | changes)


def test_persons_stay_with_their_records_through_bounds_splits_and_pooling() -> None:
    dataset = data([f"p{i % 50}" for i in range(200)])
    split = hold_out(bound(dataset, Bounds()), fraction=0.3, seed=1)
    train, test = set(codes(split.train).tolist()), set(codes(split.test).tolist())
    assert train
    assert test
    assert not train & test  # all records of a person are on one side
    assert sorted(codes(pooled(split).train).tolist()) == sorted(codes(dataset.train).tolist())


@given(st.lists(st.integers(0, 12), min_size=2, max_size=40), st.integers(0, 3))
def test_a_person_who_leaves_moves_no_other(owners: list[int], seed: int) -> None:
    """Neither to another side of the split nor to another party, nor are other records dropped."""
    dataset = data([f"person {owner}" for owner in owners])
    gone = np.array(owners) == owners[0]
    fewer = replace(dataset, train=dataset.train.take(~gone))
    whole, rest = (hold_out(each, fraction=0.5, seed=seed) for each in (dataset, fewer))
    kept = whole.train.take(~np.isin(codes(whole.train), codes(dataset.train)[gone]))
    np.testing.assert_array_equal(kept.X, rest.train.X)

    parts = [
        partition(each, kind="hashed", parties=3, rng=np.random.default_rng(seed))
        for each in (dataset, fewer)
    ]
    others = ~np.isin(codes(parts[0].dataset.train), codes(dataset.train)[gone])
    before = parts[0].dataset.train.take(others)
    np.testing.assert_array_equal(before.X, parts[1].dataset.train.X)
    np.testing.assert_array_equal(before.party, parts[1].dataset.train.party)

    one = np.array([0, len(owners)])
    few = at_most(dataset.train, one, records_each=2)
    left = at_most(fewer.train, np.array([0, len(fewer.train)]), records_each=2)
    np.testing.assert_array_equal(few[~gone], left)


def test_a_split_that_looked_at_records_would_tear_persons_apart() -> None:
    """The test above has teeth: without the persons, the same records go to both sides."""
    dataset = data([f"p{i % 50}" for i in range(200)])
    blind = replace(dataset, train=replace(dataset.train, person=None))
    split = hold_out(blind, fraction=0.3, seed=1)
    places = {row.tobytes(): i for i, row in enumerate(dataset.train.X)}
    owner = codes(dataset.train)
    train, test = (
        {owner[places[row.tobytes()]] for row in part.X} for part in (split.train, split.test)
    )
    assert train & test


@pytest.mark.parametrize("kind", ["hashed", "iid", "sized", "dirichlet"])
def test_partitions_keep_a_person_together_and_records_in_order(kind: Any) -> None:
    dataset = data([f"p{i % 60}" for i in range(300)])
    more: dict[str, Any] = {"sized": {"exponent": 1.0}, "dirichlet": {"alpha": 0.5}}.get(kind, {})
    parts = partition(dataset, kind=kind, parties=4, rng=np.random.default_rng(0), **more)
    train = parts.dataset.train
    assert train.party is not None
    homes = {(code, home) for code, home in zip(codes(train), train.party, strict=True)}
    assert len(homes) == 60
    for begin, end in pairwise(parts.offsets):
        assert (np.diff(parts.order[begin:end]) > 0).all()
    assert parts.persons is not None
    assert parts.persons.sum() == 60
    np.testing.assert_array_equal(dataset.train.X[parts.order], train.X)


def test_natural_parties_keep_their_records_and_count_a_person_at_each() -> None:
    parts = partition(data(["a", "b", "a", "a", "b"], party=[0, 0, 1, 0, 2]), kind="natural")
    assert parts.persons is not None
    assert parts.persons.tolist() == [2, 1, 1]
    assert parts.sizes.tolist() == [3, 1, 1]
    person = parts.dataset.train.person
    assert person is not None
    assert person.codes.tolist() == [0, 1, 0, 0, 1]
    together = person.take(grouped(person, parts.offsets))
    assert bounds_of_persons(together, parts.offsets).tolist() == [0, 2, 3, 4, 5]


def test_nobody_keeps_more_records_than_allowed_whatever_the_others_have() -> None:
    dataset = data(["a"] * 9 + ["b"] * 2 + ["a"])
    kept = at_most(dataset.train, np.array([0, 12]), records_each=3)
    assert np.bincount(codes(dataset.train)[kept]).tolist() == [3, 2]
    alone = dataset.train.take(codes(dataset.train) == 0)
    again = at_most(alone, np.array([0, 10]), records_each=3)
    np.testing.assert_array_equal(kept[codes(dataset.train) == 0], again)


def test_copies_are_numbered_within_a_person() -> None:
    """The same record of another person must not push one of this person's out."""
    base = data(["a", "a", "a", "b"]).train
    twin = Records(
        X=base.X[[0, 1, 2, 0]],
        y=base.y[[0, 1, 2, 0]],
        person=base.person,
    )
    for records in (base, twin):
        kept = at_most(records, np.array([0, 4]), records_each=1)
        alone = at_most(records.take(slice(0, 3)), np.array([0, 3]), records_each=1)
        np.testing.assert_array_equal(kept[:3], alone)
    # Of a person's equal records any may go: what is left is the same.
    equal = Records(X=base.X[[0, 0, 0, 3]], y=base.y[[0, 0, 0, 3]], person=base.person)
    assert at_most(equal, np.array([0, 4]), records_each=2)[:3].sum() == 2


def test_where_a_party_stands_does_not_decide_what_it_drops() -> None:
    dataset = data(["a"] * 6 + ["b"] * 6)
    stacked = at_most(dataset.train, np.array([0, 6, 12]), records_each=2)
    alone = at_most(dataset.train.take(slice(6, 12)), np.array([0, 6]), records_each=2)
    np.testing.assert_array_equal(stacked[6:], alone)


def test_nobody_stays_at_more_parties_than_declared() -> None:
    dataset = data(["a", "a", "a", "b", "b", "a"], party=[0, 1, 2, 1, 1, 2])
    kept = at_few_parties(dataset.train, parties=2)
    assert kept[3:5].all()
    homes = dataset.train.party
    assert homes is not None
    assert len(set(homes[kept & (codes(dataset.train) == 0)].tolist())) == 2
    alone = dataset.train.take(codes(dataset.train) == 0)
    np.testing.assert_array_equal(at_few_parties(alone, parties=2), kept[[0, 1, 2, 5]])


def test_identifiers_are_told_apart_exactly_and_hashed_one_by_one() -> None:
    persons = Persons.of(["12", "1", "2", "12", "", "é"])
    assert len(set(persons.codes.tolist())) == 5
    assert len(set(persons.hashes.tolist())) == 5
    few = Persons.of(["é", "12"])
    mine = few.marks(purpose="x", seed=3)
    assert set(mine.tolist()) <= set(persons.marks(purpose="x", seed=3).tolist())
    assert not set(mine.tolist()) & set(persons.marks(purpose="x", seed=4).tolist())
    with pytest.raises(DataError, match="an integer or a text"):
        Persons.of([0.5, 1.5])


def test_records_of_other_tables_are_not_put_together_by_code() -> None:
    with pytest.raises(DataError, match="the same persons"):
        joined(Persons.of(["a"]), Persons.of(["b"]))
    with pytest.raises(DataError, match="one for each of the 2 records"):
        Records(X=np.zeros((2, 1), np.float32), y=np.zeros(2, np.float32), person=Persons.of(["a"]))


def test_grouping_keeps_the_order_within_a_person() -> None:
    persons = Persons.of(["b", "a", "b", "a", "b"])
    assert grouped(persons, np.array([0, 3, 5])).tolist() == [1, 0, 2, 3, 4]


def test_visits_have_persons_with_as_many_records_as_they_say() -> None:
    dataset = load("visits:2-4")
    for part, parties in ((dataset.train, 400), (dataset.test, 100)):
        counts = np.bincount(codes(part))
        assert (counts.min(), counts.max()) == (2, 4)
        assert len(counts) == 10 * parties
    parts = partition(dataset, kind="natural")
    assert parts.persons is not None
    assert parts.persons.tolist() == [400] * 10
