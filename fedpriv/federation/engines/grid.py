"""A federation of Flower nodes: a query goes out, and the sum of the answers comes in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.engines.courier import Courier, Patience, WallClock
from fedpriv.federation.engines.seals import NoSeal
from fedpriv.federation.exchange_report import Tally
from fedpriv.federation.federation import Sum
from fedpriv.federation.protocol.level import LEVELS
from fedpriv.federation.protocol.masked_rounds import MaskedRounds
from fedpriv.federation.protocol.wire import Ask, ClearAnswer, Join, Joined, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.secagg import SecureAggregationError
from fedpriv.secagg.round import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.courier import Clock
    from fedpriv.federation.engines.seals import Seal
    from fedpriv.federation.exchange_report import Report
    from fedpriv.federation.protocol.level import Protection
    from fedpriv.federation.protocol.openings import Openings
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.round import Bound


class RoundFailed(RuntimeError):
    """No sum: too few parties are left. Nothing was revealed, and the query may be sent again."""


class GridFederation:
    """Parties behind a `flwr.serverapp.Grid`.

    Guarantee. With a level other than "off" the server learns from the answers their sum over at
    least the minimum of parties, and nothing else, under the assumptions of
    docs/secure-aggregation.md. `Sum.sizes` are those of exactly the parties in it. A reply that is
    late, repeated, malformed or not what was asked for is counted in `report`, and ignored.

    Args:
        grid: Flower's grid.
        task: The public facts; party j is the j-th of its sizes.
        protection: What the parties insist on too.
        roster: Every party's identity key; needed unless answers travel in the clear.
        patience: How long to wait for nodes and replies.
        clock: The clock of the deadlines.
        pipelined: Whether to set up the keys of the next round during this one: not worth its
            bytes if there is only one.
        seal: Signs requests, checks replies and knows which party a node is; needed wherever nodes
            are not trusted to say it.
        plan: All releases of the run, as `Join` states them; empty if they are not fixed.
        openings: Those of a release that an earlier server began to open.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        task: Task,
        protection: Protection,
        roster: tuple[bytes, ...] = (),
        patience: Patience | None = None,
        clock: Clock | None = None,
        pipelined: bool = True,
        seal: Seal | None = None,
        plan: bytes = b"",
        openings: Openings | None = None,
    ) -> None:
        if protection.masked and len(roster) != task.parties:
            raise ValueError(
                f"roster must have one key for each of {task.parties} parties, got {len(roster)}."
            )
        self._task = task
        self._protection = protection
        self._tally = Tally()
        self._run = os.urandom(RUN_BYTES)
        seal = seal or NoSeal()
        self._members = _Members(
            Courier(
                grid,
                patience=patience or Patience(),
                clock=clock or WallClock(),
                tally=self._tally,
                seal=seal,
            ),
            join=Join(run=self._run, round=0, party=0, plan=plan),
            sizes=task.sizes,
            protection=protection,
            tally=self._tally,
            seal=seal,
        )
        self._rounds = MaskedRounds(
            self._members,
            run=self._run,
            roster=roster,
            protection=protection,
            tally=self._tally,
            pipelined=pipelined,
            openings=openings,
        )
        self._asked = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The public number of records of every party."""
        return self._task.sizes

    @property
    def run(self) -> bytes:
        """The 32 random bytes that name this run of the protocol."""
        return self._run

    @property
    def report(self) -> Report:
        """What the exchanges so far cost, and what was rejected."""
        return self._tally.report()

    def recall(self) -> None:
        """Wait for silent parties to come back, before giving them up.

        A round is set up among the parties that are not silent, and a silent one is not waited for.
        So after a sum fails for lack of parties, the next one fails at once unless they are back.
        """
        self._members.recall()

    def gather(self, *, least: int = 0) -> None:
        """Have the parties join, before any query is sent or paid for: at ``least`` so many.

        Raises:
            RoundFailed: Too few of them join for any sum.
        """
        self._members.gather()
        if (there := len(self._members.present())) < least:
            raise RoundFailed(
                f"too few parties have joined: this run releases nothing without {least} of the "
                f"{self._task.parties} parties, and {there} are there. Nothing was asked. "
                f"{self.report.complaint}"
            )
        if self._protection.masked:
            try:
                self._protection.parameters(len(self._members.present()), roster=self._task.parties)
            except ValueError as error:
                raise RoundFailed(
                    f"too few parties have joined: {error} Nothing was asked. "
                    f"{self.report.complaint}"
                ) from None

    def sum(self, query: Query) -> Sum:
        """The sum over the parties that answered.

        Raises:
            RoundFailed: Too few are left. Nothing was revealed.
        """
        minimum = 0 if query.share is None else query.share.minimum
        if query.shows_parties:  # of who is missing it would say nothing
            minimum = self._task.parties
        width = query.answer_width(self._task)
        data, grid = codec.to_bytes(query), query.grid
        self._members.gather()
        try:
            if self._protection.masked:
                total = self._rounds.sum(data, dimension=width, bits=grid.bits, minimum=minimum)
                vector, parties = total.vector, total.parties
            else:
                vector, parties = self._clear_sum(data, np.zeros(width, grid.dtype))
        except SecureAggregationError as error:
            raise RoundFailed(
                f"no sum for release {query.round}: {error} Nothing was revealed; ask again when "
                f"more parties are there. {self.report.complaint}"
            ) from None
        self._tally.summed()
        return Sum(
            total=grid.decode(vector.astype(grid.dtype, copy=False)),
            step=grid.step,
            sizes=tuple(self._task.sizes[party] for party in parties),
        )

    def _clear_sum(self, query: bytes, total: Ring) -> tuple[Ring, tuple[int, ...]]:
        """Answers in the clear, added to ``total`` as they arrive."""
        self._asked += 1
        heard: set[int] = set()
        requests = {
            party: Request(
                messages=(Ask(run=self._run, round=self._asked, party=party),), query=query
            )
            for party in self._members.present()
        }
        for message in self._members.exchange("ask", requests):
            if (
                isinstance(message, ClearAnswer)
                and message.round == self._asked
                and message.party not in heard
                and (message.vector.shape, message.vector.dtype) == (total.shape, total.dtype)
            ):
                total += message.vector
                heard.add(message.party)
            else:
                self._tally.reject("wrong answer")
        if not heard:
            raise SecureAggregationError("nobody answered.")
        return total, tuple(sorted(heard))


class _Members:
    """The parties that have joined, and their nodes."""

    def __init__(
        self,
        courier: Courier,
        *,
        join: Join,
        sizes: tuple[int, ...],
        protection: Protection,
        tally: Tally,
        seal: Seal,
    ) -> None:
        self._courier = courier
        self._seal = seal
        self._sizes = sizes
        self._level = LEVELS.index(protection.level)
        self._tally = tally
        self._run = join.run
        self._join = Request(messages=(join,))
        self._nodes: dict[int, int] = {}
        self._seats: Mapping[int, int] | None = None
        self._replied: set[int] = set()

    def gather(self) -> None:
        """Before the first sum, wait for everybody; later, admit latecomers.

        A party that gave no reply because its process was lost with it is asked again; a silent
        one is asked by `recall`, which waits for it.
        """
        self._reseat()
        if len(self._nodes) == len(self._sizes):
            return
        courier = self._courier
        nodes = courier.nodes() if self._nodes else courier.arrived(len(self._sizes))
        self._invite([node for node in nodes if node not in self._replied | courier.silent])
        if not self._nodes:
            raise RoundFailed(
                f"no party has joined: {len(nodes)} nodes are there for {len(self._sizes)} "
                f"parties. {self._tally.report().complaint}"
            )

    def recall(self) -> None:
        """Ask every silent party for a sign of life, and wait for it.

        A party that refused to join is asked once more by `gather`: perhaps its disk was full, or
        it had not accepted the roster yet.
        """
        self._reseat()
        self._replied &= set(self._nodes.values())
        self._invite(self._courier.returned(self._courier.silent))

    def present(self) -> tuple[int, ...]:
        """The parties that replied when they were last asked."""
        silent = self._courier.silent
        return tuple(sorted(party for party, node in self._nodes.items() if node not in silent))

    def exchange(self, step: str, requests: Mapping[int, Request]) -> Iterator[Bound]:
        """The parties' replies, as they arrive, each message from the party that it names.

        A silent party is asked for a sign of life, and not waited for. A party that has left its
        seat since the round was set up is not asked.
        """
        party_of = {node: party for party, node in self._nodes.items()}
        outgoing = {
            self._nodes[party]: request
            for party, request in requests.items()
            if party in self._nodes
        }
        absent = (self._courier.silent & party_of.keys()) - outgoing.keys()
        outgoing |= dict.fromkeys(absent, self._join)
        for node, reply in self._courier.exchange(step, outgoing, unawaited=absent):
            for message in reply.messages:
                if node in absent and isinstance(message, Joined):
                    continue
                if (message.run, message.party) == (self._run, party_of[node]):
                    yield message
                else:
                    self._tally.reject("stranger")

    def _invite(self, nodes: list[int]) -> None:
        """Ask nodes who they are: each says it once."""
        if nodes:
            for node, reply in self._courier.exchange("join", dict.fromkeys(nodes, self._join)):
                self._replied.add(node)
                if len(reply.messages) > 1:
                    self._tally.reject("stranger")
                    continue
                for message in reply.messages:
                    self._admit(node, message)

    def _admit(self, node: int, message: Bound) -> None:
        """Admit a party, if it is one of the task and no other node has its place."""
        if (
            not isinstance(message, Joined)
            or message.run != self._run
            or message.party >= len(self._sizes)
            or message.size != self._sizes[message.party]
            or self._nodes.get(message.party, node) != node
            or not self._may_be(node, message.party)
        ):
            self._tally.reject("stranger")
        elif message.level != self._level:
            self._tally.reject("other protection")
        else:
            self._nodes[message.party] = node

    def _may_be(self, node: int, party: int) -> bool:
        """Whether a node has the seat of a party; without known seats, its claim is accepted."""
        return self._seats is None or self._seats.get(node) == party

    def _reseat(self) -> None:
        """Check again who sits where, and forget parties that have left their seats."""
        self._seats = self._seal.seats()
        self._nodes = {
            party: node for party, node in self._nodes.items() if self._may_be(node, party)
        }
        if self._seats is not None:
            self._courier.silent &= self._seats.keys()
