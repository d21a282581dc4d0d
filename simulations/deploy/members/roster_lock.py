"""Lock of the roster at the coordinator: one command at a time changes it, or begins a run with it.

Two commands at once would each make the next epoch from the same one: two rosters of one number, of
which parties accept the one that they are shown first, and the change of the other is lost. The
system gives the lock up when the process that holds it ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedpriv._durable import OWNER_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.folders import ServerFolder

_LOCK = ".roster.lock"


@contextmanager
def roster_held(folder: ServerFolder) -> Iterator[None]:
    """Keep all other commands from the roster, and wait until they are done with it."""
    descriptor = os.open(folder.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, OWNER_ONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
