"""A party that is backed up, loses what it has, and is put back."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.federation.protocol.wire import Ask
from fedpriv.simulations.deploy.backups.backup import back_up
from fedpriv.simulations.deploy.backups.newest import Assurance
from fedpriv.simulations.deploy.backups.restore import restore
from fedpriv.simulations.deploy.folders import PartyFolder
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.north_party import CLEAR, RUN, ask, join, query

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import GradientQuery

NOBODY_KNOWS = "nothing here shows whether the ledger"


def answered(folder: Path) -> Deployment:
    """Of which the party has given one answer, in a run that it joined."""
    folder.chmod(0o700)
    deployment = Deployment(folder=folder, budget={"composition": "gdp"}, **CLEAR)
    ask(deployment, join())
    ask(deployment, Ask(run=RUN, round=1, party=0), asked=query(deployment))
    return deployment


def home(deployment: Deployment) -> PartyFolder:
    return PartyFolder(deployment.home("north"))


def saved(deployment: Deployment, name: str = "north.backup", **options: Any) -> Path:
    path = deployment.folder / name
    back_up(home(deployment), path, **options)
    return path


def put_back(deployment: Deployment, backup: Path, **said: Any) -> tuple[str, ...]:
    """Restore the party, which accepts its roster again if it has forgotten which."""
    told = restore(backup, deployment.home("north"), Assurance(**said))
    if "deploy accept" in told[-1]:
        with pytest.raises(ValueError, match="no roster was accepted by 'north' yet"):
            deployment.host("north")
        deployment.accept("north")
        told = told[:-1]
    return told


def head(deployment: Deployment) -> str:
    with deployment.ledger("north") as ledger:
        return ledger.head


def lose(deployment: Deployment, *, ledger: bool = True, state: bool = True) -> None:
    folder = deployment.home("north")
    if ledger:
        for path in folder.glob("north.ledger*"):
            path.unlink()
    if state:
        shutil.rmtree(folder / "state")


def of_another_run(deployment: Deployment) -> GradientQuery:
    return query(deployment, run=query(deployment).run + "b")
