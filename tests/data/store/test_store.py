"""A store has the records that were written, mapped; one that was changed is refused."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data import Bounds, DataError, bound, load, partition
from fedpriv.data.store.manifest import MANIFEST, Manifest, is_store
from fedpriv.data.store.reader import open_store, verify_store
from fedpriv.data.store.writer import StoreWriter, write_store

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data import PartitionedDataset

FACTS = {"what": ["ever", 1, None]}


def prepared() -> PartitionedDataset:
    dataset = bound(load("synthetic"), Bounds(norm=1.0, intercept=0.5))
    rng = np.random.default_rng(0)
    return partition(dataset, kind="sized", parties=7, rng=rng, exponent=1.0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    data = prepared()
    write_store(tmp_path / "store", data, sizes=tuple(data.sizes.tolist()), facts=FACTS)
    return tmp_path / "store"


def test_what_was_written_is_what_is_opened(store: Path) -> None:
    data, opened = prepared(), open_store(store)
    for part in ("train", "test"):
        for name in ("X", "y", "party"):
            written, found = (
                getattr(getattr(each.dataset, part), name) for each in (data, opened.data)
            )
            np.testing.assert_array_equal(found, written)
            if found is not None:
                assert found.dtype == written.dtype
                assert not found.flags.writeable
    assert opened.data.mapped
    assert not data.mapped
    assert isinstance(opened.data.dataset.train.X.base, np.memmap)
    np.testing.assert_array_equal(opened.data.offsets, data.offsets)
    np.testing.assert_array_equal(opened.data.order, data.order)
    assert opened.sizes == tuple(data.sizes.tolist())
    assert opened.manifest.facts == FACTS
    for fact in ("name", "task", "feature_names", "party_names", "classes", "preprocessing"):
        assert getattr(opened.data.dataset, fact) == getattr(data.dataset, fact)


def test_nobody_else_may_read_it(store: Path) -> None:
    assert store.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in store.iterdir())


def test_its_files_are_plain_arrays(store: Path) -> None:
    X = np.load(store / "train_X.npy", mmap_mode="r")
    np.testing.assert_array_equal(X, prepared().dataset.train.X)


def test_a_changed_file_is_found_by_its_hash(store: Path) -> None:
    assert verify_store(store).digest == Manifest.read(store).digest
    with (store / "train_X.npy").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    open_store(store)  # reads no record
    with pytest.raises(DataError, match=r"train_X\.npy was changed since it was written"):
        verify_store(store)


def test_a_file_of_another_shape_or_a_missing_one_is_found_at_once(store: Path) -> None:
    shutil.copy(store / "test_X.npy", store / "train_X.npy")
    with pytest.raises(DataError, match="another type or shape than the manifest says"):
        open_store(store)
    (store / "train_X.npy").unlink()
    with pytest.raises(DataError, match=r"train_X\.npy is missing"):
        open_store(store)


def test_a_manifest_that_was_edited_is_refused(store: Path) -> None:
    values: dict[str, Any] = json.loads((store / MANIFEST).read_text())
    (store / MANIFEST).write_text(json.dumps({**values, "parties": 8}))
    with pytest.raises(DataError, match="was changed since it was written"):
        open_store(store)
    (store / MANIFEST).write_text(json.dumps({**values, "format": "fedpriv store 0"}))
    with pytest.raises(DataError, match="of another version of fedpriv"):
        open_store(store)
    (store / MANIFEST).write_text("{}")
    with pytest.raises(DataError, match="is not the manifest of a store"):
        open_store(store)


def test_another_store_is_known_by_its_digest(store: Path) -> None:
    open_store(store, digest=Manifest.read(store).digest)
    with pytest.raises(DataError, match="is another store"):
        open_store(store, digest="0" * 64)


def test_what_was_not_finished_is_no_store(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        writer.array("train_X", np.float32, (1, 1), [np.zeros((1, 1))])
    assert not is_store(tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "store").mkdir()
    with pytest.raises(DataError, match="exists already"):
        StoreWriter(tmp_path / "store")


def test_an_array_with_other_rows_than_it_says_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="must have 3 rows, got 2"),
        StoreWriter(tmp_path / "s") as writer,
    ):
        writer.array("train_X", np.float32, (3, 1), [np.zeros((2, 1))])
