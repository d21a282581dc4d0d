"""Heartbeat of a process: a small file that says what it is doing, replaced every few seconds.

A worker's says which task it has. A SuperNode's says when it last heard its server.

Not durable on purpose: it is about processes that live, and a worker must not wait for a disk.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import Folder

SECONDS = 5.0
"""Between two beats while nothing changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a process was doing when it was last heard.

    Attributes:
        pid: Its process.
        time: When that was, in seconds since 1970, as all times here.
        run: The run of its task; empty if it has none.
        step: What the task does.
        since: Since when it has been doing that, or nothing.
        deadline: When it will be ended; None for never.
    """

    pid: int = field(default_factory=os.getpid)
    time: float = field(default_factory=time.time)
    run: str = ""
    step: str = ""
    since: float | None = None
    deadline: float | None = None


@dataclass(kw_only=True)
class Heart:
    """Writes beats: at once when something has changed, and else every few seconds.

    Attributes:
        path: Where; None for nowhere.
    """

    path: Path | None
    _last: Beat | None = field(default=None, init=False)

    def beat(self, beat: Beat) -> None:
        """Say what is being done. A disk that is full stops nobody."""
        last = self._last
        if self.path is None or (
            last is not None and beat.time - last.time < SECONDS and _doing(beat) == _doing(last)
        ):
            return
        self._last = beat
        replace_lightly(self.path, asdict(beat))


def replace_lightly(path: Path, values: Mapping[str, Any]) -> None:
    """Replace a file of JSON whole, but not durably; where it cannot be, do without."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        temporary.write_text(json.dumps(values))
        temporary.replace(path)


def heartbeat_file(folder: Folder, name: str = "worker") -> Path:
    """Where a process of a member writes its heartbeat."""
    return folder.processes / f"{name}.beat"


def last_beat(folder: Folder, name: str = "worker") -> Beat | None:
    """The last heartbeat of a member's process, if there is one."""
    try:
        return Beat(**json.loads(heartbeat_file(folder, name).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _doing(beat: Beat) -> Beat:
    """A beat but for its moment; deadlines are computed anew each time, and differ by nothing."""
    deadline = None if beat.deadline is None else round(beat.deadline)
    return replace(beat, time=0.0, deadline=deadline)
