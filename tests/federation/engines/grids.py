"""Federations behind a grid in this process, whose exact sums are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.engines.courier import Patience, opened
from fedpriv.federation.engines.faults import FaultPlan
from fedpriv.federation.engines.faulty_grid import FaultyGrid
from fedpriv.federation.engines.grid import GridFederation
from fedpriv.federation.engines.local import LocalGrid, VirtualClock
from fedpriv.federation.engines.simulated_keys import simulated_keys, simulated_roster
from fedpriv.federation.party.client_app import ContextStore, client_app
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.host import PartyHost
from fedpriv.federation.party.party import Party
from fedpriv.federation.protocol.level import Protection
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task, random_data, streams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.app import Context, Message
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.protocol.level import Level
    from fedpriv.federation.queries.kinds import Query

WIDTH = 4
SIZES = (20, 35, 8, 12, 50)  # all different: sizes tell who is in a sum
TASK = linear_task(SIZES, WIDTH, regulariser=0.1)
DATA = random_data(SIZES, WIDTH)
EVENT = GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE)


def gradient_query(round_: int, *, bits: int = 32, dimension: int = WIDTH) -> GradientQuery:
    return GradientQuery(
        run="run",
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=bits),
        event=EVENT,
        theta=np.linspace(-1, 1, dimension) * (round_ + 1),
        clip_norm=1.0,
    )


def party(number: int) -> Party:
    return Party(
        DATA.party(number),
        task=TASK,
        sampling=streams(number, "sampling"),
        noise=streams(number, "noise"),
        policy=Policy(unpaid=True),
    )


PARTIES = tuple(party(number) for number in range(len(SIZES)))
ROSTER = simulated_roster(0, len(SIZES))


@cache
def host(number: int, level: Level = "semi-honest", *, dropout: float = 0.3) -> PartyHost:
    return PartyHost(
        number=number,
        party=PARTIES[number],
        protection=Protection(level=level, dropout=dropout),
        keys=None if level == "off" else simulated_keys(0, number, ROSTER),
    )


class Tap(LocalGrid):
    """Keeps all bytes that parties sent, by the name of the exchange."""

    sent: dict[str, list[bytes]]

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        if not reply.has_error():
            step = message.metadata.message_type.partition(".")[2]
            self.sent.setdefault(step, []).append(opened(reply))
        return reply


@dataclass
class Stage:
    """A federation and all that is behind it."""

    level: Level = "semi-honest"
    plan: FaultPlan = field(default_factory=FaultPlan)
    pipelined: bool = True
    dropout: float = 0.3
    other_hosts: dict[int, PartyHost] = field(default_factory=dict)
    leave: float = 0.0

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.opened: list[int] = []
        self.grid = Tap(client_app(self._open), len(SIZES))
        self.grid.sent = {}
        self.federation = GridFederation(
            FaultyGrid(self.grid, self.plan, self.clock),
            task=TASK,
            protection=Protection(level=self.level, dropout=self.dropout),
            roster=() if self.level == "off" else ROSTER,
            patience=Patience(arrival=5.0, reply=10.0, poll=0.5, leave=self.leave),
            clock=self.clock,
            pipelined=self.pipelined,
        )

    def _open(self, context: Context) -> PartyHost:
        number = int(context.node_config["partition-id"])
        self.opened.append(number)
        own = self.other_hosts.get(number) or host(number, self.level, dropout=self.dropout)
        return replace(own, store=ContextStore(context.state))

    def sums(self, rounds: int, first: int = 0) -> list[Sum]:
        return [self.federation.sum(gradient_query(first + r)) for r in range(rounds)]


def ideal(query: Query, sizes: Iterable[int]) -> NDArray[np.int64]:
    """The sum that a trusted third party would compute over the parties of these sizes."""
    chosen = [PARTIES[SIZES.index(size)].answer(query) for size in sizes]
    total = np.add.reduce(chosen, dtype=query.grid.dtype)
    return query.grid.decode(total)


def who(answer: Sum) -> set[int]:
    return {SIZES.index(size) for size in answer.sizes}
