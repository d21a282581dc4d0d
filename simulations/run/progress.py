"""Progress of a run or a comparison, on the disk, for whoever watches it from another process.

One small file, replaced at most once a second while the work goes on, and gone at its end. Of a run
it lies in `private/`: it is no part of an outcome.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Self

from fedpriv.simulations.deploy.sessions import look_at
from fedpriv.simulations.run.files import PRIVATE, private, read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FILE = "progress.json"
_PAUSE = 1.0  # seconds between two writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far some work has come.

    Attributes:
        unit: What is counted: "rounds" of a run, "runs" of a comparison.
        done: How many of them are done.
        total: Of how many.
        begun: How many were done when this process took the work up.
        since: When that was, in seconds since 1970.
        updated: When this was written.
        pid: The process.
        process: When the system says that it started: a later one with the same id is another.
        facts: What is known by now: ``epsilon`` spent, ``accuracy``, ``loss``.
    """

    unit: str
    done: int
    total: int
    begun: int
    since: float
    updated: float
    pid: int
    process: str
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether the process that does the work is still there."""
        seen = look_at(self.pid)
        return seen is not None and seen.started == self.process

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace so far; None before anything is done."""
        done = self.done - self.begun
        if done <= 0:
            return None
        return (self.updated - self.since) / done * max(0, self.total - self.done)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The progress of the work in a directory; None if none goes on there, or did."""
        path = directory / PRIVATE / _FILE
        try:
            return cls(**read_json(path))
        except (ValueError, TypeError):  # not there, or of another version
            return None


class ProgressFile:
    """Writes the progress of the work in a directory.

    Args:
        directory: Of the run or comparison.
        unit: See `Progress`.
        done: How many are done already.
        total: Of how many.
    """

    def __init__(self, directory: Path, *, unit: str, done: int, total: int) -> None:
        self._directory = directory
        seen = look_at(os.getpid())
        self._start = Progress(
            unit=unit,
            done=done,
            total=total,
            begun=done,
            since=time(),
            updated=time(),
            pid=os.getpid(),
            process="" if seen is None else seen.started,
        )
        self._due = monotonic()
        self.note(done)

    def note(
        self, done: int, *, total: int | None = None, now: bool = False, **facts: float | None
    ) -> None:
        """So many are done; written, ``now`` or unless it was a moment ago."""
        if monotonic() < self._due and not now:
            return
        values = asdict(self._start) | {"done": done, "updated": time()}
        values["facts"] = {name: value for name, value in facts.items() if value is not None}
        if total is not None:
            values["total"] = max(total, done)
        write_json(private(self._directory) / _FILE, values)
        self._due = monotonic() + _PAUSE


def forget_progress(directory: Path) -> None:
    """Remove the file of work that is finished; its folder, too, if nothing else is in it."""
    (directory / PRIVATE / _FILE).unlink(missing_ok=True)
    with suppress(OSError):
        (directory / PRIVATE).rmdir()
