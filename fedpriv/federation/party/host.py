"""A party at its end of the line: from the bytes of a request to those of a reply. No transport.

The party trusts its own records, keys, roster and protection. From the server it takes the run,
the round, the cohort and the query; the state machine of `fedpriv.secagg` says what may follow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.memory import NoisyAnswer
from fedpriv.federation.protocol.level import LEVELS
from fedpriv.federation.protocol.wire import (
    Announce,
    Ask,
    ClearAnswer,
    Join,
    Joined,
    Reply,
    Request,
)
from fedpriv.federation.queries import encoding as codec
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.secagg import Mode, Round, SecureAggregationError, rules
from fedpriv.secagg import Party as MaskingParty
from fedpriv.secagg.errors import OutOfOrder, WrongRound
from fedpriv.secagg.messages import Confirmations, Delivery, KeyList, Reveal, Survivors
from fedpriv.secagg.party_state import Advertised, Answered, Confirmed, Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from fedpriv.federation.party.memory import Memory
    from fedpriv.federation.party.party import Respondent
    from fedpriv.federation.protocol.level import Protection
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.party_state import PartyState
    from fedpriv.secagg.round import Bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keys:
    """What a party proves itself with, and by what it knows the others.

    Attributes:
        identity: The private Ed25519 key that the roster pins for this party.
        channel: A private X25519 key, which may live for a run.
        roster: Every party's identity key, exchanged out of band; a party is its position.
    """

    identity: Ed25519PrivateKey = field(repr=False)
    channel: X25519PrivateKey = field(repr=False)
    roster: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartyHost:
    """One party, ready to be asked.

    Attributes:
        number: Which party.
        party: Its records and the guard before them.
        protection: What it insists on.
        keys: Its own, and the roster; None if answers travel in the clear.
        enrol: Called with the id of a run before the party takes part in it, and may refuse. A
            deployment remembers the runs that it joined, for good, and joins none twice.
    """

    number: int
    party: Respondent
    protection: Protection
    keys: Keys | None = None
    enrol: Callable[[bytes], None] = lambda _run: None

    def __post_init__(self) -> None:
        if self.protection.masked and self.keys is None:
            raise ValueError("keys must be given to mask answers, got None.")

    def handle(self, memory: Memory, data: bytes) -> tuple[Memory, bytes]:
        """The reply to a request, and the memory that must replace ``memory`` before it leaves.

        A step that is refused changes nothing and does not keep the others from being taken.

        Raises:
            MalformedMessage: These bytes are no request. Nothing was done.
        """
        digest = sha256(data).digest()
        if digest in memory.replies:
            return memory, memory.replies[digest]
        request = Request.from_bytes(data)
        done: list[Bound] = []
        refusal = ""
        for record in request.records:
            try:
                memory, result = self._step(memory, record, request.query)
            except (SecureAggregationError, QueryRefused) as error:
                refusal = f"{type(error).__name__}: {error}"
            else:
                done.append(result)
        reply = Reply(records=tuple(done), refusal=refusal).to_bytes()
        return memory.replied(digest, reply), reply

    def _step(self, memory: Memory, record: Bound, query: bytes) -> tuple[Memory, Bound]:
        if memory.run not in (b"", record.run):
            raise WrongRound("The message is of another run than the one that was joined.")
        match record:
            case Join():
                return self._join(memory, record)
            case Ask():
                return self._answer_in_the_clear(memory, record, query)
            case Announce():
                return self._advertise(memory, record)
            case Delivery():
                return self._answer_masked(memory, record, query)
        announced, state = memory.state(record.round)
        survivors = survivors_of(state, record)
        memory.require_unopened(record.round, survivors)
        after, message = self._go_on(announced, state, record)
        if isinstance(message, Reveal):
            memory = memory.opened(record.round, survivors)
        return memory.moved(announced, after), message

    def _join(self, memory: Memory, record: Join) -> tuple[Memory, Joined]:
        if not memory.run:
            self.enrol(record.run)
        level = LEVELS.index(self.protection.level)
        joined = Joined(
            run=record.run, round=0, party=self.number, size=self.party.size, level=level
        )
        return replace(memory, run=record.run), joined

    def _answer_in_the_clear(
        self, memory: Memory, record: Ask, query: bytes
    ) -> tuple[Memory, ClearAnswer]:
        if self.protection.masked:
            raise OutOfOrder("This party answers under masks only.")
        # Nobody enforces a minimum where the server sees every answer.
        memory, vector = self._answer(memory, query, minimum=1)
        answer = ClearAnswer(run=record.run, round=record.round, party=self.number, vector=vector)
        return memory, answer

    def _answer_masked(
        self, memory: Memory, record: Delivery, query: bytes
    ) -> tuple[Memory, Bound]:
        announced, state = memory.state(record.round)
        masking = self._masking(announced)
        here = masking.announced
        shared = rules.expect(state, Shared, here, self.number)
        # Before a record is touched: nothing is computed for a delivery out of order.
        rules.require_delivery(here, shared, rules.expect(record, Delivery, here, self.number))
        memory, vector = self._answer(memory, query, minimum=here.parameters.minimum)
        after, message = masking.answer(shared, record, vector, about=query)
        memory = memory.given(sha256(query).digest(), record.round)
        return memory.moved(announced, after), message

    def _advertise(self, memory: Memory, announced: Announce) -> tuple[Memory, Bound]:
        if not memory.run:
            raise OutOfOrder("No run was joined yet.")
        masking = self._masking(announced)
        state, message = masking.advertise(memory.last(self.number), os.urandom)
        return memory.moved(announced, state), message

    def _go_on(
        self, announced: Announce, state: PartyState, record: Bound
    ) -> tuple[PartyState, Bound]:
        """The step that a message of the protocol asks for, if the state allows it."""
        masking = self._masking(announced)
        here = masking.announced
        match record:
            case KeyList():
                advertised = rules.expect(state, Advertised, here, self.number)
                return masking.share(advertised, record, os.urandom)
            case Survivors() if here.parameters.mode is Mode.ACTIVE:
                return masking.confirm(rules.expect(state, Answered, here, self.number), record)
            case Survivors():
                return masking.reveal(rules.expect(state, Answered, here, self.number), record)
            case Confirmations():
                return masking.reveal(rules.expect(state, Confirmed, here, self.number), record)
        raise OutOfOrder(f"{type(record).__name__} is not for a party.")

    def _answer(self, memory: Memory, query: bytes, *, minimum: int) -> tuple[Memory, Ring]:
        """The answer, if the guard allows it. A refusal says nothing about a record.

        Noise of the party's own is drawn once for a release: its mean over several draws would
        have less noise than was paid for.
        """
        try:
            asked = codec.from_bytes(query)
        except ValueError as error:
            raise QueryRefused(str(error)) from None
        if asked.share is not None and asked.share.minimum > minimum:
            raise QueryRefused(
                f"the shares of noise count on {asked.share.minimum} parties in the sum, and this "
                f"sum is opened with {minimum}."
            )
        noisy, digest = memory.noisy, sha256(query).digest()
        if noisy is not None and noisy.query == digest:
            return memory, noisy.vector
        if noisy is not None and asked.round <= noisy.release:
            raise QueryRefused(f"release {asked.round} was answered already, to another query.")
        try:
            vector = self.party.answer(asked)
        except QueryRefused:
            raise
        except (ValueError, OverflowError, ToleranceNotReachedError) as error:
            raise QueryRefused(f"no answer could be computed: {type(error).__name__}.") from None
        if asked.noise_by_party:
            answered = NoisyAnswer(
                release=asked.round,
                query=digest,
                vector=vector,
                shared=int(asked.share is not None),
            )
            memory = replace(memory, noisy=answered)
        return memory, vector

    def _masking(self, announced: Announce) -> MaskingParty:
        """The party in a round, with the parameters that its own protection asks for."""
        if self.keys is None:
            raise OutOfOrder("This party has no keys: it answers in the clear.")
        try:
            parameters = self.protection.parameters(
                len(announced.cohort), roster=len(self.keys.roster), minimum=announced.minimum
            )
            return MaskingParty(
                number=self.number,
                announced=Round(
                    run=announced.run,
                    number=announced.round,
                    cohort=announced.cohort,
                    roster=self.keys.roster,
                    parameters=parameters,
                ),
                identity=self.keys.identity,
                channel_key=self.keys.channel,
            )
        except ValueError as error:
            raise WrongRound(f"The round as announced is impossible: {error}") from None


def survivors_of(state: PartyState, record: Bound) -> tuple[int, ...]:
    """Over which parties a sum is to be opened, as this party signed them or is told."""
    if isinstance(state, Confirmed):
        return state.survivors
    return record.survivors if isinstance(record, Survivors) else ()
