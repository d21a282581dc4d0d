"""A deployed party at its end of the line: protocol state on its own disk, rules of its own.

To what `PartyHost` insists on, a deployment adds:

- A run is joined once, for good, and before anything else; all its queries are of one run, and so
  are all records of a request. With two places in a run, a party would sign two sets of survivors.
- Every message is held against the policy, and comes under the experiment and the protection that
  the run was joined under: a sum that was masked against an active server is opened against one.
- No sum of fewer parties than the policy states is opened.
- A release whose noise the parties bring is opened over one set of parties only, in whichever runs
  of the protocol it is asked for: a server that was restarted begins a new one. A sum that failed
  may be asked for again, and a party then gives the same answer with the same share of noise. If
  the first sum was opened after all, over other parties, the difference of the two would show the
  answers of a few, with their few shares. So whoever has helped to open a release over a set of
  parties helps to open it over no other, and opens nothing any more but its latest answer, where
  that was given last.

  In active mode that holds whatever the server does. *Proof.* An opening takes more than half of
  the honest parties of the roster (`fedpriv.secagg.thresholds`; beyond 128 parties, except with a
  negligible probability). Two openings have one of them in common, which refuses the second. ∎
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from hashlib import sha256
from logging import getLogger
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.federation.deployed.guard import check_engagement
from fedpriv.federation.deployed.journal import Seat
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.host import Keys, PartyHost, survivors_of
from fedpriv.federation.party.memory import Memory
from fedpriv.federation.protocol.wire import Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.secagg.errors import (
    MalformedMessage,
    OutOfOrder,
    SecureAggregationError,
    TooFewParties,
    WrongRound,
)
from fedpriv.secagg.messages import Confirmations, Reveal, Survivors
from fedpriv.secagg.primitives.keys import KEY_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.federation.deployed.guard import Engagement
    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.deployed.policy import PartyPolicy
    from fedpriv.federation.party.party import Respondent
    from fedpriv.federation.protocol.wire import Announce
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg import Party as MaskingParty
    from fedpriv.secagg.messages import Delivery
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.party_state import PartyState
    from fedpriv.secagg.round import Bound

_LOG = getLogger("fedpriv.party")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeployedHost:
    """One party of a deployment, ready to be asked.

    Attributes:
        number: Its position in the roster.
        party: Its records, budget and policy.
        engagement: The run that asks.
        policy: What it insists on.
        identity: Its private Ed25519 key.
        roster: Every party's identity key, from its own file.
        journal: What it must not forget.
    """

    number: int
    party: Respondent
    engagement: Engagement
    policy: PartyPolicy
    identity: Ed25519PrivateKey
    roster: tuple[bytes, ...]
    journal: Journal

    def handle(self, memory: Memory, data: bytes) -> tuple[Memory, bytes]:
        """The reply to a request. What is remembered is in the journal, and nothing in the context.

        The journal has the new state before the reply is returned.
        """
        del memory
        run = _run_of(data)
        with self.journal.held():
            try:
                seat = self._seat(run)
                kept, reply = self._at(seat, run).handle(seat.memory, data)
            except (SecureAggregationError, QueryRefused) as error:
                kept, reply = Memory(), _refusal(error)
            if kept.run:  # joined, now or before
                seat = self.journal.seat(run) or seat
                self.journal.sit(run, replace(seat, memory=kept))
        if refusal := Reply.from_bytes(reply).refusal:
            _LOG.warning("party %d refused: %s", self.number, refusal)
        return Memory(), reply

    def _seat(self, run: bytes) -> Seat:
        """The party's place in a run, or a new one; refuses terms that it did not agree to."""
        check_engagement(self.engagement, self.policy)
        stated = (self.engagement.run, self.engagement.protection)
        terms = sha256(repr(stated).encode()).digest()
        seat = self.journal.seat(run)
        if seat is None:
            return Seat(channel=os.urandom(KEY_BYTES), terms=terms)
        if seat.terms != terms:
            raise WrongRound("The run was joined as another experiment, or under other protection.")
        return seat

    def _at(self, seat: Seat, run: bytes) -> _SeatedHost:
        return _SeatedHost(
            number=self.number,
            party=self.party,
            protection=self.engagement.protection,
            keys=Keys(
                identity=self.identity,
                channel=X25519PrivateKey.from_private_bytes(seat.channel),
                roster=self.roster,
            ),
            policy=self.policy,
            journal=self.journal,
            seat=seat,
            run=run,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _SeatedHost(PartyHost):
    """`PartyHost` with the rules of a deployment, for one message."""

    policy: PartyPolicy
    journal: Journal
    seat: Seat
    run: bytes

    def _step(self, memory: Memory, record: Bound, query: bytes) -> tuple[Memory, Bound]:
        if not memory.run and not isinstance(record, Join):
            raise OutOfOrder("No run was joined yet.")
        return super()._step(memory, record, query)

    def _masking(self, announced: Announce) -> MaskingParty:
        masking = super()._masking(announced)
        opened = masking.announced.parameters.minimum
        if opened < self.policy.min_parties:
            raise TooFewParties(
                f"A sum of {opened} parties would be opened, and this party insists on "
                f"{self.policy.min_parties}."
            )
        return masking

    def _answer(self, memory: Memory, query: bytes, *, minimum: int) -> tuple[Memory, Ring]:
        name = _asked(query).run
        if self.seat.name not in ("", name):
            raise QueryRefused("the query is of another run than those before it.")
        if not self.seat.name:
            self.journal.sit(self.run, replace(self.seat, name=name))
        # The journal answers for all places of this party, so that no place has a copy of its own:
        # that of a release which has been opened elsewhere, and is over, would be given once more.
        memory, vector = super()._answer(replace(memory, noisy=None), query, minimum=minimum)
        return replace(memory, noisy=None), vector

    def _answer_masked(
        self, memory: Memory, record: Delivery, query: bytes
    ) -> tuple[Memory, Bound]:
        memory, message = super()._answer_masked(memory, record, query)
        asked = _asked(query)
        given = self.journal.given(asked.run)
        if given is None or given.release != asked.round:
            raise QueryRefused("the answer is not in the state directory.")
        self.journal.give(asked.run, replace(given, seat=record.run, masks=record.round))
        return memory, message

    def _go_on(
        self, announced: Announce, state: PartyState, record: Bound
    ) -> tuple[PartyState, Bound]:
        if not isinstance(record, Survivors | Confirmations):
            return super()._go_on(announced, state, record)
        given = self.journal.given(self.seat.name)
        if given is None or (given.seat, given.masks) != (record.run, record.round):
            raise OutOfOrder("This party has gone on to another sum, or answered in none.")
        survivors = survivors_of(state, record)
        if given.shared and given.opened not in ((), survivors):
            raise OutOfOrder("This release was opened over other parties already.")
        after, message = super()._go_on(announced, state, record)
        if isinstance(message, Reveal):
            self.journal.give(self.seat.name, replace(given, opened=survivors))
        return after, message


def _run_of(data: bytes) -> bytes:
    """The one run that a request is of."""
    runs = {record.run for record in Request.from_bytes(data).records}
    if len(runs) != 1:
        raise MalformedMessage("The request asks for nothing, or is of several runs.")
    return runs.pop()


def _asked(query: bytes) -> Query:
    try:
        return codec.from_bytes(query)
    except ValueError as error:
        raise QueryRefused(str(error)) from None


def _refusal(error: Exception) -> bytes:
    return Reply(records=(), refusal=f"{type(error).__name__}: {error}").to_bytes()
