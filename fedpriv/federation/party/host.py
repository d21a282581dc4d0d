"""Host of a party: from the bytes of a request to those of a reply. No transport.

The party trusts its own records, keys, roster and protection. From the server it takes the run, the
round, the cohort and the query. The state machine of `fedpriv.secagg` decides which step may
follow, and `fedpriv.federation.party.answered` ensures that each release is answered and opened
once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.federation.party.answered import require_opening
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.memory import MemoryStore
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
from fedpriv.secagg.errors import MalformedMessage, OutOfOrder, WrongRound
from fedpriv.secagg.messages import Confirmations, Delivery, KeyList, Reveal, Survivors
from fedpriv.secagg.party_state import Advertised, Answered, Confirmed, Shared
from fedpriv.secagg.primitives.public_keys import PublicKeys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.federation.party.memory import Memory, Store
    from fedpriv.federation.party.party import Respondent
    from fedpriv.federation.protocol.level import Protection
    from fedpriv.privacy.mechanisms.shares import NoiseShare
    from fedpriv.secagg import Parameters
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.party_state import PartyState
    from fedpriv.secagg.round import Bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keys:
    """The keys of a party: its own identity, and the public keys by which it recognises others.

    Attributes:
        identity: The private Ed25519 key that the roster pins for this party.
        roster: Every party's identity key, exchanged out of band; a party is its position.
        operations: Agrees on secrets and verifies signatures.
    """

    identity: Ed25519PrivateKey = field(repr=False)
    roster: tuple[bytes, ...] = field(repr=False)
    operations: PublicKeys = field(default_factory=PublicKeys, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartyHost:
    """One party, ready to handle requests.

    Attributes:
        number: The party's number.
        party: Its records and the guard before them.
        protection: The protection that it requires.
        keys: Its own keys and the roster; None if answers travel in the clear.
        store: Its persistent state; decides which runs it joins.
    """

    number: int
    party: Respondent
    protection: Protection
    keys: Keys | None = None
    store: Store = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        if self.protection.masked and self.keys is None:
            raise ValueError("keys must be given to mask answers, got None.")

    def handle(self, data: bytes) -> bytes:
        """The reply to a request; the new state is stored before the reply is returned.

        A refused step changes nothing and does not prevent the other steps.

        Raises:
            MalformedMessage: These bytes are not a request of one run. Nothing was done.
        """
        with self.store.held():
            return self.handled(data)

    def handled(self, data: bytes, *, run: bytes | None = None) -> bytes:
        """`handle`, for a caller that holds the store; the request must be of ``run``, if given."""
        request, digest = Request.from_bytes(data), sha256(data).digest()
        if run not in (None, request.run):
            raise MalformedMessage("The request is of another run than it is sent for.")
        done: list[Bound] = []
        refusal = ""
        try:
            memory = self._place(request.run)
        except (SecureAggregationError, QueryRefused) as error:
            return self._reply((), f"{type(error).__name__}: {error}")
        if digest in memory.replies:
            return memory.replies[digest]
        for message in request.messages:
            try:
                memory, result = self._step(memory, message, request.query)
            except (SecureAggregationError, QueryRefused) as error:
                refusal = f"{type(error).__name__}: {error}"
            else:
                done.append(result)
        reply = self._reply(tuple(done), refusal)
        if memory.run:  # joined, now or before
            self.store.keep(memory.replied(digest, reply))
        return reply

    def _place(self, run: bytes) -> Memory:
        """The party's place in a run, or a new one, if it may take part in it."""
        return self.store.memory(run)

    def _reply(self, results: tuple[Bound, ...], refusal: str) -> bytes:
        return Reply(messages=results, refusal=refusal).to_bytes()

    def _step(self, memory: Memory, message: Bound, query: bytes) -> tuple[Memory, Bound]:
        if isinstance(message, Join):
            return self._join(memory, message)
        if not memory.run:
            raise OutOfOrder("No run was joined yet.")
        match message:
            case Ask():
                return self._answer_in_the_clear(memory, message, query)
            case Announce():
                masking = self._masking(memory, message)
                keyed, advertised = masking.advertise(memory.last(self.number), os.urandom)
                return memory.moved(message, keyed), advertised
            case Delivery():
                return self._answer_masked(memory, message, query)
            case Survivors() | Confirmations():
                return self._open(memory, message)
        announced, state = memory.state(message.round)
        after, result = self._go_on(memory, announced, state, message)
        return memory.moved(announced, after), result

    def _join(self, memory: Memory, message: Join) -> tuple[Memory, Joined]:
        level = LEVELS.index(self.protection.level)
        joined = Joined(
            run=message.run, round=0, party=self.number, size=self.party.size, level=level
        )
        return replace(memory, run=message.run), joined

    def _answer_in_the_clear(
        self, memory: Memory, message: Ask, query: bytes
    ) -> tuple[Memory, ClearAnswer]:
        if self.protection.masked:
            raise OutOfOrder("This party answers under masks only.")
        memory, vector = self._answer(memory, query, None)
        answer = ClearAnswer(run=message.run, round=message.round, party=self.number, vector=vector)
        return memory, answer

    def _answer_masked(
        self, memory: Memory, message: Delivery, query: bytes
    ) -> tuple[Memory, Bound]:
        announced, state = memory.state(message.round)
        masking = self._masking(memory, announced)
        here = masking.announced
        shared = rules.expect(state, Shared, here, self.number)
        # Before a record is touched: nothing is computed for a delivery out of order.
        rules.require_delivery(here, shared, rules.expect(message, Delivery, here, self.number))
        memory, vector = self._answer(memory, query, here.parameters)
        after, answer = masking.answer(shared, message, vector, about=query)
        given = self.store.given(memory.name)
        if given is None:
            raise QueryRefused("the answer was not kept where it must be.")
        self.store.give(memory.name, replace(given, seat=message.run, masks=message.round))
        return memory.moved(announced, after), answer

    def _open(self, memory: Memory, message: Survivors | Confirmations) -> tuple[Memory, Bound]:
        """A step towards opening the sum over the survivors that the party signed or received."""
        announced, state = memory.state(message.round)
        if isinstance(state, Confirmed):
            survivors = state.survivors
        else:
            survivors = message.survivors if isinstance(message, Survivors) else ()
        given = require_opening(
            self.store.given(memory.name),
            run=message.run,
            masks=message.round,
            survivors=survivors,
        )
        after, result = self._go_on(memory, announced, state, message)
        if isinstance(result, Reveal):
            self.store.give(memory.name, replace(given, opened=survivors))
        return memory.moved(announced, after), result

    def _go_on(
        self, memory: Memory, announced: Announce, state: PartyState, message: Bound
    ) -> tuple[PartyState, Bound]:
        """The step that a message of the protocol asks for, if the state allows it."""
        masking = self._masking(memory, announced)
        here = masking.announced
        match message:
            case KeyList():
                advertised = rules.expect(state, Advertised, here, self.number)
                return masking.share(advertised, message, os.urandom)
            case Survivors() if here.parameters.mode is Mode.ACTIVE:
                return masking.confirm(rules.expect(state, Answered, here, self.number), message)
            case Survivors():
                return masking.reveal(rules.expect(state, Answered, here, self.number), message)
            case Confirmations():
                return masking.reveal(rules.expect(state, Confirmed, here, self.number), message)
        raise OutOfOrder(f"{type(message).__name__} is not for a party.")

    def _answer(
        self, memory: Memory, query: bytes, masks: Parameters | None
    ) -> tuple[Memory, Ring]:
        """The answer, if the guard allows it. A refusal says nothing about a record.

        Where answers travel in the clear, nobody enforces a minimum and ``masks`` is None.
        """
        try:
            asked = codec.from_bytes(query)
        except ValueError as error:
            raise QueryRefused(str(error)) from None
        if memory.name not in ("", asked.run):
            raise QueryRefused("the query is of another run than those before it.")
        if asked.share is not None:
            _require_sized_for(asked.share, masks)
        try:
            vector = self._respondent(memory).answer(asked, self.store)
        except QueryRefused:
            raise
        except (ValueError, OverflowError, ToleranceNotReachedError) as error:
            raise QueryRefused(f"no answer could be computed: {type(error).__name__}.") from None
        return replace(memory, name=asked.run), vector

    def _respondent(self, memory: Memory) -> Respondent:
        """The respondent for this place."""
        del memory
        return self.party

    def _masking(self, memory: Memory, announced: Announce) -> MaskingParty:
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
                channel_key=X25519PrivateKey.from_private_bytes(memory.channel),
                public_keys=self.keys.operations,
            )
        except ValueError as error:
            raise WrongRound(f"The round as announced is impossible: {error}") from None


def _require_sized_for(share: NoiseShare, masks: Parameters | None) -> None:
    """Noise shares must be sized for the smallest sum, and the colluders, that the masks allow."""
    opened, colluders = (1, 0) if masks is None else (masks.minimum, masks.colluders)
    if share.minimum > opened:
        raise QueryRefused(
            f"the noise shares assume {share.minimum} parties in the sum, but this sum is "
            f"opened with {opened}."
        )
    if share.colluders < colluders:
        raise QueryRefused(
            f"the noise shares are sized for {share.colluders} colluders, but the masks of this "
            f"sum for {colluders}."
        )
