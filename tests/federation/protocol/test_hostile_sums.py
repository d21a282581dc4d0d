"""A server that lies, against honest hosts: it sees sums over many, or nothing that says anything.

The server plays every step itself and knows all that the corrupt parties know; the hosts are those
that a node runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
import pytest
from flwr.app import RecordDict

from fedpriv.federation.engines.simulated_keys import simulated_keys, simulated_roster
from fedpriv.federation.party.client_app import ContextStore
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.host import PartyHost
from fedpriv.federation.party.party import Party
from fedpriv.federation.protocol.level import Protection
from fedpriv.federation.protocol.wire import Announce, Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.local_noise import LocalNoise
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.secagg import FixedPoint, Mode, Round, SecureAggregationError, Server
from fedpriv.secagg.messages import Reveal, Survivors
from tests.federation.engines.grids import DATA, PARTIES, SIZES, TASK, gradient_query
from tests.federation.worlds import streams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fedpriv.federation.party.party import Respondent
    from fedpriv.federation.protocol.level import Level
    from fedpriv.federation.queries.kinds import GradientQuery, Query
    from fedpriv.secagg import Total
    from fedpriv.secagg.messages import Message
    from fedpriv.secagg.round import Bound

RUN = b"v" * 32
EVERYBODY = tuple(range(len(SIZES)))
LOCAL = LocalNoise(law="gaussian", relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE)
MASKED: tuple[Level, ...] = ("semi-honest", "active")


class Refused(Exception):
    """Too few parties went along: the server is left with what it has."""


@dataclass
class Villain:
    """A server that says to each party what it likes."""

    protection: Protection
    parties: tuple[Respondent, ...]
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = {number: RecordDict() for number in range(len(self.parties))}
        self.roster = simulated_roster(0, len(self.parties))
        self.hosts = {
            number: PartyHost(
                number=number,
                party=party,
                protection=self.protection,
                keys=simulated_keys(0, number, self.roster),
            )
            for number, party in enumerate(self.parties)
        }
        for number in self.hosts:
            self.ask(number, Join(run=RUN, round=0, party=0))

    def ask(self, number: int, record: Bound, query: Query | None = None) -> tuple[Bound, ...]:
        data = b"" if query is None else codec.to_bytes(query)
        request = Request(messages=(record,), query=data).to_bytes()
        store = ContextStore(self.states[number])
        answered = Reply.from_bytes(replace(self.hosts[number], store=store).handle(request))
        if answered.refusal:
            self.refusals.append(answered.refusal)
        return answered.messages

    def tell(
        self, boxes: Mapping[int, Bound], queries: Mapping[int, Query] | None = None
    ) -> list[Message]:
        asked = queries or {}
        replies = (self.ask(party, box, asked.get(party)) for party, box in boxes.items())
        return [record for records in replies for record in records]  # type: ignore[misc]

    def opened(
        self,
        number: int,
        cohort: Iterable[int],
        queries: Mapping[int, Query],
        *,
        helpers: Collection[int] | None = None,
    ) -> Total:
        """The sum of a round, opened with the help of ``helpers``, or of everybody."""
        members = tuple(sorted(cohort))
        some = next(iter(queries.values()))
        parameters = self.protection.parameters(
            len(members),
            roster=len(self.roster),
            minimum=0 if some.share is None else some.share.minimum,
        )
        announced = Round(
            run=RUN, number=number, cohort=members, roster=self.roster, parameters=parameters
        )
        server = Server(announced=announced)
        try:
            invited = {
                party: Announce(
                    run=RUN,
                    round=number,
                    party=party,
                    cohort=members,
                    minimum=parameters.minimum,
                )
                for party in members
            }
            keys, lists = server.collect_keys(self.tell(invited))
            shares, deliveries = server.collect_shares(keys, self.tell(lists))
            answers, survivors = server.collect_answers(
                shares,
                self.tell(deliveries, queries),
                dimension=TASK.dimension,
                bits=some.grid.bits,
                about=codec.to_bytes(some),
            )
            asked = survivors if helpers is None else {p: survivors[p] for p in helpers}
            if parameters.mode is Mode.SEMI_HONEST:
                return server.finish(answers, self.tell(asked))
            consent, confirmations = server.collect_consent(answers, self.tell(asked))
            return server.finish(consent, self.tell(confirmations))
        except SecureAggregationError as error:
            raise Refused(str(error)) from None


def same(query: Query, parties: Iterable[int]) -> dict[int, Query]:
    return dict.fromkeys(parties, query)


# Whom a server invites.


@pytest.mark.parametrize("level", MASKED)
@pytest.mark.parametrize("honest", [1, 2])
def test_a_cohort_of_few_honest_parties_among_all_the_corrupt_ones_gets_no_answer(
    level: Level, honest: int
) -> None:
    """γ counts the parties of the roster: the server picks the cohort, the corrupt ones first."""
    villain = Villain(Protection(level=level, corrupt=0.2, dropout=0.0), PARTIES * 4)
    corrupt = (0, 1, 2, 3)
    invited = [*corrupt, *range(4, 4 + honest)]
    query = gradient_query(0)
    with pytest.raises((Refused, ValueError)):
        villain.opened(1, invited, same(query, invited))


@pytest.mark.parametrize("level", MASKED)
@pytest.mark.parametrize("corrupt", [0.0, 0.1, 0.34, 0.49])
def test_no_sum_is_opened_with_fewer_than_two_honest_answers(level: Level, corrupt: float) -> None:
    """One honest answer beside answers that the server knows is that answer."""
    protection = Protection(level=level, corrupt=corrupt, dropout=0.0)
    for invited, parties in combinations_with_replacement(range(2, 20), 2):
        try:
            found = protection.parameters(invited, roster=parties)
        except ValueError:
            continue
        assert found.minimum - found.colluders >= 2
        assert found.colluders >= int(corrupt * parties + 1e-9)


# Different questions to different parties.


def silenced(query: GradientQuery) -> GradientQuery:
    """A query whose answer is zero for everybody: gradients clipped to less than the grid."""
    return replace(query, clip_norm=2.0**-19, grid=FixedPoint(step=1.0, bits=32))


@pytest.mark.parametrize("level", MASKED)
def test_a_query_of_its_own_does_not_single_a_party_out(level: Level) -> None:
    """If all others are asked for nothing, the sum would be the answer of the one who is not."""
    villain = Villain(Protection(level=level), PARTIES)
    query = gradient_query(0)
    assert not PARTIES[0].answer(silenced(query)).any()
    queries: dict[int, Query] = {party: silenced(query) for party in EVERYBODY}
    queries[3] = query
    total = villain.opened(1, EVERYBODY, queries)
    alone = query.grid.decode(PARTIES[3].answer(query))
    shown = query.grid.decode(total.vector) - alone
    # Uniform in the ring: all of the few coordinates near zero has a probability below 2^-40.
    assert np.abs(shown).min() > 2**16


def test_one_query_for_all_is_summed_as_before() -> None:
    villain = Villain(Protection(level="active"), PARTIES)
    query = gradient_query(0)
    total = villain.opened(1, EVERYBODY, same(query, EVERYBODY))
    clear = [party.answer(query) for party in PARTIES]
    assert (total.vector == np.add.reduce(clear, dtype=np.uint32)).all()


# One release, opened twice.


def shared(minimum: int) -> GradientQuery:
    share = NoiseShare(law="skellam", parameter=2.0**24, minimum=minimum, colluders=1)
    query = replace(gradient_query(0), share=share)
    mechanism = share_mechanism(query, TASK)
    assert mechanism is not None
    return replace(query, event=mechanism.event())


def sharers() -> tuple[Party, ...]:
    return tuple(
        Party(
            DATA.party(number),
            task=TASK,
            sampling=streams(number, "sampling"),
            noise=streams(number, "noise"),
            policy=Policy(),
        )
        for number in EVERYBODY
    )


@pytest.mark.parametrize("level", MASKED)
def test_a_release_is_not_opened_again_without_one_party(level: Level) -> None:
    """The shares of noise are the same: the difference would be one answer with one share."""
    villain = Villain(Protection(level=level, dropout=0.3), sharers())
    query = shared(minimum=4)
    first = villain.opened(1, EVERYBODY, same(query, EVERYBODY))
    assert first.parties == EVERYBODY
    with pytest.raises(Refused):
        villain.opened(2, EVERYBODY[1:], same(query, EVERYBODY[1:]))
    assert any("opened" in refusal for refusal in villain.refusals)


def test_a_release_that_was_opened_may_be_opened_again_over_the_same_parties() -> None:
    """A server that lost the sum gets the same one, which says no more."""
    villain = Villain(Protection(level="active", dropout=0.3), sharers())
    query = shared(minimum=4)
    first = villain.opened(1, EVERYBODY, same(query, EVERYBODY))
    again = villain.opened(2, EVERYBODY, same(query, EVERYBODY))
    assert (first.vector == again.vector).all()


@pytest.mark.parametrize(("corrupt", "helpers"), [(0.0, (1, 2, 3)), (0.1, (1, 2, 3, 4))])
def test_no_half_of_the_parties_opens_a_release_and_the_other_half_again(
    corrupt: float, helpers: tuple[int, ...]
) -> None:
    """The threshold counts the roster, for two cohorts may differ in whom they leave out."""
    villain = Villain(Protection(level="active", corrupt=corrupt, dropout=0.3), sharers())
    query = shared(minimum=4)
    one, other = EVERYBODY[1:], EVERYBODY[:-1]
    villain.opened(1, one, same(query, one), helpers=helpers)
    with pytest.raises((Refused, SecureAggregationError)):
        villain.opened(2, other, same(query, other), helpers=(0, 1))
    with pytest.raises((Refused, SecureAggregationError)):
        villain.opened(3, other, same(query, other))


@pytest.mark.parametrize("kind", ["share", "local", "exact"])
def test_an_earlier_sum_of_a_release_cannot_be_opened_late(kind: str) -> None:
    """What a party remembers of openings is that of its latest answer: no older one is opened."""
    villain = Villain(Protection(level="semi-honest", dropout=0.3), sharers())
    query = shared(minimum=4)
    villain.opened(1, EVERYBODY, same(query, EVERYBODY))
    with pytest.raises(Refused):
        villain.opened(2, EVERYBODY[1:], same(query, EVERYBODY[1:]))
    later: Query = replace(query, round=1)
    if kind != "share":
        later = replace(gradient_query(1), local=LOCAL if kind == "local" else None)
    villain.opened(3, EVERYBODY, same(later, EVERYBODY))
    late = Survivors(run=RUN, round=2, party=1, survivors=EVERYBODY[1:])
    assert not any(isinstance(record, Reveal) for record in villain.ask(1, late))


def test_a_release_with_noise_of_the_parties_own_may_be_opened_over_other_parties() -> None:
    """What leaves such a party is private by itself; so is everything computed from it."""
    villain = Villain(Protection(level="active", dropout=0.3), sharers())
    query = replace(gradient_query(0), local=LOCAL)
    villain.opened(1, EVERYBODY, same(query, EVERYBODY))
    assert villain.opened(2, EVERYBODY[1:], same(query, EVERYBODY[1:])).parties == EVERYBODY[1:]
