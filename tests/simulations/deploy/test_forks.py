"""Forks of a worker: none outlives its deadline, its worker, or its own children's group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fedpriv
from fedpriv.simulations.deploy.flower import forks
from fedpriv.simulations.deploy.flower.forks import Note, in_a_fork
from fedpriv.simulations.deploy.sessions import look_at
from tests.simulations.deploy.conftest import until

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.flower.forks import Tell

ROOT = Path(fedpriv.__file__).parents[1]


def ignored(_note: Note | None, _left: float | None) -> None:
    """No heart."""


def number_in(path: Path) -> int:
    assert until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_a_task_that_sleeps_for_ever_ends_at_its_deadline_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    def hang(tell: Tell) -> None:
        tell(Note(run="7", step="answer", seconds=0.5))
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (tmp_path / "fork").write_text(str(os.getpid()))
        (tmp_path / "child").write_text(str(child.pid))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(600)

    notes = []
    assert in_a_fork(hang, seconds=60, on_beat=lambda note, _left: notes.append(note)) == "overdue"
    assert Note(run="7", step="answer", seconds=0.5) in notes
    started = [number_in(tmp_path / name) for name in ("fork", "child")]
    assert until(lambda: not any(map(look_at, started)))


def test_a_task_that_tells_nothing_ends_as_well() -> None:
    assert in_a_fork(lambda _tell: time.sleep(600), seconds=0.2, on_beat=ignored) == "overdue"


def test_a_task_is_done_or_failed_as_its_fork_ended_and_every_fork_is_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children, fork = [], os.fork

    def forked() -> int:
        child = fork()
        children.append(child)
        return child

    monkeypatch.setattr(os, "fork", forked)

    def fail(_tell: Tell) -> None:
        raise ValueError("as it happens")

    def die(_tell: Tell) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_fork(lambda _tell: None, seconds=60, on_beat=ignored) == "done"
    assert in_a_fork(fail, seconds=60, on_beat=ignored) == "failed"
    assert in_a_fork(die, seconds=60, on_beat=ignored) == "failed"
    assert len(children) == 3
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_a_worker_that_is_told_to_end_ends_its_fork_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_GRACE_SECONDS", 0.2)

    def hang(_tell: Tell) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "fork").write_text(str(os.getpid()))
        time.sleep(600)

    def told(_note: Note | None, _left: float | None) -> None:
        if (tmp_path / "fork").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_a_fork(hang, seconds=60, on_beat=told)
    assert look_at(number_in(tmp_path / "fork")) is None


WORKER = """
import os, pathlib, sys, time
from fedpriv.simulations.deploy.flower.forks import in_a_fork
def hang(tell):
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)
in_a_fork(hang, seconds=None, on_beat=lambda note, left: None)
"""


def test_a_worker_that_is_killed_leaves_no_fork_behind(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "fork")], cwd=ROOT, start_new_session=True
    )
    fork = number_in(tmp_path / "fork")
    assert look_at(fork) is not None
    worker.kill()
    worker.wait()
    assert until(lambda: look_at(fork) is None)


def test_a_fork_whose_worker_died_before_it_could_say_so_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the fork and the request to the kernel: the parent is another one by then."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    ran: list[bool] = []
    assert in_a_fork(lambda _tell: ran.append(True), seconds=60, on_beat=ignored) == "failed"
