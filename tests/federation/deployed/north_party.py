"""The party of the north, in a fresh process each time: what it is asked, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.deployed.host import DeployedHost
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.deployed.party import DeployedParty
from fedpriv.federation.protocol.wire import Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.bounds import share_mechanism
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.secagg import FixedPoint

if TYPE_CHECKING:
    from fedpriv.secagg.numbers.fixed_point import Ring
    from tests.federation.deployed.deployments import Deployment

RUN = bytes(range(32))
CLEAR: dict[str, Any] = {
    "policy": {"secure_aggregation": "off"},
    "experiment": {"run": {"secure_aggregation": "off"}},
}


def north(deployment: Deployment, config: str | None = None) -> DeployedHost:
    host = deployment.host("north", config)
    assert isinstance(host, DeployedHost)
    return host


def party(deployment: Deployment) -> DeployedParty:
    """The party of a fresh process."""
    found = north(deployment).party
    assert isinstance(found, DeployedParty)
    return found


def query(deployment: Deployment, round_: int = 0, **changes: Any) -> GradientQuery:
    stated = GradientQuery(
        run=f"{north(deployment).engagement.run}-1",
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=GaussianEvent(relative_noise=10.0, adjacency=Adjacency.REPLACE_ONE),
        theta=np.full(3, 0.1 * round_),
        clip_norm=1.0,
    )
    return replace(stated, **changes)


def noisy(deployment: Deployment, round_: int = 0, **changes: Any) -> GradientQuery:
    """With a share of the noise: every draw differs."""
    share = NoiseShare(law="skellam", parameter=1e16, minimum=2, colluders=1)
    stated = query(deployment, round_, share=share, **changes)
    mechanism = share_mechanism(stated, north(deployment).engagement.task)
    assert mechanism is not None
    return replace(stated, event=mechanism.event())


def answer(deployment: Deployment, asked: GradientQuery) -> Ring:
    """By a fresh process."""
    with Journal(deployment.home("north") / "state").held():
        return party(deployment).answer(asked)


def join(run: bytes = RUN) -> Join:
    return Join(run=run, round=0, party=0)


def ask(
    deployment: Deployment, *records: Any, asked: GradientQuery | None = None, **more: Any
) -> Reply:
    """A message to a fresh process of the party."""
    data = b"" if asked is None else codec.to_bytes(asked)
    request = Request(messages=records, query=data).to_bytes()
    return Reply.from_bytes(north(deployment, **more).handle(request))
