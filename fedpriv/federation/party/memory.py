"""Memory of a party between two messages of the protocol, and the store that keeps it.

A deployed ClientApp is a fresh process for every message, so the memory has a binary form. It holds
secrets: it stays where the records are, and is erased as soon as possible.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from fedpriv.federation.party.answered import Answers, Given, LatestAnswers
from fedpriv.federation.protocol.wire import Announce, pack, unpack
from fedpriv.secagg.errors import MalformedMessage, OutOfOrder, WrongRound
from fedpriv.secagg.party_state import (
    Advertised,
    Answered,
    Confirmed,
    Enrolled,
    Revealed,
    Shared,
)
from fedpriv.secagg.primitives.keys import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from fedpriv.secagg.party_state import PartyState

_STATES: dict[int, type[PartyState]] = {
    state.kind: state for state in (Enrolled, Advertised, Shared, Answered, Confirmed, Revealed)
}
_ROUNDS = 2  # the current one, and the next one, whose keys are being set up
_REPLIES = 3  # the exchanges of a round


def _channel() -> bytes:
    return os.urandom(KEY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A party's place in a run. A new value replaces the old one before a reply leaves.

    Attributes:
        run: The 32 bytes that name the run; empty before it is joined.
        channel: The party's X25519 key for this run. **Secret.**
        terms: SHA-256 of the terms that it joined under, where these are binding; else empty.
        name: The run's name in queries; empty before the first query.
        plan: The plan that it joined, where one was stated; else empty.
        rounds: The latest rounds: the announcement and the party's state in each.
        replies: The latest replies, by the digest of the request. A repeated request gets the same
            bytes: two answers under the same masks would reveal their difference.
    """

    run: bytes = b""
    channel: bytes = field(default_factory=_channel, repr=False)
    terms: bytes = field(default=b"", repr=False)
    name: str = field(default="", repr=False)
    plan: bytes = field(default=b"", repr=False)
    rounds: Mapping[int, tuple[Announce, PartyState]] = field(default_factory=dict, repr=False)
    replies: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)

    def state(self, number: int) -> tuple[Announce, PartyState]:
        """The party's state in a round that it joined."""
        if number not in self.rounds:
            raise OutOfOrder(f"Round {number} was not joined, or is over.")
        return self.rounds[number]

    def last(self, party: int) -> PartyState:
        """The state of the latest round joined; the next round must be later."""
        if not self.rounds:
            return Enrolled(run=self.run, round=0, party=party)
        return self.rounds[max(self.rounds)][1]

    def moved(self, announced: Announce, state: PartyState) -> Memory:
        """After a step of a round; once it has answered there, earlier rounds are over."""
        rounds = {**self.rounds, announced.round: (announced, state)}
        over = announced.round if isinstance(state, Answered) else 0
        kept = [number for number in sorted(rounds) if number >= over][-_ROUNDS:]
        return replace(self, rounds=MappingProxyType({number: rounds[number] for number in kept}))

    def replied(self, digest: bytes, reply: bytes) -> Memory:
        """After a reply."""
        replies = [*self.replies.items(), (digest, reply)][-_REPLIES:]
        return replace(self, replies=MappingProxyType(dict(replies)))

    def to_bytes(self) -> bytes:
        """The memory as bytes; `from_bytes` inverts it."""
        rounds = [part.to_bytes() for pair in self.rounds.values() for part in pair]
        replies = [part for pair in self.replies.items() for part in pair]
        name = self.name.encode()
        return pack(
            [self.run, self.channel, self.terms, name, pack(rounds), pack(replies), self.plan]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Memory:
        """Read back what `to_bytes` wrote; `MalformedMessage` for anything else."""
        parts = unpack(data)
        if len(parts) == 6:
            parts.append(b"")  # a file from before plans existed
        if len(parts) != 7:
            raise MalformedMessage("A party's memory has seven parts.")
        run, channel, terms, name, rounds, replies, plan = parts
        pairs = [
            (Announce.from_bytes(announced), _read_state(state))
            for announced, state in _pairs(unpack(rounds))
        ]
        return cls(
            run=run,
            channel=channel,
            terms=terms,
            name=name.decode(),
            plan=plan,
            rounds=MappingProxyType(
                {announced.round: (announced, state) for announced, state in pairs}
            ),
            replies=MappingProxyType(dict(_pairs(unpack(replies)))),
        )


class Store(Answers, Protocol):
    """A party's persistent state: its places in runs, and its answers."""

    def held(self) -> AbstractContextManager[None]:
        """Lock the store: one message is handled at a time, from start to end."""
        ...

    def memory(self, run: bytes) -> Memory:
        """The place in a run, or a new one; `WrongRound` if the party may not join it."""
        ...

    def keep(self, memory: Memory) -> None:
        """Replace the place in the run of ``memory``."""
        ...


class MemoryStore(LatestAnswers):
    """`Store` in memory, for one run of a simulation: no other run is joined."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else is there."""
        yield

    def memory(self, run: bytes) -> Memory:
        """The place in the one run."""
        if self._memory.run not in (b"", run):
            raise WrongRound("The message is of another run than the one that was joined.")
        return self._memory

    def keep(self, memory: Memory) -> None:
        """Replace it."""
        self._memory = memory

    def to_bytes(self) -> bytes:
        """The whole store as bytes; `read` inverts it."""
        answers = [
            part
            for name, given in self._given.items()
            for part in (name.encode(), given.to_bytes())
        ]
        return pack([self._memory.to_bytes(), self.remembered, *answers])

    def read(self, data: bytes) -> None:
        """Take over what `to_bytes` wrote; `MalformedMessage` for anything else."""
        memory, self.remembered, *answers = unpack(data)
        self._memory = Memory.from_bytes(memory)
        self._given = {name.decode(): Given.from_bytes(given) for name, given in _pairs(answers)}


def _pairs(parts: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(parts) % 2:
        raise MalformedMessage("A table has a value for each key.")
    return list(zip(parts[::2], parts[1::2], strict=True))


def _read_state(data: bytes) -> PartyState:
    kind = _STATES.get(data[1]) if len(data) > 1 else None
    if kind is None:
        raise MalformedMessage("These bytes are no state of a party.")
    return kind.from_bytes(data)
