"""Sparing logs: whoever makes a server complain again and again does not fill its disk.

Flower writes a line for every request that it refuses, and uvicorn one for every head that is none:
a member, or anybody who reaches the port, could have as many as requests fit the line. Here so many
complaints are written at once, and then one a second; the next line tells how many were left out.
A complaint is one line, and not a long one, whatever others put into it. What is no complaint is
written as it comes.
"""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import TYPE_CHECKING

from fedpriv.federation.exchange_report import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

LOGGERS = ("flwr", "uvicorn.error")
_AT_ONCE = 50
_A_SECOND = 1.0
_LONGEST = 1000  # characters


class Sparing(logging.Filter):
    """Lets warnings and errors through while there is room for them: a bucket of tokens."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = Lock()
        self._room, self._at = float(_AT_ONCE), clock()
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; it then says how many were not."""
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            now = self._clock()
            self._room = min(_AT_ONCE, self._room + (now - self._at) * _A_SECOND)
            self._at = now
            if self._room < 1:
                self._left_out += 1
                return False
            self._room -= 1
            left_out, self._left_out = self._left_out, 0
        told = one_line(" ".join(record.getMessage().split()))[:_LONGEST]
        record.msg = f"{told} ({left_out} lines before it were left out)" if left_out else told
        record.args = ()
        return True


def spare() -> None:
    """Have Flower and its server complain sparingly in this process."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(Sparing())
