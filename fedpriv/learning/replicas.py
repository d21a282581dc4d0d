"""Replicas of an object that cannot serve two computations at once, such as a module."""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Replicas(Generic[T]):
    """Deep copies of an original, each used by one computation at a time.

    The original is only ever copied and so stays unchanged. Copies are made on demand and reused:
    there are as many as computations have ever run at the same time. A copy whose computation
    failed half-way may be in any state, and is dropped.

    What `copy.deepcopy` does not copy, such as globals and attributes of a class, is shared.

    Attributes:
        original: To be read and copied; nobody may change it or compute with it.
    """

    def __init__(self, original: T) -> None:
        self.original = original
        self._idle: list[T] = []
        self._copying = Lock()

    def __reduce__(self) -> tuple[type[Replicas[T]], tuple[T]]:
        """Copied and pickled as its original: idle copies and a lock have no meaning elsewhere."""
        return type(self), (self.original,)

    @contextmanager
    def one(self) -> Iterator[T]:
        """A copy that nobody else uses until the block ends."""
        try:
            mine = self._idle.pop()  # atomic, as is append
        except IndexError:
            with self._copying:
                mine = deepcopy(self.original)
        yield mine
        self._idle.append(mine)
