"""Processes that outlive the command which started them, and are ended by their id alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.simulations.run.files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.deploy.folders import Folder
    from fedpriv.simulations.deploy.programs import Program

_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.1
_TAIL = 20  # lines of a log that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that was started for a member.

    Attributes:
        name: What it is called.
        pid: Its id, which is also that of its group.
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
        return self.started == _started(self.pid)


def start(program: Program) -> Process:
    """Start a program in the background, unless it runs already.

    Raises:
        ValueError: It runs already.
    """
    for process in processes(program.folder):
        if process.name == program.name and process.alive:
            raise ValueError(
                f"{program.name} runs already, as process {process.pid}: `fedpriv deploy stop "
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
    process = Process(name=program.name, pid=child.pid, started=_started(child.pid))
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
    """End the processes of a member, and say which ones ran."""
    running = tuple(process for process in processes(folder) if process.alive)
    for number, patience in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, _GRACE_SECONDS)):
        waiting = [process for process in running if process.alive]
        for process in waiting:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + patience
        while any(process.alive for process in waiting) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    for path in folder.processes.glob("*.pid"):
        path.unlink()
    return running


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


def _started(pid: int) -> str:
    """Clock ticks from the start of the system to that of the process, if it has not ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if state == "Z" else fields[18]
