"""Records and data sets: read-only, finite, validated, and silent about their content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedpriv.data import DataError, Dataset, Records, describe
from fedpriv.data.dataset import no_records, signs


def records(**arrays: Any) -> Records:
    """Records from arrays of any type, as a caller without a type checker would make them."""
    return Records(**arrays)


def make(n: int = 6, *, party: list[int] | None = None, **changes: Any) -> Dataset:
    values: dict[str, Any] = {
        "name": "toy",
        "task": "binary",
        "train": Records(
            X=np.arange(2 * n, dtype=np.float32).reshape(n, 2),
            y=signs(np.arange(n) % 3 == 0),
            party=None if party is None else np.array(party),
        ),
        "test": no_records(2, "binary"),
        "feature_names": ("a", "b"),
        "max_norm": 10.0,
        "party_names": () if party is None else tuple(f"p{j}" for j in range(max(party) + 1)),
        "classes": ("no", "yes"),
    }
    return Dataset(**(values | changes))


def test_records_are_read_only_float32_and_contiguous() -> None:
    made = records(X=np.asfortranarray(np.ones((3, 2))), y=np.ones(3), party=np.zeros(3, np.int64))
    assert made.X.dtype == np.float32
    assert made.X.flags.c_contiguous
    assert made.y.dtype == np.float32
    assert made.party is not None
    assert made.party.dtype == np.int32
    for array in (made.X, made.y, made.party):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_callers_own_array_stays_writable() -> None:
    mine = np.ones((3, 2), np.float32)
    records(X=mine, y=np.ones(3))
    mine[0, 0] = 2


def test_integer_labels_become_class_indices() -> None:
    assert records(X=np.ones((2, 1)), y=np.array([0, 3], np.uint8)).y.dtype == np.int64


def test_no_representation_shows_a_record() -> None:
    dataset = make(party=[0, 0, 1, 1, 2, 2])
    dataset = replace(dataset, train=replace(dataset.train, X=np.full((6, 2), 123.456)))
    assert "123" not in repr(dataset)
    assert "6 records × 2 features" in repr(dataset)


def test_data_sets_are_equal_by_identity_alone() -> None:
    assert make() != make()
    same = make()
    assert same == same  # noqa: PLR0124


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite_in_float32_are_refused(bad: float) -> None:
    with pytest.raises(DataError, match="must be finite"):
        records(X=np.array([[bad]]), y=np.ones(1))
    with pytest.raises(DataError, match="must be finite"):
        records(X=np.ones((1, 1)), y=np.array([bad]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones(3), "y": np.ones(3)}, "X must have 2 dimensions"),
        ({"X": np.ones((3, 1)), "y": np.ones(2)}, "y must hold one entry for each of the 3"),
        (
            {"X": np.ones((3, 1)), "y": np.ones(3), "party": np.zeros(4, np.int32)},
            "party must hold one entry for each of the 3",
        ),
    ],
)
def test_shapes_must_agree(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        records(**arrays)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "binry"}, "Did you mean 'binary'"),
        ({"max_norm": 0.0}, "max_norm must be positive"),
        ({"classes": ("one",)}, "a binary task has 2 classes"),
        ({"party_names": ("p0",)}, "given together"),
        ({"feature_names": ("a",)}, "1 feature names for 2 features"),
        ({"train": records(X=np.ones((2, 2)), y=np.zeros(2))}, "must be -1 or \\+1"),
        ({"task": "multiclass"}, "must be integers for a multiclass task"),
        (
            {"task": "multiclass", "train": records(X=np.ones((1, 2)), y=np.array([2]))},
            "labels must index the 2 classes",
        ),
        (
            {
                "train": records(X=np.ones((1, 2)), y=np.ones(1), party=np.array([1])),
                "party_names": ("only",),
            },
            "party must index the 1 party_names",
        ),
    ],
)
def test_a_data_set_must_be_consistent(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_describe_counts_training_records_of_the_smallest_party() -> None:
    whole = make(party=[0, 0, 0, 0, 1, 1])
    odd = np.arange(6) % 2 == 1
    description = describe(replace(whole, train=whole.train.take(~odd), test=whole.train.take(odd)))
    assert description.to_dict() == {
        "name": "toy",
        "task": "binary",
        "rows": 6,
        "train": 3,
        "test": 3,
        "features": 2,
        "parties": 2,
        "smallest_party": 1,
        "positive_rate": 2 / 6,
    }


def test_describe_leaves_out_what_does_not_apply() -> None:
    regression = make(task="regression", classes=())
    assert describe(regression).positive_rate is None
    assert describe(regression).smallest_party is None
    assert describe(regression).parties == 0
