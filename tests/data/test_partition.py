"""Partitions lose nothing, repeat nothing, and depend on the seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data import DataError, Dataset, PartitionedDataset, Records, partition
from fedpriv.data.dataset import no_records, signs

RANDOM_KINDS: dict[str, dict[str, Any]] = {
    "iid": {},
    "sized": {"exponent": 1.5},
    "dirichlet": {"alpha": 0.3},
}


def make(n: int, *, party: list[int] | None = None, parties: int = 0) -> Dataset:
    """Record i is (i,): its feature tells which record it is."""
    return Dataset(
        name="toy",
        task="binary",
        train=Records(
            X=np.arange(n, dtype=np.float32)[:, None],
            y=signs(np.arange(n) % 4 == 0),
            party=None if party is None else np.array(party),
        ),
        test=no_records(1, "binary"),
        feature_names=("which",),
        max_norm=1.0,
        party_names=tuple(f"p{j}" for j in range(parties)),
        classes=("no", "yes"),
    )


def assert_is_a_partition(result: PartitionedDataset, original: Dataset) -> None:
    train = result.dataset.train
    n = len(original.train)
    np.testing.assert_array_equal(np.sort(result.order), np.arange(n))
    np.testing.assert_array_equal(train.X, original.train.X[result.order])
    np.testing.assert_array_equal(train.y, original.train.y[result.order])
    assert result.offsets[0] == 0
    assert result.offsets[-1] == n
    assert result.offsets.dtype == np.int64
    assert (result.sizes >= 1).all()
    assert result.smallest == result.sizes.min()
    np.testing.assert_array_equal(train.party, np.repeat(np.arange(result.parties), result.sizes))
    assert len(result.dataset.party_names) == result.parties
    for j in range(result.parties):
        rows = result.order[result.offsets[j] : result.offsets[j + 1]]
        np.testing.assert_array_equal(result.party(j).X, original.train.X[rows])
        assert (np.diff(rows) > 0).all()


@given(
    kind=st.sampled_from(sorted(RANDOM_KINDS)),
    n=st.integers(1, 200),
    share=st.floats(0, 1),
    min_records=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=200)
def test_every_record_has_exactly_one_party_and_every_party_its_least_number(
    kind: Any, n: int, share: float, min_records: int, seed: int
) -> None:
    dataset = make(n * min_records)
    parties = 1 + int(share * (n - 1))
    arguments = {"kind": kind, "parties": parties, "min_records": min_records}
    arguments |= RANDOM_KINDS[kind]
    result = partition(dataset, rng=np.random.default_rng(seed), **arguments)
    assert result.parties == parties
    assert result.smallest >= min_records
    assert_is_a_partition(result, dataset)
    again = partition(dataset, rng=np.random.default_rng(seed), **arguments)
    np.testing.assert_array_equal(again.order, result.order)
    np.testing.assert_array_equal(again.offsets, result.offsets)


@given(party=st.lists(st.integers(0, 3), max_size=50))
def test_natural_parties_hold_their_own_records_in_their_own_order(party: list[int]) -> None:
    party = [*party, 0, 1, 2, 3]
    dataset = make(len(party), party=party, parties=4)
    result = partition(dataset, kind="natural")
    assert_is_a_partition(result, dataset)
    np.testing.assert_array_equal(np.array(party)[result.order], result.dataset.train.party)
    assert result.dataset.party_names == ("p0", "p1", "p2", "p3")


@pytest.mark.parametrize("kind", sorted(RANDOM_KINDS))
def test_another_seed_gives_another_partition(kind: Any) -> None:
    first, second = (
        partition(
            make(500), kind=kind, parties=5, rng=np.random.default_rng(seed), **RANDOM_KINDS[kind]
        )
        for seed in (1, 2)
    )
    assert not np.array_equal(first.order, second.order)


@given(n=st.integers(1, 300), share=st.floats(0, 1))
def test_iid_sizes_differ_by_at_most_one(n: int, share: float) -> None:
    parties = 1 + int(share * (n - 1))
    result = partition(make(n), kind="iid", parties=parties, rng=np.random.default_rng(0))
    assert result.sizes.max() - result.sizes.min() <= 1


def test_sized_parties_follow_the_power_law() -> None:
    n, m, exponent = 100_000, 50, 1.2
    result = partition(
        make(n),
        kind="sized",
        parties=m,
        exponent=exponent,
        min_records=10,
        rng=np.random.default_rng(0),
    )
    weights = np.arange(1, m + 1) ** -exponent
    expected = 10 + (n - 10 * m) * weights / weights.sum()
    assert np.abs(result.sizes - expected).max() <= 1


def test_a_small_alpha_skews_labels_and_a_large_one_does_not() -> None:
    def spread(alpha: float) -> float:
        result = partition(
            make(20_000), kind="dirichlet", parties=10, alpha=alpha, rng=np.random.default_rng(0)
        )
        rates = [float((result.party(j).y > 0).mean()) for j in range(10)]
        return max(rates) - min(rates)

    assert spread(0.1) > 0.8
    assert spread(1e6) < 0.06


def test_an_extreme_alpha_still_fills_every_party() -> None:
    result = partition(
        make(1000), kind="dirichlet", parties=100, alpha=1e-9, rng=np.random.default_rng(0)
    )
    assert result.smallest >= 1
    assert result.sizes.max() > 600


def test_new_parties_replace_the_natural_ones() -> None:
    dataset = make(6, party=[0, 1, 0, 1, 0, 1], parties=2)
    result = partition(dataset, kind="iid", parties=3, rng=np.random.default_rng(0))
    assert result.dataset.party_names == ("party-0", "party-1", "party-2")
    assert result.dataset.test.party is None


def test_a_partition_is_read_only_and_a_party_shares_its_memory() -> None:
    result = partition(make(6), kind="iid", parties=2, rng=np.random.default_rng(0))
    for array in (result.order, result.offsets, result.dataset.train.X):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert np.shares_memory(result.party(1).X, result.dataset.train.X)
    with pytest.raises(ValueError, match=r"index must lie in 0\.\.1, got 2"):
        result.party(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "idd"}, "Did you mean 'iid'"),
        ({"kind": "iid"}, "parties and rng must be given"),
        ({"kind": "iid", "parties": 11}, "parties must be at most 10 for 10 training records"),
        ({"kind": "iid", "parties": 0}, "parties must be an integer of at least 1"),
        ({"kind": "sized", "parties": 2}, "exponent must be given for kind = 'sized'"),
        ({"kind": "sized", "parties": 2, "exponent": -1.0}, "exponent must be finite"),
        (
            {"kind": "sized", "parties": 4, "exponent": 1.0, "min_records": 3},
            "parties must be at most 3 for 10 training records and min_records = 3, got 4",
        ),
        ({"kind": "iid", "parties": 2, "alpha": 1.0}, "alpha must be given for kind = 'dirichlet'"),
        ({"kind": "dirichlet", "parties": 2}, "alpha must be given"),
        ({"kind": "dirichlet", "parties": 2, "alpha": 0.0}, "alpha must be positive"),
        ({"kind": "natural"}, "toy has no natural parties"),
        ({"kind": "natural", "parties": 2}, "parties must not be given"),
        ({"kind": "iid", "parties": 2, "min_records": 0}, "min_records must be an integer"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(0) if "parties" in arguments else None
    with pytest.raises(ValueError, match=message):
        partition(make(10), rng=rng, **arguments)


def test_a_natural_party_may_be_empty_unless_a_least_number_is_asked_for() -> None:
    """Whether it is depends on single records: a release must not be refused for it."""
    dataset = make(3, party=[0, 2, 2], parties=3)
    assert partition(dataset, kind="natural").sizes.tolist() == [1, 0, 2]
    with pytest.raises(DataError, match="1 of 3 parties hold fewer than min_records = 1"):
        partition(dataset, kind="natural", min_records=1)
    with pytest.raises(DataError, match="2 of 3 parties hold fewer than min_records = 2"):
        partition(dataset, kind="natural", min_records=2)


def test_label_skew_needs_classes() -> None:
    dataset = make(4)
    regression = Dataset(
        name="toy",
        task="regression",
        train=dataset.train,
        test=dataset.test,
        feature_names=("which",),
        max_norm=1.0,
    )
    with pytest.raises(ValueError, match="a regression task has none"):
        partition(regression, kind="dirichlet", parties=2, alpha=1.0, rng=np.random.default_rng(0))
