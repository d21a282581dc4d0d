"""Threads that share a piece of work with the one that asks for it."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from threading import get_native_id
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
    """The calling thread and ``size`` - 1 helpers, on each of which PyTorch uses one thread.

    The caller works too, instead of waiting: a round of a small simulation takes as long as waking
    a few threads.
    """

    def __init__(self, size: int) -> None:
        require_count(size=size)
        self.size = size
        self._helpers: list[int] = []
        self._pool = ThreadPoolExecutor(max(1, size - 1), initializer=self._enlist)

    def each(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """What ``work`` makes of every part, in their order. The caller takes the first."""
        first, *others = parts
        _keep_off_this_processor(self._helpers)
        waiting = [self._pool.submit(work, part) for part in others]
        with one_thread():
            done = work(first)
        return [done, *(other.result() for other in waiting)]

    def _enlist(self) -> None:
        torch.set_num_threads(1)
        self._helpers.append(get_native_id())


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if _LINUX else os.cpu_count() or 1


def _keep_off_this_processor(threads: list[int]) -> None:
    """Let threads run anywhere but on the caller's processor, where there is another one.

    On a machine with few processors that is more than half busy, Linux wakes a thread where its
    waker runs, in turns with it, while another processor idles.
    """
    if _LIBRARY is None or not threads:
        return
    others = os.sched_getaffinity(0) - {_LIBRARY.sched_getcpu()}
    if others:
        for thread in threads:
            os.sched_setaffinity(thread, others)
