"""Seals: how the server signs its requests to nodes, and verifies which party sent a reply.

A deployment has a `ServerSeal`. The nodes of a simulation all belong to one process or cluster,
which is trusted with all keys: it has `NoSeal`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Protocol

from fedpriv.federation.protocol.instruction import (
    Instruction,
    milliseconds,
    opened_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was sent.

    Attributes:
        node: The node it was sent to.
        identity: The identity that must sign the reply; empty where nothing is signed.
        digest: What the reply must be bound to.
    """

    node: int
    identity: bytes = b""
    digest: bytes = b""


class Seal(Protocol):
    """Wraps requests and unwraps replies."""

    def seats(self) -> Mapping[int, int] | None:
        """The current party of each node; None if nodes state it themselves."""
        ...

    def sealed(self, node: int, body: bytes, *, run: bytes, seconds: float) -> tuple[Asked, bytes]:
        """A request of ``run`` as it is sent, which expires after so many ``seconds``."""
        ...

    def opened(self, asked: Asked, data: bytes) -> bytes:
        """The body of a reply; `BadSignature` if it is not from the party that was asked."""
        ...


class NoSeal:
    """Nothing is signed, and nodes state which party they are: for simulations."""

    def seats(self) -> None:
        """Nodes state it themselves."""

    def sealed(self, node: int, body: bytes, *, run: bytes, seconds: float) -> tuple[Asked, bytes]:
        """The request as it is."""
        del run, seconds
        return Asked(node=node), body

    def opened(self, asked: Asked, data: bytes) -> bytes:
        """The reply as it is."""
        del asked
        return data


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerSeal:
    """The server's signature on every request, and the party's on every reply.

    Attributes:
        key: The server's identity.
        roster: The digest of the roster.
        identities: Every party's identity.
        flower: Flower's number of the run.
        config: The text of the experiment, as the parties receive it.
        find_seats: Which party each registered node is, looked up afresh: a node that is registered
            again has another number.
        clock: Seconds since 1970.
    """

    key: Ed25519PrivateKey = field(repr=False)
    roster: bytes
    identities: tuple[bytes, ...]
    flower: int
    config: str
    find_seats: Callable[[], Mapping[int, int]]
    clock: Callable[[], float] = time.time
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False, repr=False)
    _seated: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def seats(self) -> Mapping[int, int]:
        """Look up again who is where: from registered keys and the roster, never from a claim."""
        found = self.find_seats()
        self._seated.update(found)  # a node never becomes another party
        return found

    def sealed(self, node: int, body: bytes, *, run: bytes, seconds: float) -> tuple[Asked, bytes]:
        """Sign a request for the party whose seat the node has."""
        party = self._seated[node]
        instruction = Instruction(
            roster=self.roster,
            flower=self.flower,
            node=node,
            party=party,
            config=sha256(self.config.encode()).digest(),
            run=run,
            number=next(self._numbers),
            until=milliseconds(self.clock() + seconds),
            body=sha256(body).digest(),
        )
        asked = Asked(node=node, identity=self.identities[party], digest=instruction.digest)
        return asked, instruction.signed(body, self.key)

    def opened(self, asked: Asked, data: bytes) -> bytes:
        """The body of a reply that the party signed for exactly this instruction."""
        return opened_reply(data, to=asked.digest, party=asked.identity)
