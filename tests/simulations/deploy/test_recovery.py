"""What a killed process leaves behind is found and ended, and nobody else is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import fedpriv
from fedpriv.simulations.deploy import processes, sessions
from fedpriv.simulations.deploy.folders import Folder
from fedpriv.simulations.deploy.processes import Process, start, stop
from fedpriv.simulations.deploy.programs import Program
from fedpriv.simulations.deploy.run.lock import served, server_of
from fedpriv.simulations.deploy.run.submission import submit
from fedpriv.simulations.deploy.sessions import look_at
from fedpriv.simulations.run.files import PRIVATE, write_json
from fedpriv.simulations.server_app import FAILURE, app
from tests.simulations.deploy.conftest import until

if TYPE_CHECKING:
    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Founder, Starter

LEADER = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]], process_group=0)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(600)
"""
SLEEP = "import time; time.sleep(600)"


def orphan(folder: Folder, running: Starter, *, child: str = SLEEP) -> int:
    """What is left of a program whose leader was killed: a process in a group of its own."""
    note = folder.root / "child"
    command = (sys.executable, "-c", LEADER, str(note), child)
    running((Program(name="worker", command=command, folder=folder),))
    assert until(lambda: note.exists() and note.read_text())
    (leader,) = processes.processes(folder)
    os.kill(leader.pid, signal.SIGKILL)
    assert until(lambda: not leader.alive)
    return int(note.read_text())


def test_stop_ends_what_a_killed_leader_left(tmp_path: Path, running: Starter) -> None:
    folder = Folder(tmp_path)
    child = orphan(folder, running)
    assert look_at(child) is not None
    assert [process.name for process in stop(folder)] == ["worker"]
    assert look_at(child) is None
    assert processes.processes(folder) == ()


def test_a_program_is_not_started_beside_what_its_last_life_left(
    tmp_path: Path, running: Starter
) -> None:
    folder = Folder(tmp_path)
    orphan(folder, running)
    with pytest.raises(ValueError, match="left something running"):
        start(Program(name="worker", command=(sys.executable, "-c", SLEEP), folder=folder))


def test_the_record_of_a_session_is_kept_until_nobody_is_left_in_it(
    tmp_path: Path, running: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    child = orphan(folder, running)
    monkeypatch.setattr(processes, "_GRACE_SECONDS", 0.1)
    with monkeypatch.context() as deaf:
        deaf.setattr(sessions, "send", lambda _seen, _number: None)
        with pytest.raises(ValueError, match=str(child)):
            stop(folder)
    assert [process.name for process in processes.processes(folder)] == ["worker"]
    monkeypatch.undo()
    stop(folder)
    assert look_at(child) is None


def test_a_strangers_session_of_the_same_number_is_left_alone(tmp_path: Path) -> None:
    """The number was given again: by its start time, or its directory, it is not ours."""
    folder = Folder(tmp_path)
    folder.processes.mkdir()
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True)
    try:
        seen = look_at(stranger.pid)
        assert seen is not None
        write_json(folder.processes / "x.pid", {"pid": stranger.pid, "started": "17"})
        assert stop(folder) == ()
        assert look_at(stranger.pid) == seen
        assert Process(name="x", pid=stranger.pid, started="17").left(tmp_path) == ()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_member_of_a_strangers_session_whose_leader_is_gone_is_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = Folder(tmp_path / "member")
    folder.processes.mkdir(parents=True)
    note = tmp_path / "child"
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(note), SLEEP],
        cwd=tmp_path / "elsewhere",
        start_new_session=True,
    )
    assert until(lambda: note.exists() and note.read_text())
    leader.kill()
    leader.wait()
    child = int(note.read_text())
    try:
        write_json(folder.processes / "x.pid", {"pid": leader.pid, "started": "1"})
        assert stop(folder) == ()
        assert look_at(child) is not None
    finally:
        os.kill(child, signal.SIGKILL)


def test_recover_reports_orphans_and_their_locks_and_ends_them_with_yes(
    deployment: Founder, running: Starter, fedpriv: Command
) -> None:
    folder = deployment().parties[0]
    lock = folder.root / "state" / "lock"
    lock.parent.mkdir(exist_ok=True)
    holding = (
        "import fcntl, sys, time, pathlib; "
        f"file = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        f"pathlib.Path({str(folder.root / 'held')!r}).touch(); time.sleep(600)"
    )
    child = orphan(folder, running, child=holding)
    assert until((folder.root / "held").exists)
    shown = fedpriv("deploy", "recover", folder.root)
    assert shown.code == 1
    assert f"process {child}" in shown.out
    assert "state/lock is held" in shown.out
    assert look_at(child) is not None
    ended = fedpriv("deploy", "recover", folder.root, "--yes", "--json")
    assert ended.code == 0, ended.out
    assert {each["kind"] for each in json.loads(ended.out)} == {"orphan", "lock", "record"}
    assert look_at(child) is None
    again = fedpriv("deploy", "recover", folder.root)
    assert (again.code, again.out.strip()) == (0, "nothing was left behind")


def test_recover_finds_a_program_that_no_record_names(
    deployment: Founder, running: Starter, fedpriv: Command
) -> None:
    folder = deployment().parties[0]
    name = "fedpriv.simulations.deploy.flower.worker"
    running((Program(name="w", command=(sys.executable, "-c", SLEEP, name), folder=folder),))
    (process,) = processes.processes(folder)
    assert fedpriv("deploy", "recover", folder.root).code == 0  # it is looked after
    (folder.processes / "w.pid").unlink()
    done = fedpriv("deploy", "recover", folder.root, "--yes")
    assert done.code == 0, done.out
    assert str(process.pid) in done.out
    assert not process.alive


HOLDER = """
import pathlib, sys, time
from fedpriv.simulations.deploy.run.lock import served
with served(pathlib.Path(sys.argv[1])):
    pathlib.Path(sys.argv[1], "held").touch()
    time.sleep(600)
"""


def test_a_second_server_app_refuses_a_run_that_is_served(
    deployment: Founder, tmp_path: Path
) -> None:
    made = deployment()
    directory = made.server.runs / "one"
    (directory / PRIVATE).mkdir(parents=True)
    (directory / FAILURE).write_text("of an earlier life")
    root = Path(fedpriv.__file__).parents[1]
    first = subprocess.Popen([sys.executable, "-c", HOLDER, str(directory)], cwd=root)
    try:
        assert until((directory / "held").exists)
        assert server_of(directory) == first.pid
        config = {"roster": str(made.server.roster), "output": str(directory), "config": ""}
        context = type("Context", (), {"run_config": config})()
        with pytest.raises(ValueError, match=f"process {first.pid} already"):
            app(grid=cast("Any", None), context=cast("Any", context))
        assert (directory / FAILURE).read_text() == "of an earlier life"
        with pytest.raises(ValueError, match=f"goes on, as process {first.pid}"):
            submit(directory, made.server)
    finally:
        first.kill()
        first.wait()
    assert server_of(directory) is None  # the system gave it up with the process
    with pytest.raises(ValueError, match="data"):  # an experiment without any
        app(grid=cast("Any", None), context=cast("Any", context))
    assert "data" in (directory / FAILURE).read_text()  # and whoever did not wait finds out
    with served(directory):
        assert server_of(directory) == os.getpid()
