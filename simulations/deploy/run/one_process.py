"""A deployed run in one process: every member does what it does in a deployment, without a network.

To see how a deployment works, and to try whether parties' policies admit an experiment. Policies,
ledgers, masks and signatures are the real ones, and so is the price: whoever runs this reads the
records of all parties and uses all their keys, and their ledgers pay. It is for a federation of
invented records.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fedpriv.federation.engines.local import FIRST_NODE, LocalGrid
from fedpriv.federation.party.client_app import client_app
from fedpriv.simulations.deploy.folders import party_folder, server_folder
from fedpriv.simulations.deploy.run.client import open_signed
from fedpriv.simulations.deploy.run.jobs import dispatch
from fedpriv.simulations.deploy.run.lock import served
from fedpriv.simulations.deploy.run.server import open_session, seal_of, serve
from fedpriv.simulations.deploy.run.submission import new_run
from fedpriv.simulations.experiment.file import read_experiment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flwr.app import Context

    from fedpriv.federation.deployed.signed import SignedHost

_RUN = 1  # Flower's number of the run; there is no other in this process


def run_in_one_process(experiment: str | Path, *, server: Path, parties: Path) -> Path:
    """Carry out a deployed run, and have it signed; the directory of its results.

    Args:
        experiment: The experiment's file.
        server: The server's directory, as `fedpriv deploy init` made it; no process of it runs.
        parties: The folder that has every party's directory, by its name.

    Raises:
        ValueError: The federation has been started for real: its parties belong to others.
    """
    folder = server_folder(server)
    if any(folder.nodes.glob("*.json")):
        raise ValueError(
            f"{str(folder.root)!r} has registered nodes: it is a real federation, whose runs are "
            "those of `fedpriv deploy run`. Found another one, with invented records."
        )
    directory = new_run(read_experiment(experiment), folder)
    config = {
        "config": (directory / "config.toml").read_text(encoding="utf-8"),
        "output": str(directory),
        "roster": str(folder.roster),
    }
    with served(directory):
        session, roster = open_session(config)
        homes = tuple(party_folder(parties / name) for name in roster.names)
        files = {FIRST_NODE + seat: home.policy for seat, home in enumerate(homes)}
        seal = replace(
            seal_of(config, roster, flower=_RUN),
            find_seats=lambda: {node: seat for seat, node in enumerate(files)},
        )
        grid = LocalGrid(
            client_app(partial(_open_party, files=files, config=config["config"])), len(files)
        )
        serve(session, roster, grid, seal=seal)
        dispatch.carry_out({**config, "job": "attest"}, grid, seal=seal)
    return directory


def _open_party(context: Context, *, files: Mapping[int, Path], config: str) -> SignedHost:
    """The party of a node, opened anew for every message, as in a deployment."""
    return open_signed(
        str(files[context.node_id]), config, flower=context.run_id, node=context.node_id
    )
