"""Recovery of a member after a crash: what was left behind, and its end.

    orphan   a process of a session whose leader has ended, or of no recorded session at all
    lock     held by an orphan: of a run, or of a party's journal
    record   a pid file of a session in which nobody is left
    run      one that the SuperLink still believes to be going on, and that nobody serves

Ending them loses nothing: what counts is in ledgers, journals and checkpoints. A run that was ended
here goes on with `fedpriv deploy run --resume`.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy import sessions
from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
from fedpriv.simulations.deploy.processes import forget, processes
from fedpriv.simulations.deploy.run.lock import lock_of, server_of
from fedpriv.simulations.deploy.run.submission import known_run, result_of

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.sessions import Seen

_PROGRAMS = "fedpriv.simulations.deploy.flower."
_LOCKS = Path("/proc/locks")
_GRACE_SECONDS = 15.0
_POLL_SECONDS = 0.1

Kind = Literal["orphan", "lock", "record", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that was left behind.

    Attributes:
        kind: See above.
        what: In words.
        pid: The process, where there is one.
        run: Flower's number, where it is a run.
        ended: Whether it is gone now.
    """

    kind: Kind
    what: str
    pid: int | None = None
    run: str | None = None
    ended: bool = False


def recover(folder: ServerFolder | PartyFolder, *, end: bool) -> tuple[Finding, ...]:
    """What a member's crash left behind; with ``end`` it is ended, and said to be or not."""
    orphans = _orphans(folder)
    locks = _locks(folder, {seen.pid for seen in orphans})
    left = {seen.pid for seen in orphans}
    if end:
        left = _end(orphans)
    findings = [
        Finding(
            kind="orphan",
            what=f"process {seen.pid} of session {seen.session}",
            pid=seen.pid,
            ended=seen.pid not in left,
        )
        for seen in orphans
    ]
    findings += [
        Finding(kind="lock", what=f"{path} is held by it", pid=pid, ended=pid not in left)
        for path, pid in locks
    ]
    for process in processes(folder):
        if not process.alive and not process.left(folder.root):
            if end:
                forget(folder, process.name)
            what = f"{process.name} was process {process.pid}, which has ended"
            findings.append(Finding(kind="record", what=what, pid=process.pid, ended=end))
    if isinstance(folder, ServerFolder):
        findings += _runs(folder, end=end)
    return tuple(findings)


def _orphans(folder: ServerFolder | PartyFolder) -> tuple[Seen, ...]:
    """Processes of the member that nobody looks after."""
    recorded = processes(folder)
    cared_for = {process.pid for process in recorded if process.alive}
    left = {
        seen.pid: seen
        for process in recorded
        if not process.alive
        for seen in process.left(folder.root)
    }
    for seen in sessions.everybody():
        if (
            seen.session not in cared_for
            and any(word.startswith(_PROGRAMS) for word in sessions.words_of(seen.pid))
            and sessions.home_of(seen.pid) == folder.root.resolve()
        ):
            left[seen.pid] = seen
    return tuple(left[pid] for pid in sorted(left))


def _end(orphans: tuple[Seen, ...]) -> set[int]:
    """Ask processes to end, then kill them; which ones are left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_SECONDS
        for seen in orphans:
            sessions.send(seen, number)
        while left := {seen.pid for seen in orphans if sessions.look_at(seen.pid) == seen}:
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            break
    return left


def _locks(folder: ServerFolder | PartyFolder, orphans: set[int]) -> list[tuple[Path, int]]:
    """Locks of the member's that orphans hold."""
    if isinstance(folder, ServerFolder):
        paths = [lock_of(directory) for directory in sorted(folder.runs.iterdir())]
    else:
        paths = [read_party(folder.policy).state / "lock"]
    holders = _holders()
    return [
        (path, pid)
        for path in paths
        if path.exists()
        for pid in sorted(holders.get(path.stat().st_ino, set()) & orphans)
    ]


def _holders() -> dict[int, set[int]]:
    """Who holds which lock, by the number of the locked file (``proc_locks(5)``)."""
    holders: dict[int, set[int]] = {}
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        words = line.split()
        if "->" not in words[1]:  # that one waits for it
            holders.setdefault(int(words[5].rpartition(":")[2]), set()).add(int(words[4]))
    return holders


def _runs(folder: ServerFolder, *, end: bool) -> list[Finding]:
    """Runs that nobody serves, and that the SuperLink has not given up."""
    from fedpriv.simulations.deploy.flower import control
    from fedpriv.simulations.deploy.members.membership import is_up

    if not is_up(folder):
        return []  # it gives them up by itself, when it is back
    worked_for = any(each.name == "worker" and each.alive for each in processes(folder))
    findings = []
    for directory in sorted(folder.runs.iterdir()):
        submitted = known_run(directory)
        if submitted is None or result_of(directory) is not None:
            continue
        state = control.state_of(folder, submitted.run)
        queued = state == "pending" and worked_for
        if server_of(directory) is None and state != "finished" and not queued:
            if end:
                control.end_run(folder, submitted.run)
            findings.append(
                Finding(
                    kind="run",
                    what=f"run {submitted.run} in {directory} is open, and nobody serves it",
                    run=submitted.run,
                    ended=end,
                )
            )
    return findings
