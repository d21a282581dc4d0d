"""Forks of a worker, one for each task: none outlives its worker, and none its deadline.

A fork is the leader of a process group of its own. At its deadline the whole group is killed: what
the task had to remember was on the disk before it was used, so that a repeat finds it. The kernel
kills a fork whose worker has died, however it died (Linux; elsewhere a worker that is killed with
SIGKILL may leave one behind, which `fedpriv deploy stop` finds).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    Tell = Callable[["Note"], None]

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 5.0
_BEAT_SECONDS = 1.0
_REAP_SECONDS = 0.01
_LONGEST_NOTE = 4096  # a pipe takes as much at once, or nothing

Outcome = Literal["done", "failed", "overdue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a fork reports to its worker about its task, once it knows.

    Attributes:
        run: The run that the task belongs to, in Flower's words.
        step: What is done.
        seconds: How long it may take from now; None for as long as it takes.
    """

    run: str
    step: str
    seconds: float | None = None


def in_a_fork(
    task: Callable[[Tell], None],
    *,
    seconds: float | None,
    on_beat: Callable[[Note | None, float | None], None],
) -> Outcome:
    """Run a task in a copy of this process, and wait for its end or its deadline.

    Args:
        task: Given a function by which it tells what it is doing.
        seconds: How long it may take before it has told anything; None for as long as it takes.
        on_beat: Called every second with what was told, and the seconds that are left.

    Returns:
        "done", or "failed" if the copy was ended by something else, or "overdue".
    """
    ear, mouth = os.pipe()
    worker, child = os.getpid(), os.fork()
    if child == 0:
        os.close(ear)
        _be_the_fork(task, mouth, worker)
    os.close(mouth)
    with suppress(OSError):  # the fork does the same: whoever is first
        os.setpgid(child, child)
    try:
        return _awaited(child, ear, seconds, on_beat)
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGTERM)
        _ended(child, within=_GRACE_SECONDS)
        raise
    finally:
        os.close(ear)
        _bury(child)


def _be_the_fork(task: Callable[[Tell], None], mouth: int, worker: int) -> None:
    """Run the task; never return."""
    status = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        _die_with(worker)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        task(lambda note: _tell(mouth, note))
        status = 0
    except BaseException:  # the copy must never go on as the worker
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _die_with(worker: int) -> None:
    """Have the kernel kill this process when its worker ends; end now if it has ended before."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker:
        os._exit(1)


def _tell(mouth: int, note: Note) -> None:
    line = json.dumps(asdict(note)).encode() + b"\n"
    if len(line) <= _LONGEST_NOTE:
        os.write(mouth, line)


def _awaited(
    child: int,
    ear: int,
    seconds: float | None,
    on_beat: Callable[[Note | None, float | None], None],
) -> Outcome:
    """Wait for a fork, and hear what it tells."""
    deadline = None if seconds is None else time.monotonic() + seconds
    note, heard = None, b""
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        on_beat(note, left)
        if left is not None and left <= 0:
            return "overdue"
        pause = _BEAT_SECONDS if left is None else min(_BEAT_SECONDS, left)
        data = b"" if not select.select([ear], [], [], pause)[0] else os.read(ear, _LONGEST_NOTE)
        if not data:  # it has ended, or goes on; whoever it started may hold the pipe, too
            if _ended(child, within=_REAP_SECONDS):
                return "done" if _exit_status(child) == 0 else "failed"
            continue
        heard += data
        *lines, heard = heard.split(b"\n")
        for line in lines:
            note = Note(**json.loads(line))
            deadline = None if note.seconds is None else time.monotonic() + note.seconds


def _ended(child: int, *, within: float) -> bool:
    """Whether a fork has ended in time; it stays for `_bury`, so that its id stays its own."""
    deadline = time.monotonic() + within
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_REAP_SECONDS)
    return True


def _exit_status(child: int) -> int:
    """The status of a fork that has ended; not 0 if a signal ended it."""
    result = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    if result is None or result.si_code != os.CLD_EXITED:
        return 1
    return result.si_status


def _bury(child: int) -> None:
    """Kill what is left of a fork's group, and reap the fork."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
