"""Wire messages of server and parties: those of the protocol, and what goes beside them, as bytes.

A `Request` goes to one party and has one `Reply`. Both carry messages in the strict binary form of
`fedpriv.secagg.primitives.codec`: reading refuses everything that writing cannot produce. One
request can carry several steps, so the key set-up of the next round needs no separate exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedpriv.federation.protocol.errands import ERRANDS
from fedpriv.secagg import messages as protocol
from fedpriv.secagg.errors import MalformedMessage
from fedpriv.secagg.primitives.codec import Blob, Ids, Layout, Number, Reader, Vector
from fedpriv.secagg.primitives.kinds import Kind
from fedpriv.secagg.round import Bound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.secagg.numbers.fixed_point import Ring

MOST_PLAN = 1 << 20
"""Bytes of a plan: some eight thousand different releases."""
_MOST_MESSAGES = 64
_REFUSAL_BYTES = 500
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Join(Bound):
    """Server to node, once: ask which party it is. ``round`` and ``party`` are 0.

    Attributes:
        plan: All releases of the run, where they are fixed in advance; else empty. See
            `fedpriv.federation.deployed.stated_plan`.
    """

    kind: ClassVar[int] = Kind.JOIN
    layout: ClassVar[Layout] = {"plan": Blob(MOST_PLAN)}
    plan: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Joined(Bound):
    """Party to server: its number, its public size, and the protection that it requires.

    Attributes:
        size: n_j; public.
        level: The index of its protection in `fedpriv.federation.protocol.level.LEVELS`.
    """

    kind: ClassVar[int] = Kind.JOINED
    layout: ClassVar[Layout] = {"size": Number(8), "level": Number(1)}
    size: int
    level: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Announce(Bound):
    """Server to party: a round, who is invited, and how many answers must be in its sum."""

    kind: ClassVar[int] = Kind.ANNOUNCE
    layout: ClassVar[Layout] = {"cohort": Ids(), "minimum": Number(4)}
    cohort: tuple[int, ...]
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ask(Bound):
    """Server to party, without secure aggregation: answer the query in the clear."""

    kind: ClassVar[int] = Kind.ASK


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ClearAnswer(Bound):
    """Party to server, without secure aggregation: the answer itself."""

    kind: ClassVar[int] = Kind.CLEAR_ANSWER
    layout: ClassVar[Layout] = {"vector": Vector()}
    vector: Ring


_OWN: tuple[type[Bound], ...] = (Join, Joined, Announce, Ask, ClearAnswer)
_KINDS: dict[int, type[Bound]] = {message.kind: message for message in (*_OWN, *ERRANDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a party is asked to do, in this order.

    Attributes:
        messages: One or more steps.
        query: The encoded query to answer; empty if there is none.
    """

    messages: tuple[Bound, ...]
    query: bytes = b""

    @property
    def run(self) -> bytes:
        """The one run that the request is of."""
        runs = {message.run for message in self.messages}
        if len(runs) != 1:
            raise MalformedMessage("The request asks for nothing, or is of several runs.")
        return runs.pop()

    def to_bytes(self) -> bytes:
        """The one encoding of the request."""
        return pack([self.query, *(message.to_bytes() for message in self.messages)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Request:
        """Read back what `to_bytes` wrote; `MalformedMessage` for anything else."""
        query, messages = _unpacked(data)
        return cls(query=query, messages=messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a party did.

    Attributes:
        messages: The results of the steps that it took.
        refusal: Why it did not take the others; rules and party numbers, nothing secret.
    """

    messages: tuple[Bound, ...]
    refusal: str = ""

    def to_bytes(self) -> bytes:
        """The one encoding of the reply."""
        refusal = self.refusal.encode()[:_REFUSAL_BYTES]
        return pack([refusal, *(message.to_bytes() for message in self.messages)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Reply:
        """Read back what `to_bytes` wrote; `MalformedMessage` for anything else."""
        refusal, messages = _unpacked(data)
        if len(refusal) > _REFUSAL_BYTES:
            raise MalformedMessage("A refusal is too long.")
        return cls(refusal=refusal.decode(errors="replace"), messages=messages)


def pack(parts: Iterable[bytes]) -> bytes:
    """Byte strings as one, each prefixed by its length."""
    return b"".join(
        piece for part in parts for piece in (len(part).to_bytes(_LENGTH_BYTES, "big"), part)
    )


def packed_width(first: float, *messages: float) -> float:
    """Bytes of a `Request` or a `Reply`, from those of its first part and of its messages."""
    return sum(_LENGTH_BYTES + part for part in (first, *messages))


def unpack(data: bytes) -> list[bytes]:
    """The inverse of `pack`; `MalformedMessage` for anything that it cannot have written."""
    reader, parts, left = Reader(data), [], len(data)
    while left:
        size = reader.number(_LENGTH_BYTES)
        parts.append(bytes(reader.take(size)))
        left -= _LENGTH_BYTES + size
    return parts


def read(data: bytes) -> Bound:
    """One message, of the protocol or of the kinds above."""
    kind = _KINDS.get(data[1]) if len(data) > 1 else None
    return protocol.read(data) if kind is None else kind.from_bytes(data)


def _unpacked(data: bytes) -> tuple[bytes, tuple[Bound, ...]]:
    parts = unpack(data)
    if not 1 <= len(parts) <= _MOST_MESSAGES:
        raise MalformedMessage("An envelope has a first part and a few messages.")
    return parts[0], tuple(read(part) for part in parts[1:])
