"""The ClientApp of fedpriv: a node is one party of an experiment."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from fedpriv._toml import parse_toml
from fedpriv.federation.party.client_app import ContextStore, client_app
from fedpriv.simulations.deploy.run.client import open_signed
from fedpriv.simulations.engines.parties import grid_experiment, party_host, roster
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import Prepared, prepare

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp

    from fedpriv.data import Files
    from fedpriv.federation.party.client_app import Host
    from fedpriv.federation.party.host import PartyHost

_HOSTS = 4096  # a process of a simulation plays many parties; their records share one memory


def open_party(context: Context, *, files: Files | None = None) -> Host:
    """The party that a node is.

    In a simulation ``node_config`` has ``partition-id``, and the run says which experiment; the
    party takes its own records of the experiment's partition, and its keys from the seed. Where it
    has ``party``, the path of a party's own file, the node is deployed, and that file decides; it
    hears its server only, and its records come from ``files``, or from the disk.
    """
    config = context.run_config
    if "party" in context.node_config:
        return open_signed(
            str(context.node_config["party"]),
            str(config["config"]),
            flower=context.run_id,
            node=context.node_id,
            files=files,
        )
    number = int(context.node_config["partition-id"])
    host = _simulated(str(config["config"]), str(config["experiment"]), number)
    return replace(host, store=ContextStore(context.state))


@lru_cache(maxsize=_HOSTS)
def _simulated(config: str, name: str, number: int) -> PartyHost:
    prepared, identities = _prepared(config, name)
    return party_host(prepared, number, run=prepared.run, identities=identities)


@lru_cache(maxsize=1)
def _prepared(config: str, name: str) -> tuple[Prepared, tuple[bytes, ...]]:
    """Load the records once, however many parties a process plays."""
    experiment = (
        parse_experiment(parse_toml(config, "experiment")) if config else grid_experiment(name)
    )
    prepared = prepare(experiment)
    return prepared, roster(prepared)


def app_with(files: Files) -> ClientApp:
    """The app of a deployed party whose records were read before."""
    return client_app(partial(open_party, files=files))


app = client_app(open_party)
