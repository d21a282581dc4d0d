"""Errands of a server to its parties: carried out, interrupted, and what they leave."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from fedpriv.federation.engines.courier import Patience
from fedpriv.federation.protocol.wire import Reply, Request
from fedpriv.simulations.cli import app
from fedpriv.simulations.deploy.run.jobs.dispatch import carry_out
from tests.federation.deployed import north_party
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.failing_grids import PartialGrid

if TYPE_CHECKING:
    from pathlib import Path

RUN, ROUND = bytes(range(32)), {"round": 0, "party": 0}
NAMES = FOUR["names"]
TWICE = {"epsilon": 8.0}  # enough for a run that is cancelled, and another one
PATIENCE = Patience(arrival=0.2, reply=30.0, poll=0.01)  # whoever is there answers at once
CLEAR: dict[str, Any] = {**FOUR, **north_party.CLEAR}


def grid_of(
    deployment: Deployment, kind: type[PartialGrid], *away: str, config: str | None = None
) -> Any:
    """The nodes of a deployment, without some."""
    grid = deployment.grid(config)
    grid.__class__ = kind
    assert isinstance(grid, PartialGrid)
    grid.missing = {NAMES.index(name) for name in away}
    return grid


def done(job: str, deployment: Deployment, out: Path, *away: str) -> dict[str, str]:
    """The ServerApp's part of a job."""
    text = (out / "config.toml").read_text()
    told = {
        "config": text,
        "roster": str(deployment.server / "roster.toml"),
        "output": str(out),
        "job": job,
    }
    grid = grid_of(deployment, PartialGrid, *away, config=text)
    return carry_out(told, grid, seal=deployment.seal(text), patience=PATIENCE)


def verified(*arguments: object) -> tuple[int, dict[str, Any]]:
    """What `fedpriv verify` says."""
    found = CliRunner().invoke(app, ["verify", *map(str, arguments), "--json"])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, json.loads(found.stdout)


def handled(deployment: Deployment, name: str, message: Any, *, config: str | None = None) -> Reply:
    """What a party says to one message of its server."""
    request = Request(messages=(message,))
    return Reply.from_bytes(deployment.host(name, config).handle(request.to_bytes()))


def state(deployment: Deployment, name: str) -> Path:
    return deployment.home(name) / "state"


def paid(deployment: Deployment, name: str) -> list[tuple[str, int]]:
    if not (deployment.home(name) / f"{name}.ledger").exists():
        return []
    with closing(deployment.ledger(name)) as ledger:
        return [(row.run, row.round) for row in ledger.rows() if row.kind == "reserved"]


class Power(RuntimeError):
    """A cut."""


def cut() -> None:
    raise Power("off")
