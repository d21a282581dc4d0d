"""A stated plan of samples: a deployment that keeps it, joined and asked as a server would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.deployed.stated_plan import StatedPlan
from fedpriv.federation.protocol.wire import Ask, Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PoissonGaussianEvent
from fedpriv.privacy.ledger.composition import block_epsilon
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import Deployment

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.deployed.host import DeployedHost
    from fedpriv.privacy.events import Event

A = Adjacency.ADD_REMOVE
DELTA = 1e-6
SEAT = b"p" * 32
SAMPLED: dict[str, Any] = {
    "budget": {"adjacency": "add-remove", "composition": "basic"},
    "experiment": {
        "strategy": {"sampling_rate": 0.2, "rounds": 3},
        "privacy": {"adjacency": "add-remove"},
    },
}


def event(noise: float = 3.0, rate: float = 0.2) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)


STEPS: tuple[tuple[Event, int], ...] = ((event(3.0), 2), (event(4.0), 1))


def deployed(folder: Path, *, clear: bool = False, **budget: Any) -> Deployment:
    folder.chmod(0o700)
    settings = {**SAMPLED, "budget": {**SAMPLED["budget"], **budget}}
    if clear:  # one message is one answer
        settings["policy"] = {"secure_aggregation": "off"}
        settings["experiment"] = {
            **settings["experiment"],
            "run": {"secure_aggregation": "off"},
        }
    return Deployment(folder=folder, **settings)


def north(deployment: Deployment) -> DeployedHost:
    """A fresh process."""
    return deployment.host("north")


def stated(deployment: Deployment, **changes: Any) -> StatedPlan:
    values: dict[str, Any] = {
        "run": f"{north(deployment).engagement.run}-1",
        "epsilon": 2.0,
        "delta": DELTA,
        "accountant": "pld",
        "clip": 1.0,
        "steps": STEPS,
        **changes,
    }
    return StatedPlan(**values)


def query(deployment: Deployment, round_: int = 0, **changes: Any) -> GradientQuery:
    asked = GradientQuery(
        run=f"{north(deployment).engagement.run}-1",
        round=round_,
        grid=FixedPoint(step=2.0**-20, bits=64),
        event=stated(deployment).event(round_) or event(),
        theta=np.zeros(3),
        clip_norm=1.0,
        sampling_rate=0.2,
    )
    return replace(asked, **changes)


def join(deployment: Deployment, plan: StatedPlan | bytes, *, seat: bytes = SEAT) -> Reply:
    data = plan if isinstance(plan, bytes) else plan.to_bytes()
    request = Request(messages=(Join(run=seat, round=0, party=0, plan=data),))
    return Reply.from_bytes(north(deployment).handle(request.to_bytes()))


def ask(deployment: Deployment, asked: GradientQuery, *, seat: bytes = SEAT) -> Reply:
    message = Ask(run=seat, round=asked.round + 1, party=0)
    request = Request(messages=(message,), query=codec.to_bytes(asked))
    return Reply.from_bytes(north(deployment).handle(request.to_bytes()))


def rows(deployment: Deployment) -> list[str]:
    with deployment.ledger("north") as ledger:
        ledger.verify()
        return [row.kind for row in ledger.rows() if row.kind in ("declared", "reserved")]


def cost(steps: tuple[tuple[Event, int], ...] = STEPS) -> float:
    return block_epsilon(steps, DELTA)
