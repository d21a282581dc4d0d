"""A party in a fresh process for every question: queries to it in the clear, and its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.numbers.fixed_point import Ring

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
POLICY: dict[str, Any] = {"secure_aggregation": "off", "min_noise": 0.01}
OFF: dict[str, Any] = {"run": {"secure_aggregation": "off"}}


def deployed(folder: Path, **settings: Any) -> Deployment:
    folder.chmod(0o700)
    return Deployment(folder=folder, policy=POLICY, experiment=OFF, **settings)


def opened(deployment: Deployment) -> DeployedParty:
    """The party of a fresh process."""
    party = deployment.host("north").party
    assert isinstance(party, DeployedParty)
    return party


def answer(deployment: Deployment, query: Query) -> Ring:
    """By a fresh process."""
    with journal(deployment).held():
        return opened(deployment).answer(query)


def journal(deployment: Deployment) -> Journal:
    return Journal(deployment.home("north") / "state")


def engagement(deployment: Deployment) -> Any:
    return deployment.host("north").engagement


def plain(deployment: Deployment, round_: int = 0, **changes: Any) -> GradientQuery:
    query = GradientQuery(
        run=f"{engagement(deployment).run}-1",
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=R),
        theta=np.zeros(3),
        clip_norm=1.0,
    )
    return replace(query, **changes)


def never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a record was read")
