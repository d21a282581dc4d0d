"""A user's own table: encoding, rules and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.data import Bounds, bound, hold_out, partition
from tests.data.tables.own_tables import COLUMNS, GOOD, HEADER, read, refusal

if TYPE_CHECKING:
    from pathlib import Path


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
