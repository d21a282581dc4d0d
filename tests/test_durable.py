"""Durable files: whole or not at all, on the disk before their name, for whom they are meant."""

import os
import stat
from pathlib import Path

import pytest

from fedpriv._durable import OWNER_ONLY, create_file, replace_file


def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")

    def crash(descriptor: int) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="gone"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content, then the name: two syncs, with the renaming between them."""
    seen: list[tuple[bool, bool]] = []
    path, real = tmp_path / "file", os.fsync

    def watched(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").is_dir(), path.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    replace_file(path, b"content")
    assert seen == [(False, False), (True, True)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_mode_holds_whatever_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        replace_file(tmp_path / "secret", b"x", mode=OWNER_ONLY)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == OWNER_ONLY


def test_what_a_crash_left_is_removed_by_the_next_writer_with_the_lock(tmp_path: Path) -> None:
    (tmp_path / ".file.new").write_text("half a secr")
    replace_file(tmp_path / "file", "whole", locked=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_that_is_there_is_not_created(tmp_path: Path) -> None:
    create_file(tmp_path / "file", "first")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "file", "second")
    assert (tmp_path / "file").read_text() == "first"
