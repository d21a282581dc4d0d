"""Files that were read before: given again while they are the same, else read again."""

from __future__ import annotations

import os
import struct
from time import sleep, time_ns
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

from fedpriv.data import DataError, Files, KeptFiles, keep, read_schema
from fedpriv.data.tables import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

SCHEMA = 'label = "y"\npositive = "1"\n[columns.x]\nkind = "number"\nmin = 0\nmax = 10\n'
TABLE = "x,y\n1,1\n2,0\n3,1\n"


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are kept as if they had been written a while ago."""
    monkeypatch.setattr(files, "time_ns", lambda: time_ns() + 3 * 10**9)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "records.csv").write_text(TABLE)
    return tmp_path


def kept(place: Path) -> KeptFiles:
    return keep(place / "records.csv", schema=place / "schema.toml")


def first(source: Files, place: Path) -> float:
    """The first feature, in [-1, 1]."""
    table = source.table(place / "records.csv", schema=place / "schema.toml")
    return float(table.train.X[0, 0])


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> NoReturn:
        raise AssertionError("a file was read")

    monkeypatch.setattr(files, "read_table", read)
    monkeypatch.setattr(files, "read_schema", read)


def test_what_was_kept_is_given_without_reading(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, plain = kept(place), Files()
    wanted = plain.table(place / "records.csv", schema=place / "schema.toml")
    forbid_reading(monkeypatch)
    dataset = source.table(place / "records.csv", schema=place / "schema.toml")
    np.testing.assert_array_equal(dataset.train.X, wanted.train.X)
    np.testing.assert_array_equal(dataset.train.y, wanted.train.y)
    assert (dataset.name, dataset.task, dataset.classes) == (
        wanted.name,
        wanted.task,
        wanted.classes,
    )
    assert source.schema(place / "schema.toml").feature_names == ("x",)


def test_kept_records_are_read_only(place: Path) -> None:
    records = kept(place).table(place / "records.csv", schema=place / "schema.toml").train
    assert not records.X.flags.writeable
    assert not records.y.flags.writeable


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _write_and_set_back(path: Path, text: str) -> None:
    """As a tool does that keeps the times of what it copies."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    before = path.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("edit", [_write, _write_and_set_back, _replace])
def test_an_edited_table_is_read_again_though_its_size_is_the_same(
    place: Path, edit: Callable[[Path, str], None]
) -> None:
    source = kept(place)
    assert first(source, place) == pytest.approx(-0.8)
    edit(place / "records.csv", TABLE.replace("1,1", "9,1", 1))
    assert first(source, place) == pytest.approx(0.8)
    assert not source.holds(place / "records.csv", schema=place / "schema.toml")


def test_records_are_read_again_under_an_edited_schema(place: Path) -> None:
    source = kept(place)
    (place / "schema.toml").write_text(SCHEMA.replace("10", "20"))
    assert first(source, place) == pytest.approx(-0.9)
    assert source.schema(place / "schema.toml").columns["x"].max == 20  # type: ignore[union-attr]


def test_other_files_are_read_from_the_disk(place: Path) -> None:
    source = kept(place)
    (place / "other.csv").write_text(TABLE.replace("1,1", "7,1", 1))
    other = source.table(place / "other.csv", schema=place / "schema.toml")
    assert float(other.train.X[0, 0]) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("name", "text"),
    [("records.csv", "x,y\n1,maybe\n2,0\n3,1\n"), ("records.csv", None), ("schema.toml", "label")],
)
def test_what_cannot_be_read_is_not_kept_and_who_needs_it_is_told(
    place: Path, name: str, text: str | None
) -> None:
    path = place / name
    path.unlink() if text is None else path.write_text(text)
    source = kept(place)
    assert source.kept_table is None
    assert source.holds(place / "records.csv", schema=place / "schema.toml")
    with pytest.raises(DataError, match=path.stem):
        first(source, place)


def test_a_table_that_was_edited_while_it_was_read_is_not_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_schema

    def slow(path: Path) -> object:
        (place / "records.csv").write_text(TABLE.replace("1,1", "9,1", 1))
        return read(path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_schema", slow)
        source = kept(place)
    assert source.kept_table is None
    assert first(source, place) == pytest.approx(0.8)


def test_behind_a_link_the_file_counts_that_it_points_to_now(place: Path) -> None:
    link = place / "records.csv"
    old, new = link.rename(place / "old.csv"), place / "new.csv"
    link.symlink_to(old)
    source = kept(place)
    assert first(source, place) == pytest.approx(-0.8)
    old.write_text(TABLE.replace("1,1", "9,1", 1))
    assert first(source, place) == pytest.approx(0.8)
    source = kept(place)
    new.write_text(TABLE.replace("1,1", "7,1", 1))
    link.unlink()
    link.symlink_to(new)
    assert first(source, place) == pytest.approx(0.4)


@pytest.mark.parametrize("name", ["records.csv", "schema.toml"])
def test_what_was_edited_a_moment_ago_is_not_kept_but_tried_again(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the clock of a disk ticks every two seconds, the next edit has the same time."""
    sleep(0.02)  # one file is older than the other
    os.utime(place / name, ns=(0, 0))  # whoever writes may set this time back, not the other
    now = (place / name).stat().st_ctime_ns + 2 * 10**9
    monkeypatch.setattr(files, "time_ns", lambda: now)
    source = kept(place)
    assert source.kept_table is None
    assert not source.holds(place / "records.csv", schema=place / "schema.toml")
    assert first(source, place) == pytest.approx(-0.8)


def test_a_reader_that_is_killed_halfway_stops_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one is that runs out of memory while it hands over the records."""

    def half(sender: Connection, *_: object) -> NoReturn:
        os.write(sender.fileno(), struct.pack("!i", 1000) + b"records")
        os._exit(1)

    monkeypatch.setattr(files, "_send", half)
    source = kept(place)
    assert source.kept_table is None
    assert first(source, place) == pytest.approx(-0.8)
