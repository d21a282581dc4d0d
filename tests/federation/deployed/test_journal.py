"""The journal of a deployed party when clocks go back, disks are full and umasks are odd."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pytest

from fedpriv import _durable
from fedpriv.federation.deployed import journal as journals
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.answered import Given
from fedpriv.secagg.errors import WrongRound

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400


def answer(release: int) -> Given:
    return Given(release=release, query=bytes(32), vector=np.zeros(1, np.uint32), shared=0)


def run_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


def set_back(folder: Path, seconds: float) -> None:
    """Have the clock go back: whatever was written until now was written that much later."""
    for path in [folder / "lock", *folder.glob("*/*")]:
        then = path.stat().st_mtime + seconds
        os.utime(path, (then, then))


def test_a_clock_that_goes_back_pushes_out_no_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that goes on had the oldest files, and the next one to begin took their place."""
    monkeypatch.setattr(journals, "_ANSWERS", 3)
    monkeypatch.setattr(journals, "_OPEN_SEATS", 3)
    journal = Journal(tmp_path / "state")
    with journal.held():
        for number in range(3):
            journal.keep(replace(journal.memory(run_of(number)), run=run_of(number)))
            journal.give(str(number), answer(0))
        set_back(tmp_path / "state", DAY)
        journal.keep(journal.memory(run_of(2)))  # the latest goes on
        journal.give("2", answer(1))
        for number in (3, 4):
            journal.keep(replace(journal.memory(run_of(number)), run=run_of(number)))
            journal.give(str(number), answer(0))
        latest = journal.given("2")
        assert latest is not None
        assert latest.release == 1
        assert [journal.given(str(number)) is None for number in (0, 1, 3, 4)] == [
            *(True, True, False, False)
        ]
        assert journal.memory(run_of(2)).run == run_of(2)
        with pytest.raises(WrongRound, match="left it for good"):
            journal.memory(run_of(1))


def test_a_clock_that_was_wrong_for_a_day_keeps_nothing_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_ANSWERS", 2)
    journal = Journal(tmp_path / "state")
    with journal.held():
        journal.give("old", answer(0))
        set_back(tmp_path / "state", 3650 * DAY)
        for name in ("a", "b", "c"):
            journal.give(name, answer(0))
    assert [journal.given(name) is None for name in ("old", "a", "b", "c")] == [
        *(True, True, False, False)
    ]
    assert (tmp_path / "state" / "lock").stat().st_mtime > time.time()


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_disk_that_is_full_leaves_no_half_of_a_secret(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written of a draw stayed beside the answers, for good if nobody asked again."""
    journal = Journal(tmp_path / "state")
    secret = b"s" * 32

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with journal.held():
        journal.give("a", answer(0))
        with monkeypatch.context() as disk:
            if call == "write":
                disk.setattr(os, "fdopen", lambda descriptor, _: _Full(descriptor))
            elif call == "fsync":
                disk.setattr(os, "fsync", full)
            else:
                disk.setattr(type(tmp_path), "replace", full)
            with pytest.raises(OSError, match="No space"):
                journal.give("a", replace(answer(1), secret=secret))
    kept = journal.given("a")
    assert kept is not None
    assert kept.release == 0
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert not any(secret in path.read_bytes() for path in files)
    assert not [path for path in files if path.name.startswith(".")]


class _Full:
    """A file on a disk that takes ten bytes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, data: bytes) -> None:
        os.write(self._descriptor, data[:10])
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o777])
def test_the_owner_alone_reads_the_journal_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    """With an umask that takes everything from the owner, too, a party could open nothing again."""
    journal, before = Journal(tmp_path / "state"), os.umask(umask)
    try:
        with journal.held():
            journal.note("a", first=True, shown=bytes(32), plan=b"p", own_noise=True)
            journal.give("a", answer(0))
            journal.attest("a", bytes(32))
            journal.cancel("a", [])
    finally:
        os.umask(before)
    for path in (tmp_path / "state", *(tmp_path / "state").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_the_name_of_a_new_directory_is_on_the_disk_before_what_is_in_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure would take the directory, and with it that a run is over."""
    journal, synchronised = Journal(tmp_path / "state"), []
    synchronise = _durable.synchronise

    def noted(path: Path) -> None:
        synchronised.append(path.name)
        synchronise(path)

    with journal.held():
        monkeypatch.setattr(journals, "synchronise", noted)
        monkeypatch.setattr(_durable, "synchronise", noted)
        journal.attest("a", bytes(32))
        assert synchronised == ["state", "attested"]
        synchronised.clear()
        journal.attest("b", bytes(32))
        assert synchronised == ["attested"]
