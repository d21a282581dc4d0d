"""Simulated parties as Flower nodes, and the federations that they form."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedpriv.federation.engines.courier import Patience, WallClock
from fedpriv.federation.engines.dropouts import Dropouts
from fedpriv.federation.engines.faults import FaultPlan
from fedpriv.federation.engines.faulty_grid import FaultyGrid
from fedpriv.federation.engines.grid import GridFederation
from fedpriv.federation.engines.local import LocalGrid, VirtualClock
from fedpriv.federation.engines.simulated_keys import (
    simulated_coin,
    simulated_keys,
    simulated_roster,
    simulated_sampling,
)
from fedpriv.federation.party.client_app import ContextStore, client_app
from fedpriv.federation.party.guard import Policy
from fedpriv.federation.party.host import PartyHost
from fedpriv.federation.party.party import Party
from fedpriv.federation.party.stack import unit_counts
from fedpriv.federation.protocol.level import Protection
from fedpriv.secagg.primitives.public_keys import SharedPublicKeys
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.streams import streams

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from fedpriv.federation.engines.courier import Clock
    from fedpriv.secagg.primitives.public_keys import PublicKeys
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.run.prepare import Prepared

_DROPOUT = 0.1  # at the least: parties fail without being told to


def grid_experiment(source: str) -> Experiment:
    """An experiment for nodes of a grid, whatever engine its file names: masked by default."""
    return read_experiment(source, ['run.engine="ray"'])


def protection(experiment: Experiment) -> Protection:
    """The secure-aggregation level that server and parties of a simulation agree on."""
    section, privacy = experiment.run, experiment.privacy
    return Protection(
        level=section.level,
        corrupt=privacy.colluding,
        dropout=max(_DROPOUT, section.dropout),
        least=section.least_parties or 0,
    )


def dropouts(prepared: Prepared) -> Dropouts | None:
    """Who leaves which round; None if nobody is meant to."""
    section = prepared.experiment.run
    if not section.dropout:
        return None
    return Dropouts(parties=prepared.task.parties, fraction=section.dropout, seed=section.seed)


def roster(prepared: Prepared) -> tuple[bytes, ...]:
    """The identities of all parties; none where nothing is masked."""
    section = prepared.experiment.run
    if section.level == "off":
        return ()
    return simulated_roster(section.seed, prepared.task.parties)


def party_host(
    prepared: Prepared,
    number: int,
    *,
    run: str,
    identities: tuple[bytes, ...],
    operations: PublicKeys | None = None,
) -> PartyHost:
    """One simulated party, with its own records and its own part of the random numbers."""
    task, seed = prepared.task, prepared.experiment.run.seed
    sampling = streams(prepared, "sampling", run=run)
    party = Party(
        prepared.data.party(number),
        task=task,
        number=number,
        size=task.sizes[number],
        sampling=simulated_sampling(
            sampling, tuple(unit_counts(prepared.data, task).tolist()), number
        ),
        coin=simulated_coin(sampling, number),
        noise=streams(prepared, "party noise", number, run=run),
        policy=Policy(unpaid=True, colluding=prepared.experiment.privacy.colluding),
    )
    return PartyHost(
        number=number,
        party=party,
        protection=protection(prepared.experiment),
        keys=simulated_keys(seed, number, identities, operations=operations)
        if identities
        else None,
    )


def grid_federation(
    grid: Grid,
    prepared: Prepared,
    *,
    rounds: int,
    done: int = 0,
    patience: Patience | None = None,
    clock: Clock | None = None,
) -> GridFederation:
    """The parties behind a grid, with the drop-outs that the experiment asks for.

    Args:
        grid: Flower's, or ours.
        prepared: The experiment.
        rounds: How many sums to expect; one alone is not worth a set-up ahead.
        done: How many sums were formed before the run was interrupted.
        patience: How long to wait.
        clock: The clock of the deadlines.
    """
    clock = clock or WallClock()
    leaving = dropouts(prepared)
    if leaving is not None:
        grid = FaultyGrid(grid, FaultPlan(dropouts=leaving, first_round=done), clock)
    return GridFederation(
        grid,
        task=prepared.task,
        protection=protection(prepared.experiment),
        roster=roster(prepared),
        patience=patience,
        clock=clock,
        pipelined=rounds > 1,
    )


def local_federation(prepared: Prepared, *, run: str, rounds: int, done: int = 0) -> GridFederation:
    """Engine `local`: the ClientApp of every party, in this process."""
    identities = roster(prepared)
    hosts: dict[int, PartyHost] = {}
    operations = SharedPublicKeys()

    def open_party(context: Context) -> PartyHost:
        number = int(context.node_config["partition-id"])
        if number not in hosts:
            hosts[number] = party_host(
                prepared, number, run=run, identities=identities, operations=operations
            )
        return replace(hosts[number], store=ContextStore(context.state))

    grid = LocalGrid(client_app(open_party), prepared.task.parties)
    return grid_federation(grid, prepared, rounds=rounds, done=done, clock=VirtualClock())
