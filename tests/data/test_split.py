"""The test split and parties by hash: what one record decides, no other record changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fedpriv.data import DataError, Dataset, Records, hold_out, partition, pooled
from fedpriv.data import marks as marking
from fedpriv.data.dataset import no_records
from fedpriv.data.marks import below, cells, marks

FALSE_FAILURE = 1e-9
VALUES = st.lists(
    st.tuples(st.sampled_from([-1.0, -0.0, 0.0, 0.5]), st.sampled_from([-1.0, 1.0])),
    min_size=2,
    max_size=40,
)


def make(X: Any, y: Any, party: Any = None, names: tuple[str, ...] = ("a", "b", "c")) -> Dataset:
    return Dataset(
        name="toy",
        task="binary",
        train=Records(X=np.asarray(X), y=y, party=None if party is None else np.asarray(party)),
        test=no_records(np.shape(X)[1], "binary"),
        feature_names=tuple(f"x{i}" for i in range(np.shape(X)[1])),
        max_norm=2.0,
        party_names=() if party is None else names,
        classes=("-", "+"),
    )


def random_records(n: int, width: int = 3, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    return make(rng.standard_normal((n, width)).astype(np.float32), rng.choice([-1.0, 1.0], n))


def bag(records: Records) -> Counter[tuple[float, ...]]:
    """The records as a multiset, with the party of each; −0 is 0."""
    party = np.zeros(len(records)) if records.party is None else records.party
    return Counter(
        (*(float(v) + 0.0 for v in x), float(y), float(p))
        for x, y, p in zip(records.X, records.y, party, strict=True)
    )


def apart(one: Records, other: Records) -> int:
    """How many records must join or leave to make one of the other."""
    a, b = bag(one), bag(other)
    return (a - b).total() + (b - a).total()


@given(
    rows=VALUES,
    parties=st.lists(st.integers(0, 2), min_size=40, max_size=40),
    gone=st.integers(0, 39),
    seed=st.integers(0, 5),
    shuffle=st.integers(0, 5),
)
def test_when_a_record_leaves_one_record_leaves_the_training_set_or_none(
    rows: list[tuple[float, float]], parties: list[int], gone: int, seed: int, shuffle: int
) -> None:
    """Copies, both zeros, and another order of the file included."""
    X, y = np.array([[x] for x, _ in rows], np.float32), np.array([y for _, y in rows])
    party = np.array(parties[: len(rows)])
    left = np.delete(np.arange(len(rows)), gone % len(rows))
    rest = np.random.default_rng(shuffle).permutation(left)
    whole = hold_out(make(X, y, party), fraction=0.4, seed=seed)
    fewer = hold_out(make(X[rest], y[rest], party[rest]), fraction=0.4, seed=seed)
    assert apart(whole.train, fewer.train) + apart(whole.test, fewer.test) == 1


def test_the_old_split_by_position_would_be_caught() -> None:
    dataset = random_records(50)

    def by_position(records: Records) -> Records:
        return records.take(np.arange(len(records)) % 5 != 4)

    fewer = dataset.train.take(slice(1, None))
    assert apart(by_position(dataset.train), by_position(fewer)) > 2


@given(rows=VALUES, gone=st.integers(0, 39), seed=st.integers(0, 5))
def test_when_a_record_leaves_no_other_changes_its_party_by_hash(
    rows: list[tuple[float, float]], gone: int, seed: int
) -> None:
    X, y = np.array([[x] for x, _ in rows], np.float32), np.array([y for _, y in rows])
    rest = np.delete(np.arange(len(rows)), gone % len(rows))

    def dealt(which: Any) -> Records:
        rng = np.random.default_rng(seed)
        held = partition(make(X[which], y[which]), kind="hashed", parties=4, rng=rng)
        return held.dataset.train

    assert apart(dealt(np.arange(len(rows))), dealt(rest)) == 1


def test_a_split_takes_its_share_and_a_seed_changes_it() -> None:
    dataset = random_records(20_000)
    for fraction in (0.05, 0.2, 0.5):
        sides = [
            below(fraction, marks(dataset.train, purpose="test split", seed=seed))
            for seed in range(3)
        ]
        for side in sides:
            low, high = binom.interval(1 - FALSE_FAILURE, 20_000, fraction)
            assert low <= side.sum() <= high
        agreed = (sides[0] & sides[1]).sum()
        low, high = binom.interval(1 - FALSE_FAILURE, 20_000, fraction**2)
        assert low <= agreed <= high
    other = marks(dataset.train, purpose="party", seed=0)
    assert (other != marks(dataset.train, purpose="test split", seed=0)).all()


def test_copies_are_spread_like_other_records() -> None:
    copies = make(np.ones((5_000, 2), np.float32), np.ones(5_000))
    low, high = binom.interval(1 - FALSE_FAILURE, 5_000, 0.2)
    assert low <= len(hold_out(copies).test) <= high


def test_cells_are_of_equal_size() -> None:
    drawn = marks(random_records(30_000).train, purpose="party", seed=1)
    counts = np.bincount(cells(7, drawn), minlength=7)
    low, high = binom.interval(1 - FALSE_FAILURE, 30_000, 1 / 7)
    assert ((low <= counts) & (counts <= high)).all()
    assert cells(7, np.array([0, 2**64 - 1], np.uint64)).tolist() == [0, 6]


def test_records_with_one_hash_by_design_are_still_told_apart() -> None:
    """Whoever knows the seed can make two records collide: one must not decide about the other."""
    dataset = make(np.arange(12, dtype=np.float32)[:, None], np.ones(12))
    records = dataset.train
    collided = np.zeros(12, np.uint64)
    assert marking._copies(records, collided, np.zeros(12, np.int64)).tolist() == [0] * 12
    twice = records.take(np.repeat(np.arange(12), 2))
    numbers = marking._copies(twice, np.zeros(24, np.uint64), np.zeros(24, np.int64))
    assert Counter(numbers.tolist()) == {0: 12, 1: 12}


def test_large_tables_are_marked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    records = random_records(1_000).train
    whole = marks(records, purpose="x", seed=0)
    monkeypatch.setattr(marking, "_NUMBERS", 64)
    np.testing.assert_array_equal(marks(records, purpose="x", seed=0), whole)


def test_class_labels_are_marked_as_well() -> None:
    X = np.zeros((2, 1), np.float32)
    drawn = marks(Records(X=X, y=np.array([0, 1])), purpose="x", seed=0)
    assert drawn[0] != drawn[1]


def test_a_split_is_undone_by_pooling() -> None:
    dataset = make(np.eye(6, dtype=np.float32), np.ones(6), [0, 0, 1, 1, 2, 2])
    split = hold_out(dataset, fraction=0.5)
    assert 0 < len(split.test) < 6
    again = pooled(split)
    assert apart(again.train, dataset.train) == 0
    assert len(again.test) == 0
    assert pooled(dataset) is dataset


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_hold_out_refuses_what_is_no_share(fraction: float) -> None:
    with pytest.raises(DataError, match="fraction must lie strictly between 0 and 1"):
        hold_out(random_records(10), fraction=fraction)


def test_hold_out_refuses_to_split_twice() -> None:
    split = hold_out(random_records(100))
    with pytest.raises(DataError, match=f"already has a test set of {len(split.test)} records"):
        hold_out(split)
