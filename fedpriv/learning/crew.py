"""A crew of threads that share the work of the calling thread."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Thread, current_thread
from typing import TYPE_CHECKING, TypeVar

import torch

from fedpriv._validate import require_count
from fedpriv.learning.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Part = TypeVar("Part")
    Result = TypeVar("Result")

_LINUX = hasattr(os, "sched_getaffinity")
_LIBRARY = ctypes.CDLL(None) if _LINUX else None


class Crew:
    """Threads that share work: the calling one and ``size`` - 1 helpers, one PyTorch thread each.

    The caller works too instead of waiting, because a round of a small simulation takes no longer
    than waking a few threads. The helpers end with the crew. A part must not give work to its own
    crew.
    """

    def __init__(self, size: int) -> None:
        require_count(size=size)
        self.size = size
        self._gather()

    def each(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """Apply ``work`` to every part; results in order. The caller takes the first part.

        If a part fails, its error is raised once all parts have stopped, so that shared data may be
        used again.
        """
        first, *others = parts
        if not all(helper.is_alive() for helper in self._helpers):  # none follows into a fork
            self._gather()
        _keep_off_this_processor(self._helpers)
        # Helpers also change the default of new threads: the caller restores it when all are done.
        with one_thread():
            waiting = [self._pool.submit(_alone, work, part) for part in others]
            try:
                done = work(first)
            finally:
                wait(waiting)
        return [done, *(other.result() for other in waiting)]

    def _gather(self) -> None:
        self._helpers: list[Thread] = []
        # Helpers hold the list, not the crew, which would otherwise live as long as they do.
        self._pool = ThreadPoolExecutor(
            max(1, self.size - 1), initializer=_enlist, initargs=(self._helpers,)
        )


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if _LINUX else os.cpu_count() or 1


def keep_to_own_processors(index: int, count: int) -> None:
    """Keep this thread, and those it starts, apart from ``count`` - 1 processes like this one.

    Every process takes each ``count``-th processor, from its ``index`` on. Otherwise Linux wakes
    several at once on their waker's processor, where they take turns while another one idles. Where
    processors are too few for all, any may be used.
    """
    if not _LINUX:
        return
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) >= count:
        with suppress(OSError):  # not allowed, or a processor is gone: slower, no more
            os.sched_setaffinity(0, allowed[index::count])


def _enlist(helpers: list[Thread]) -> None:
    helpers.append(current_thread())


def _alone(work: Callable[[Part], Result], part: Part) -> Result:
    torch.set_num_threads(1)
    return work(part)


def _keep_off_this_processor(threads: list[Thread]) -> None:
    """Keep threads off the caller's processor, if there is another one.

    On a machine with few processors that is more than half busy, Linux wakes a thread on its
    waker's processor, where the two take turns while another processor idles.
    """
    if _LIBRARY is None or not threads:
        return
    others = os.sched_getaffinity(0) - {_LIBRARY.sched_getcpu()}
    if others:
        for number in [thread.native_id for thread in threads]:
            if number:  # 0 would mean the caller
                with suppress(OSError):  # not allowed, or the processor is gone: slower, no more
                    os.sched_setaffinity(number, others)
