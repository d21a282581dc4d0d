"""Replicas of an object that cannot serve two computations, such as a module."""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Replicas(Generic[T]):
    """Deep copies of an original, each used by one computation and then dropped.

    So nothing that a computation leaves in its copy reaches another, beside it or after it. The
    original is only ever copied and so stays unchanged.

    What `copy.deepcopy` does not copy, such as globals and attributes of a class, is shared.

    Attributes:
        original: To be read and copied; nobody may change it or compute with it.
    """

    def __init__(self, original: T) -> None:
        self.original = original

    @contextmanager
    def one(self) -> Iterator[T]:
        """A copy that nobody else uses."""
        yield deepcopy(self.original)
