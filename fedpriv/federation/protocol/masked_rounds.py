"""Masked rounds at the server: one masked sum after another, over any line to the parties.

Exchanges of a round, in the steady state (what rides along for the next round in brackets):

    semi-honest  answer [advertise]   reveal [share]
    active       answer               confirm [advertise]   reveal [share]

The first round, and one whose set-up failed, has `advertise` and `share` as separate exchanges.
Mask keys and seeds are fresh in every round. The cohort of a round is fixed one round ahead: a
party that misses a step of its set-up sits out that round.

A party that shares a secret so that nobody can open it spoils its sum: shares are sealed, and their
validity shows only when they are revealed. That party is excluded from later rounds, as long as
those are possible without it. If another party was missing, or so many may collude that their lies
could not be found, the party may be innocent and its holders may have lied: then it is excluded
from the next round only. So nobody can have an honest party excluded for good, nor block a run.
Where the parties contribute the noise, every party that revealed is bound to the set (`openings`):
if the faulty party is in it, it stays in, and the release is lost unless it behaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from fedpriv.federation.protocol.openings import Openings
from fedpriv.federation.protocol.wire import Announce, Request
from fedpriv.secagg import Mode, Round, SecureAggregationError, Server
from fedpriv.secagg.errors import TooFewParties, WronglyShared
from fedpriv.secagg.messages import Confirm, MaskedAnswer, Message, Reveal
from fedpriv.secagg.primitives.keys import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fedpriv.federation.exchange_report import Tally
    from fedpriv.federation.protocol.level import Protection
    from fedpriv.secagg import Total
    from fedpriv.secagg.messages import Delivery, KeyList
    from fedpriv.secagg.round import Bound
    from fedpriv.secagg.server_state import (
        AnswersCollected,
        ConsentCollected,
        KeysCollected,
        Rejection,
        SharesCollected,
    )


class Line(Protocol):
    """The line to the parties."""

    def present(self) -> tuple[int, ...]:
        """The parties that can be asked, in increasing order."""
        ...

    def exchange(self, step: str, requests: Mapping[int, Request]) -> Iterator[Bound]:
        """The parties' replies as they arrive, each message from the party that it names."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keyed:
    """A round whose keys are known."""

    server: Server
    state: KeysCollected
    lists: Mapping[int, KeyList]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A round whose set-up is complete: answers can be masked."""

    server: Server
    state: SharesCollected
    deliveries: Mapping[int, Delivery]


class MaskedRounds:
    """One masked sum after another.

    Args:
        line: The line to the parties.
        run: 32 random bytes that name the run.
        roster: Every party's identity key.
        protection: The same protection that the parties require.
        tally: Counts what is rejected.
        pipelined: Whether to set up the next round during this one.
        openings: The sets over which an earlier server began to open the release, if any.
    """

    def __init__(
        self,
        line: Line,
        *,
        run: bytes,
        roster: tuple[bytes, ...],
        protection: Protection,
        tally: Tally,
        pipelined: bool,
        openings: Openings | None = None,
    ) -> None:
        self._openings = openings or Openings()
        self._line = line
        self._run = run
        self._roster = roster
        self._protection = protection
        self._tally = tally
        self._pipelined = pipelined
        self._number = 0
        self._left_out: set[int] = set()
        self._in_doubt: set[int] = set()
        self._channels: dict[bytes, int] = {}  # keys that live for the run, by their owner
        self._ahead: _Ready | None = None

    def sum(self, query: bytes, *, dimension: int, bits: int, minimum: int) -> Total:
        """The sum of the answers to ``query`` over at least ``minimum`` parties.

        ``minimum`` is 0 where the parties contribute no noise, and where not all need to be there.

        Raises:
            SecureAggregationError: Too few parties are left. Nothing was revealed.
        """
        # Whether or not this round succeeds, no part of it is reused.
        ready, self._ahead = self._ahead, None
        if ready is None or ready.server.announced.parameters.minimum < minimum:
            ready = self._set_up(minimum)
        server, following = ready.server, self._following(ready)
        active = server.announced.parameters.mode is Mode.ACTIVE
        invited = {} if following is None else _invitations(following)
        again, asked = None, ready.deliveries
        if minimum:
            again = self._openings.to_repeat(query, asked, others=active)
        if again is not None:
            asked = {party: asked[party] for party in again}
        state, survivors, advertised = self._answers(
            replace(ready, deliveries=asked),
            {} if active else invited,
            query=query,
            dimension=dimension,
            bits=bits,
        )
        over = tuple(sorted(survivors))
        if again is not None and over != again:
            raise TooFewParties(f"{len(over)} parties answered, of the {len(again)} asked for.")
        end: AnswersCollected | ConsentCollected = state
        opening: Mapping[int, Message] = survivors
        if active:
            sent = self._line.exchange("confirm", _requests(survivors, invited))
            consents = self._sorted_out(sent, Confirm, advertised)
            end, opening = server.collect_consent(state, consents)
            if len(opening) < (least := server.announced.parameters.threshold):
                # Nobody would reveal, so nobody can be bound to this set.
                raise TooFewParties(f"{len(opening)} parties signed the set, of {least} required.")
        keyed = self._ahead_keyed(following, advertised)
        if minimum:
            self._openings.note(query, over)
        shares: list[Message] = []
        lists = {} if keyed is None else keyed.lists
        sent = self._line.exchange("reveal", _requests(opening, lists))
        try:
            total = server.finish(end, self._sorted_out(sent, Reveal, shares))
        except WronglyShared as error:
            self._tally.reject("wrongly shared")
            if not minimum or error.party not in over:
                (self._left_out if error.certain else self._in_doubt).add(error.party)
            raise
        self._count(total.rejected[len(ready.state.rejected) :])
        self._tally.reject("wrong share", len(total.wrong))
        self._ahead = self._ahead_ready(keyed, shares)
        return total

    def _answers(
        self,
        ready: _Ready,
        invited: Mapping[int, Announce],
        *,
        query: bytes,
        dimension: int,
        bits: int,
    ) -> tuple[AnswersCollected, Mapping[int, Message], list[Message]]:
        advertised: list[Message] = []
        sent = self._line.exchange("answer", _requests(ready.deliveries, invited, query=query))
        answers = self._sorted_out(sent, MaskedAnswer, advertised)
        state, survivors = ready.server.collect_answers(
            ready.state, answers, dimension=dimension, bits=bits, about=query
        )
        return state, survivors, advertised

    # The set-up of a round, in separate exchanges or piggybacked.

    def _set_up(self, minimum: int) -> _Ready:
        server = self._announced(minimum)
        self._in_doubt.clear()  # whatever becomes of this round
        sent = self._line.exchange("advertise", _requests(_invitations(server)))
        keyed = self._keyed(server, self._messages(sent))
        sent = self._line.exchange("share", _requests(keyed.lists))
        return self._ready(keyed, self._messages(sent))

    def _announced(self, minimum: int) -> Server:
        there = self._line.present()
        cohort = tuple(party for party in there if party not in self._left_out | self._in_doubt)
        self._number += 1
        try:
            parameters = self._protection.parameters(
                len(cohort), roster=len(self._roster), minimum=minimum
            )
        except ValueError as error:
            if cohort != there:
                self._left_out.clear()  # with them, or not at all
                self._in_doubt.clear()
                return self._announced(minimum)
            raise TooFewParties(f"{len(cohort)} parties are there: {error}") from None
        return Server(
            announced=Round(
                run=self._run,
                number=self._number,
                cohort=cohort,
                roster=self._roster,
                parameters=parameters,
            )
        )

    def _keyed(self, server: Server, sent: Iterable[Message]) -> _Keyed:
        state, lists = server.collect_keys(sent, known=self._channels)
        self._channels |= {keys[:KEY_BYTES]: party for party, keys in state.keys.items()}
        self._count(state.rejected)
        return _Keyed(server=server, state=state, lists=lists)

    def _ready(self, keyed: _Keyed, sent: Iterable[Message]) -> _Ready:
        state, deliveries = keyed.server.collect_shares(keyed.state, sent)
        self._count(state.rejected[len(keyed.state.rejected) :])
        return _Ready(server=keyed.server, state=state, deliveries=deliveries)

    def _following(self, ready: _Ready) -> Server | None:
        """The next round, among the parties present; None if there is none to prepare."""
        if not self._pipelined:
            return None
        try:
            return self._announced(ready.server.announced.parameters.minimum)
        except SecureAggregationError:
            return None

    def _ahead_keyed(self, following: Server | None, sent: list[Message]) -> _Keyed | None:
        """Keys that were piggybacked; if they are too few, the next round starts afresh."""
        try:
            return None if following is None else self._keyed(following, sent)
        except SecureAggregationError:
            self._tally.reject("set-up")
            return None

    def _ahead_ready(self, keyed: _Keyed | None, sent: list[Message]) -> _Ready | None:
        try:
            return None if keyed is None else self._ready(keyed, sent)
        except SecureAggregationError:
            self._tally.reject("set-up")
            return None

    def _messages(self, sent: Iterator[Bound]) -> Iterator[Message]:
        """The messages of the protocol; all others are ignored."""
        for message in sent:
            if isinstance(message, Message):
                yield message
            else:
                self._tally.reject("stranger")

    def _sorted_out(
        self, sent: Iterator[Bound], kind: type[Message], rest: list[Message]
    ) -> Iterator[Message]:
        """Yield messages of ``kind`` as they arrive; set the piggybacked ones aside."""
        for message in self._messages(sent):
            if isinstance(message, kind):
                yield message
            else:
                rest.append(message)

    def _count(self, rejected: Iterable[Rejection]) -> None:
        """Count rejections by their reason."""
        for rejection in rejected:
            self._tally.reject(rejection.reason.partition(":")[0])


def _invitations(server: Server) -> dict[int, Announce]:
    announced = server.announced
    return {
        party: Announce(
            run=announced.run,
            round=announced.number,
            party=party,
            cohort=announced.cohort,
            minimum=announced.parameters.minimum,
        )
        for party in announced.cohort
    }


def _requests(*boxes: Mapping[int, Bound], query: bytes = b"") -> dict[int, Request]:
    """One request per party, with its message from each of the boxes, in their order.

    The query goes only to parties that have a message in the first box.
    """
    parties = sorted(set().union(*boxes))
    return {
        party: Request(
            messages=tuple(box[party] for box in boxes if party in box),
            query=query if party in boxes[0] else b"",
        )
        for party in parties
    }
