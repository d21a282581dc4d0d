"""Runs of the real protocol on the engine `local`, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.engines.dropouts import Dropouts
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
from fedpriv.federation.queries import encoding
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from fedpriv.secagg.primitives.public_keys import PublicKeys
from tests.federation.worlds import linear_task, random_data, streams

if TYPE_CHECKING:
    from flwr.app import Context

    from fedpriv.federation.cost.setting import Setting
    from fedpriv.federation.exchange_report import Report

EVENT = GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE)


def query(setting: Setting, round_: int) -> GradientQuery:
    return GradientQuery(
        run="run",
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=setting.bits),
        event=EVENT,
        theta=np.zeros(setting.dimension),
        clip_norm=1.0,
    )


def stated(setting: Setting) -> Setting:
    """The setting with the bytes of the queries of `measured`."""
    size = len(encoding.to_bytes(query(setting, 0))) - 8 * setting.dimension
    return replace(setting, query_bytes=size)


def measured(
    setting: Setting, *, operations: PublicKeys | None = None, masked: bool = True
) -> tuple[Report, float]:
    """What a run of this setting cost, and processor seconds; one record per party."""
    m, operations = setting.parties, operations or PublicKeys()
    sizes = (1,) * m
    task, data = linear_task(sizes, setting.dimension), random_data(sizes, setting.dimension)
    protection = Protection(
        level=setting.mode.value if masked else "off",
        corrupt=setting.colluding,
        dropout=max(0.1, setting.dropout),
    )
    roster = simulated_roster(0, m)
    hosts: dict[int, PartyHost] = {}

    def host(number: int) -> PartyHost:
        if number not in hosts:
            hosts[number] = PartyHost(
                number=number,
                party=Party(
                    data.party(number),
                    task=task,
                    sampling=streams(number, "sampling"),
                    noise=streams(number, "noise"),
                    policy=Policy(unpaid=True),
                ),
                protection=protection,
                keys=simulated_keys(0, number, roster, operations=operations) if masked else None,
            )
        return hosts[number]

    def opened(context: Context) -> PartyHost:
        number = int(context.node_config["partition-id"])
        return replace(host(number), store=ContextStore(context.state))

    clock = VirtualClock()
    plan = FaultPlan(dropouts=Dropouts(parties=m, fraction=setting.dropout, seed=0))
    federation = GridFederation(
        FaultyGrid(LocalGrid(client_app(opened), m), plan, clock),
        task=task,
        protection=protection,
        roster=roster if masked else (),
        clock=clock,
        pipelined=setting.rounds > 1,
    )
    for number in range(m):
        host(number)
    started = process_time()
    for number in range(setting.rounds):
        federation.sum(query(setting, number))
    return federation.report, process_time() - started
