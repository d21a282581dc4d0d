"""Lock of a run: one ServerApp serves it at a time, and holds the lock for life.

Two of them would ask the parties for two sums of one round. The system gives the lock up when the
process that holds it ends, however it ends: a lock is never stale, and what is held has a holder.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedpriv._durable import OWNER_ONLY
from fedpriv.simulations.run.files import PRIVATE, private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def lock_of(directory: Path) -> Path:
    """The lock of the run of a directory."""
    return directory / PRIVATE / "lock"


@contextmanager
def served(directory: Path) -> Iterator[None]:
    """Be the only one to serve the run of a directory.

    Raises:
        ValueError: Somebody does so already.
    """
    private(directory)
    descriptor = os.open(lock_of(directory), os.O_RDWR | os.O_CREAT, OWNER_ONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"the run in {str(directory)!r} is served by process {_read(descriptor)} already: "
                "follow it with --attach, or end it with `fedpriv deploy stop`."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def server_of(directory: Path) -> int | None:
    """The process that serves the run of a directory; None if nobody does."""
    try:
        descriptor = os.open(lock_of(directory), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


def _read(descriptor: int) -> int:
    """Who wrote itself into the lock; 0 in the moment before it does."""
    return int(os.pread(descriptor, 32, 0) or b"0")
