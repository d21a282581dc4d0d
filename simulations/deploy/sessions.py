"""Sessions of processes, read from ``/proc``: who belongs to one, its leader alive or not.

A process that `fedpriv deploy` starts leads a session; all that it starts in turn belongs to that
session for life, in whichever process group, and goes on when the leader is killed. The number of a
session is not given to another process while anybody is left in it (Linux, ``pid_namespaces(7)``
and ``alloc_pid``), so a session that is not empty is the recorded one unless it became empty in
between and a stranger got its number. Then a leader that lives has started at another time, and one
that is gone has left processes that did not start in this member's directory.

Signals go through a descriptor of the process: it is opened, the process is looked at again, then
the signal is sent, so that no later process of the same number gets it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_ENDED = "ZX"  # zombies, and what is nearly gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A process, as the system describes it.

    Attributes:
        pid: Its id.
        session: The id of its session.
        started: Clock ticks from the start of the system to its own.
    """

    pid: int
    session: int
    started: str


def look_at(pid: int) -> Seen | None:
    """A process that has not ended; None if there is none, or the system does not say."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    if state in _ENDED:
        return None
    return Seen(pid=pid, session=int(fields[2]), started=fields[18])


def everybody() -> tuple[Seen, ...]:
    """All processes that have not ended."""
    with suppress(OSError):
        pids = sorted(int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
        return tuple(seen for seen in map(look_at, pids) if seen is not None)
    return ()


def members(session: int, *, started: str, home: Path) -> tuple[Seen, ...]:
    """Who is left of a session that was recorded.

    Args:
        session: Its number.
        started: When its leader did.
        home: The working directory that it was started in.
    """
    leader, home = look_at(session), home.resolve()
    if leader is not None and leader.started != started:
        return ()
    return tuple(
        seen
        for seen in everybody()
        if seen.session == session
        and _not_before(seen.started, started)
        and (seen.pid == session or home_of(seen.pid) == home)
    )


def home_of(pid: int) -> Path | None:
    """The working directory of a process, if it may be known."""
    try:
        return (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return None


def words_of(pid: int) -> tuple[str, ...]:
    """The command line of a process, if it may be known."""
    try:
        data = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in data.split(b"\0") if word)


def send(seen: Seen, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still the one that was seen."""
    with suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(seen.pid)
        try:
            if look_at(seen.pid) == seen:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _not_before(started: str, leader: str) -> bool:
    try:
        return int(started) >= int(leader)
    except ValueError:
        return False
