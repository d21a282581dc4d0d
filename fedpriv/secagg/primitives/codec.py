"""Packed values: a compact, strict binary form for frozen messages and states.

A packed value is a version, a kind, and its fields in the order of its layout; numbers are
big-endian, vectors little-endian. Reading refuses everything that writing cannot produce: an
unknown version or kind, a field out of range, ids that do not increase, a missing byte, a byte too
many. A value is checked when it is made, so that the same rules hold in memory and on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from fedpriv.secagg.errors import MalformedMessage

if TYPE_CHECKING:
    from fedpriv.secagg.numbers.fixed_point import Ring

VERSION = 1
_HEAD_BYTES = 2  # version and kind
_COUNT_BYTES, _ID_BYTES = 4, 2
_RINGS: dict[int, np.dtype[np.unsignedinteger[Any]]] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}


class Reader:
    """Takes bytes from the front of a buffer, and refuses to run past its end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> memoryview:
        """The next ``count`` bytes."""
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise MalformedMessage("The message ends too early.")
        return memoryview(self._data)[start : self._at]

    def number(self, size: int) -> int:
        """The next ``size`` bytes as a number."""
        return int.from_bytes(self.take(size), "big")

    def close(self) -> None:
        """Refuse bytes left over."""
        if self._at != len(self._data):
            raise MalformedMessage("The message has bytes after its end.")


class Wire(Protocol):
    """How one kind of field is checked, written and read."""

    def checked(self, value: Any) -> Any:
        """The value in its immutable form; refuses what cannot be written."""

    def write(self, value: Any) -> bytes:
        """A checked value as bytes."""

    def read(self, reader: Reader) -> Any:
        """A value, not yet checked."""

    def width(self, size: float) -> float:
        """Bytes of what `write` returns for ``size`` parties, or so many bytes of content.

        ``size`` may be a mean; the width is then a mean, too.
        """


Layout = Mapping[str, Wire]
"""The fields that a class of packed values adds to those of its base, in the order of writing."""


@dataclass(frozen=True, slots=True)
class Number:
    """An unsigned integer of ``size`` bytes."""

    size: int

    def checked(self, value: int) -> int:
        """Refuse what does not fit."""
        if not 0 <= value < 1 << 8 * self.size:
            raise MalformedMessage(f"A number does not fit {self.size} bytes.")
        return value

    def write(self, value: int) -> bytes:
        """Big-endian."""
        return value.to_bytes(self.size, "big")

    def read(self, reader: Reader) -> int:
        """Big-endian."""
        return reader.number(self.size)

    def width(self, size: float) -> float:
        """The same for every number."""
        del size
        return self.size


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly ``size`` bytes."""

    size: int

    def checked(self, value: bytes) -> bytes:
        """Refuse another length."""
        if len(value) != self.size:
            raise MalformedMessage(f"A field of {self.size} bytes has {len(value)}.")
        return bytes(value)

    def write(self, value: bytes) -> bytes:
        """As it is."""
        return value

    def read(self, reader: Reader) -> bytes:
        """As it is."""
        return bytes(reader.take(self.size))

    def width(self, size: float) -> float:
        """The same for every value."""
        del size
        return self.size


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes of any length up to ``most``: the count, then the bytes."""

    most: int

    def checked(self, value: bytes) -> bytes:
        """Refuse too many."""
        if len(value) > self.most:
            raise MalformedMessage(f"A field of at most {self.most} bytes has {len(value)}.")
        return bytes(value)

    def write(self, value: bytes) -> bytes:
        """The count, then the bytes."""
        return len(value).to_bytes(_COUNT_BYTES, "big") + value

    def read(self, reader: Reader) -> bytes:
        """The count, then the bytes."""
        return bytes(reader.take(reader.number(_COUNT_BYTES)))

    def width(self, size: float) -> float:
        """The count, then the bytes."""
        return _COUNT_BYTES + size


@dataclass(frozen=True, slots=True)
class Ids:
    """Party numbers below 65536, strictly increasing: a set with one written form."""

    def checked(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Refuse repeated, unordered or impossible numbers."""
        ids = tuple(value)
        if list(ids) != sorted(set(ids)):
            raise MalformedMessage("Party numbers must increase: one is repeated or out of order.")
        if ids and not 0 <= ids[0] <= ids[-1] < 1 << 16:
            raise MalformedMessage("A party number does not fit two bytes.")
        return ids

    def write(self, value: tuple[int, ...]) -> bytes:
        """The count, then the numbers."""
        return len(value).to_bytes(_COUNT_BYTES, "big") + np.asarray(value, dtype=">u2").tobytes()

    def read(self, reader: Reader) -> tuple[int, ...]:
        """The count, then the numbers."""
        count = reader.number(_COUNT_BYTES)
        return tuple(np.frombuffer(reader.take(_ID_BYTES * count), dtype=">u2").tolist())

    def width(self, size: float) -> float:
        """The count, then the numbers."""
        return _COUNT_BYTES + _ID_BYTES * size


@dataclass(frozen=True, slots=True)
class Table:
    """Exactly ``size`` bytes for each of a set of parties."""

    size: int

    def checked(self, value: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """A read-only copy, ordered by party; refuses other lengths."""
        ids = Ids().checked(tuple(sorted(value)))
        rows = {party: bytes(value[party]) for party in ids}
        for other in set(map(len, rows.values())) - {self.size}:
            raise MalformedMessage(f"A field of {self.size} bytes has {other}.")
        return MappingProxyType(rows)

    def write(self, value: Mapping[int, bytes]) -> bytes:
        """The parties, then their rows."""
        return Ids().write(tuple(value)) + b"".join(value.values())

    def read(self, reader: Reader) -> dict[int, bytes]:
        """The parties, then their rows; the order is checked here, before it is lost."""
        ids = Ids().checked(Ids().read(reader))
        rows = bytes(reader.take(self.size * len(ids)))
        return {party: rows[i * self.size : (i + 1) * self.size] for i, party in enumerate(ids)}

    def width(self, size: float) -> float:
        """The parties, then their rows."""
        return Ids().width(size) + self.size * size


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of ring elements: element size in bytes, count, then the elements."""

    def checked(self, value: Ring) -> Ring:
        """Refuse what is not a one-dimensional array of uint32 or uint64; make it read-only."""
        if value.ndim != 1 or value.dtype not in _RINGS.values():
            raise MalformedMessage("A vector must be a one-dimensional array of uint32 or uint64.")
        view = value.view()
        view.flags.writeable = False
        return view

    def write(self, value: Ring) -> bytes:
        """Little-endian elements, as in memory."""
        head = value.itemsize.to_bytes(1, "big") + value.size.to_bytes(_COUNT_BYTES, "big")
        return head + value.tobytes()

    def read(self, reader: Reader) -> Ring:
        """A copy, aligned for arithmetic."""
        dtype = _RINGS.get(reader.number(1))
        if dtype is None:
            raise MalformedMessage("A vector's elements must have 4 or 8 bytes.")
        return np.frombuffer(
            reader.take(reader.number(_COUNT_BYTES) * dtype.itemsize), dtype=dtype
        ).copy()

    def width(self, size: float) -> float:
        """The head, then so many bytes of elements."""
        return 1 + _COUNT_BYTES + size


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A frozen value with a binary form. Subclasses name their ``kind`` and ``layout``."""

    kind: ClassVar[int]
    layout: ClassVar[Layout]

    def __post_init__(self) -> None:
        for name, wire in self.wires().items():
            object.__setattr__(self, name, wire.checked(getattr(self, name)))

    @classmethod
    def wires(cls) -> dict[str, Wire]:
        """Every field with its form, in the order of writing."""
        own = [base.__dict__.get("layout", {}) for base in reversed(cls.__mro__)]
        return {name: wire for layout in own for name, wire in layout.items()}

    def to_bytes(self) -> bytes:
        """The value as bytes; `from_bytes` of its class inverts it."""
        parts = [wire.write(getattr(self, name)) for name, wire in self.wires().items()]
        return b"".join([bytes([VERSION, self.kind]), *parts])

    @classmethod
    def width(cls, **sizes: float) -> float:
        """Bytes of a value whose fields have these sizes, as `Wire.width` takes them."""
        wires = cls.wires()
        if unknown := sizes.keys() - wires.keys():
            raise TypeError(f"{cls.__name__} has no fields {sorted(unknown)}.")
        return _HEAD_BYTES + sum(wire.width(sizes.get(name, 0)) for name, wire in wires.items())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a value of this class.

        Raises:
            MalformedMessage: If ``data`` is anything that `to_bytes` does not write.
        """
        reader = Reader(data)
        version, kind = reader.number(1), reader.number(1)
        if (version, kind) != (VERSION, cls.kind):
            raise MalformedMessage(
                f"Expected version {VERSION} of {cls.__name__} (kind {cls.kind}), "
                f"got version {version} of kind {kind}."
            )
        values = {name: wire.read(reader) for name, wire in cls.wires().items()}
        reader.close()
        return cls(**values)
