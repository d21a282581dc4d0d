"""Signals: what Ctrl-C and SIGTERM do to long work, where they can be heard."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether the user asked to stop: the current round is finished first, a second Ctrl-C is not.

    Only a round boundary can be resumed from to the bit. Signals are heard in the main thread only.
    """
    if current_thread() is not main_thread():
        yield lambda: False
        return
    asked = False

    def ask(number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, where signals can be heard: in the main thread."""
    if current_thread() is not main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
