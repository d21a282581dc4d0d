"""Processes that outlive the command which started them, and are ended by their id alone.

Each leads a session, which is recorded in ``processes/NAME.pid``. The record is deleted when nobody
is left in the session, not when its leader has ended: what a killed leader left behind is found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.simulations.deploy import sessions
from fedpriv.simulations.run.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import Folder
    from fedpriv.simulations.deploy.programs import Program
    from fedpriv.simulations.deploy.sessions import Seen

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.1
_TAIL = 20  # lines of a log that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that was started for a member.

    Attributes:
        name: What it is called.
        pid: Its id, which is also that of its session.
        started: When the system says that it started, so that a later process with the same id is
            not taken for it; empty where the system does not say.
    """

    name: str
    pid: int
    started: str

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # a child of ours that ended is not running
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return self.started == started_at(self.pid)

    def left(self, home: Path) -> tuple[Seen, ...]:
        """Who is left of its session, itself included."""
        alive = self.alive
        if not self.started:  # a system that does not say: the leader stands for all
            return (sessions.Seen(pid=self.pid, session=self.pid, started=""),) if alive else ()
        return sessions.members(self.pid, started=self.started, home=home)


def start(program: Program) -> Process:
    """Start a program in the background, unless it runs already.

    Raises:
        ValueError: It runs already, or what it started does.
    """
    for process in processes(program.folder):
        if process.name == program.name and (left := process.left(program.folder.root)):
            what = "runs already" if process.alive else "has ended, and left something running"
            raise ValueError(
                f"{program.name} {what}, as process {left[0].pid}: `fedpriv deploy stop "
                f"{program.folder.root}` ends it."
            )
    program.folder.processes.mkdir(exist_ok=True, mode=0o700)
    log = log_of(program.folder, program.name)
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - a program of this environment, no shell
            program.command,
            cwd=program.folder.root,
            env=program.full_environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    child.returncode = 0  # this process does not wait for it, and need not be warned
    process = Process(name=program.name, pid=child.pid, started=started_at(child.pid))
    values = {"pid": process.pid, "started": process.started}
    write_json(_pid_file(program.folder, program.name), values)
    return process


def processes(folder: Folder) -> tuple[Process, ...]:
    """The processes that were started for a member and not stopped."""
    known = []
    for path in sorted(folder.processes.glob("*.pid")):
        values = read_json(path)
        known.append(Process(name=path.stem, pid=values["pid"], started=values["started"]))
    return tuple(known)


def stop(folder: Folder) -> tuple[Process, ...]:
    """End the processes of a member and all that they left, and say which sessions there were.

    Raises:
        ValueError: Something could not be ended; its record is kept.
    """
    known = processes(folder)
    running = tuple(process for process in known if process.left(folder.root))
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            for seen in process.left(folder.root):
                _signal(seen, number)
        deadline = time.monotonic() + _GRACE_SECONDS
        while any(process.left(folder.root) for process in running):
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            break
    stuck = [seen for process in known for seen in process.left(folder.root)]
    for process in known:
        if not process.left(folder.root):
            forget(folder, process.name)
    if stuck:
        numbers = ", ".join(str(seen.pid) for seen in stuck)
        raise ValueError(
            f"processes {numbers} of {str(folder.root)!r} could not be ended; they are of another "
            "user, or wait for a disk."
        )
    return running


def forget(folder: Folder, name: str) -> None:
    """Delete the record of a process in whose session nobody is left."""
    _pid_file(folder, name).unlink(missing_ok=True)


def _signal(seen: Seen, number: signal.Signals) -> None:
    if seen.started:
        sessions.send(seen, number)
    else:
        with suppress(ProcessLookupError):
            os.killpg(seen.pid, number)


def wait_for(members: Sequence[Process]) -> Process:
    """Wait until one of the processes ends, and return it."""
    while True:
        for process in members:
            if not process.alive:
                return process
        time.sleep(_POLL_SECONDS)


def log_of(folder: Folder, name: str) -> Path:
    """The log file of a member's process."""
    return folder.processes / f"{name}.log"


def tail(folder: Folder, name: str) -> str:
    """The last lines of a log."""
    log = log_of(folder, name)
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])


def _pid_file(folder: Folder, name: str) -> Path:
    return folder.processes / f"{name}.pid"


def started_at(pid: int) -> str:
    """Clock ticks from the start of the system to that of the process; empty if it has ended."""
    seen = sessions.look_at(pid)
    return "" if seen is None else seen.started
