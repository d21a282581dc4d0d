"""Log rotation of a member that stays in the foreground: its logs are cut before they fill a disk.

For containers and units of systemd, which see only what the member itself prints. Its processes
append to their logs, so that a log which is copied away and emptied goes on from its beginning; a
line that is written between the two is lost. Members in the background are rotated by the system:
``deployment/logrotate.conf``.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import Folder

MOST_BYTES = 10_000_000
KEPT = 4
_SECONDS = 30.0


def rotate(folder: Folder, *, most: int = MOST_BYTES, kept: int = KEPT) -> None:
    """Move logs of more than ``most`` bytes to NAME.log.1, earlier ones to .2, up to ``kept``."""
    for log in sorted(folder.processes.glob("*.log")):
        if log.stat().st_size <= most:
            continue
        for number in range(kept - 1, 0, -1):
            with suppress(FileNotFoundError):
                _numbered(log, number).replace(_numbered(log, number + 1))
        shutil.copy2(log, _numbered(log, 1))
        os.truncate(log, 0)


@contextmanager
def rotated(folder: Folder) -> Iterator[None]:
    """Look at the logs of a member every half minute, until the block ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SECONDS):
            with suppress(OSError):  # a full disk stops the rotation, and not the member
                rotate(folder)

    thread = threading.Thread(target=watch, name="log rotation", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _numbered(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
