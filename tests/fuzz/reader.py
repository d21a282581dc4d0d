"""A reader of what others wrote: what it may raise, and what it reads without a word."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One way in.

    Attributes:
        read: Reads bytes; a folder is its own.
        errors: All that it may raise.
        seeds: Bytes that it reads.
        write: Bytes of values, for documents; None for what has no values.
        values: Values that it reads.
    """

    read: Callable[[bytes, Path], object]
    errors: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...] = ()
    write: Callable[[Any], bytes] | None = None
    values: tuple[Any, ...] = field(default=())

    def attempt(self, data: bytes, folder: Path) -> None:
        """Read bytes, whatever they are; any error but those is a finding."""
        with suppress(*self.errors):
            self.read(data, folder)

    def written(self, values: Any) -> bytes | None:
        """Values as bytes; None where there is no way to write them."""
        if self.write is None:
            return None
        try:
            return self.write(values)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            return None


def from_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of a file that has the bytes."""

    def reader(data: bytes, folder: Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return reader
