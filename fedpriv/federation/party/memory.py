"""What a party remembers of a run between two messages, and no longer than it must.

A deployed ClientApp is a fresh process for every message, so all of it has a binary form. It holds
secrets: it stays where the records are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from fedpriv.federation.protocol.wire import Announce, pack, unpack
from fedpriv.secagg.errors import MalformedMessage, OutOfOrder
from fedpriv.secagg.party_state import (
    Advertised,
    Answered,
    Confirmed,
    Enrolled,
    Revealed,
    Shared,
)
from fedpriv.secagg.primitives.codec import Fixed, Ids, Layout, Number, Record, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.party_state import PartyState

_STATES: dict[int, type[PartyState]] = {
    state.kind: state for state in (Enrolled, Advertised, Shared, Answered, Confirmed, Revealed)
}
_ROUNDS = 2  # the current one, and the next one, whose keys are being set up
_REPLIES = 3  # the exchanges of a round


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class NoisyAnswer(Record):
    """What was answered to one query. Asked again in another round of masks, it is the same.

    Attributes:
        release: Which release of the run the query serves.
        query: SHA-256 of the query.
        vector: The answer. **Private.**
        shared: 1 if it carries a share of the noise of the sum; 0 if it is private by itself.
        masks: The round of masks that it was last given in; 0 if in none.
        opened: The parties over which a sum with this answer in it was opened; empty if none was.
    """

    kind: ClassVar[int] = 37
    layout: ClassVar[Layout] = {
        "release": Number(8),
        "query": Fixed(32),
        "vector": Vector(),
        "shared": Number(1),
        "masks": Number(4),
        "opened": Ids(),
    }
    release: int
    query: bytes
    vector: Ring
    shared: int = 0
    masks: int = 0
    opened: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A party's place in a run. A new value replaces the old one before a reply leaves.

    Attributes:
        run: The 32 bytes that name the run; empty before the first contact.
        rounds: The latest rounds: as announced, and how far the party has come.
        replies: The latest replies, by the digest of what they answer. What is asked again gets
            the same bytes again: two answers under the same masks would show their difference.
        noisy: The latest answer with noise of the party's own in it, before its masks; None if
            there was none.
    """

    run: bytes = b""
    rounds: Mapping[int, tuple[Announce, PartyState]] = field(default_factory=dict, repr=False)
    replies: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)
    noisy: NoisyAnswer | None = field(default=None, repr=False)

    def state(self, number: int) -> tuple[Announce, PartyState]:
        """Where the party stands in a round that it joined."""
        if number not in self.rounds:
            raise OutOfOrder(f"Round {number} was not joined, or is over.")
        return self.rounds[number]

    def last(self, party: int) -> PartyState:
        """The state of the latest round joined, which the next one must come after."""
        if not self.rounds:
            return Enrolled(run=self.run, round=0, party=party)
        return self.rounds[max(self.rounds)][1]

    def moved(self, announced: Announce, state: PartyState) -> Memory:
        """After a step of a round; the earliest one is forgotten when it is over."""
        rounds = {**self.rounds, announced.round: (announced, state)}
        kept = sorted(rounds)[-_ROUNDS:]
        return replace(self, rounds=MappingProxyType({number: rounds[number] for number in kept}))

    def given(self, query: bytes, number: int) -> Memory:
        """After the answer to the query of digest ``query`` was masked in round ``number``.

        Earlier rounds are over: what was answered there is not helped to be opened any more, since
        it may be the same answer, or one whose openings are forgotten now.
        """
        later = {n: place for n, place in self.rounds.items() if n >= number}
        noisy = self.noisy
        if noisy is not None and noisy.query == query:
            noisy = replace(noisy, masks=number)
        return replace(self, rounds=MappingProxyType(later), noisy=noisy)

    def require_unopened(self, number: int, survivors: tuple[int, ...]) -> None:
        """Refuse to open an answer with a share of noise in it over two sets of parties.

        The difference of two sums would show the answers of a few, with the shares of a few.
        """
        noisy = self.noisy
        if noisy is None or not noisy.shared or noisy.masks != number:
            return
        if noisy.opened not in ((), survivors):
            raise OutOfOrder(f"Release {noisy.release} was opened over other parties already.")

    def opened(self, number: int, survivors: tuple[int, ...]) -> Memory:
        """After helping to open the sum of round ``number`` over ``survivors``."""
        if self.noisy is None or self.noisy.masks != number:
            return self
        return replace(self, noisy=replace(self.noisy, opened=survivors))

    def replied(self, digest: bytes, reply: bytes) -> Memory:
        """After a reply."""
        replies = [*self.replies.items(), (digest, reply)][-_REPLIES:]
        return replace(self, replies=MappingProxyType(dict(replies)))

    def to_bytes(self) -> bytes:
        """The memory as bytes; `from_bytes` inverts it."""
        rounds = [part.to_bytes() for pair in self.rounds.values() for part in pair]
        replies = [part for pair in self.replies.items() for part in pair]
        noisy = b"" if self.noisy is None else self.noisy.to_bytes()
        return pack([self.run, pack(rounds), pack(replies), noisy])

    @classmethod
    def from_bytes(cls, data: bytes) -> Memory:
        """Read back what `to_bytes` wrote; `MalformedMessage` for anything else."""
        parts = unpack(data)
        if len(parts) != 4:
            raise MalformedMessage("A party's memory has four parts.")
        rounds = unpack(parts[1])
        pairs = [
            (Announce.from_bytes(announced), _read_state(state))
            for announced, state in zip(rounds[::2], rounds[1::2], strict=True)
        ]
        replies = unpack(parts[2])
        return cls(
            run=parts[0],
            rounds=MappingProxyType(
                {announced.round: (announced, state) for announced, state in pairs}
            ),
            replies=MappingProxyType(dict(zip(replies[::2], replies[1::2], strict=True))),
            noisy=NoisyAnswer.from_bytes(parts[3]) if parts[3] else None,
        )


def _read_state(data: bytes) -> PartyState:
    kind = _STATES.get(data[1]) if len(data) > 1 else None
    if kind is None:
        raise MalformedMessage("These bytes are no state of a party.")
    return kind.from_bytes(data)
