"""A party's file, the policy in it, a run that keeps it, and queries to hold against it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedpriv.data import Bounds
from fedpriv.federation.deployed.engagement import Engagement
from fedpriv.federation.deployed.guard import check_terms
from fedpriv.federation.deployed.policy import PartyPolicy
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.level import Protection
from fedpriv.federation.queries.kinds import ErmQuery, GradientQuery, Query
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import Event, GaussianEvent
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from tests.federation.worlds import linear_task

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
SERVER = "sha256:" + "0" * 64
FILE: dict[str, Any] = {
    "version": 1,
    "party": {
        "name": "north",
        "data": "records.csv",
        "schema": "schema.toml",
        "ledger": "north.ledger",
        "identity": "identity.key",
        "roster": "roster.toml",
        "state": "state",
    },
    "budget": {"epsilon": 2.0, "delta": 1e-6, "adjacency": "replace-one"},
    "policy": {
        "strategies": ["gradient-perturbation"],
        "queries": ["gradient", "erm"],
        "min_parties": 3,
        "max_clip": 1.0,
        "min_noise": 0.5,
        "noise_at": "server",
        "secure_aggregation": "active",
        "server": SERVER,
        "server_identity": SERVER,
    },
}


def file(**tables: Any) -> dict[str, Any]:
    values = deepcopy(FILE)
    for table, keys in tables.items():
        values[table] = {**values[table], **keys}
    return values


TASK = linear_task((40, 25, 60), 3, regulariser=0.1)
POLICY = PartyPolicy(
    strategies=("gradient-perturbation",),
    queries=("gradient", "erm", "loss", "risk-gradient", "accuracy", "moments", "hessian"),
    min_parties=3,
    max_clip=1.0,
    min_noise=0.5,
    noise_at="server",
    secure_aggregation="semi-honest",
    server=SERVER,
    server_identity=SERVER,
)
ENGAGEMENT = Engagement(
    strategy="gradient-perturbation",
    run="gradient-perturbation-abc",
    task=TASK,
    bounds=Bounds(),
    protection=Protection(level="semi-honest"),
    roster=bytes(32),
    budget=Budget(epsilon=1.0, delta=1e-6),
    shown=bytes(32),
)
EVENT = GaussianEvent(relative_noise=2.0, adjacency=R)
GRID = FixedPoint(step=2.0**-20, bits=64)
QUERY = GradientQuery(
    run="gradient-perturbation-abc-1",
    round=0,
    grid=GRID,
    event=EVENT,
    theta=np.zeros(3),
    clip_norm=1.0,
)
ERM = ErmQuery(run=QUERY.run, round=0, grid=GRID, event=EVENT, regulariser=0.1, tolerance=1e-6)


def charged(query: Query, *, adjacency: Adjacency = R, **policy: Any) -> Event:
    return check_terms(query, ENGAGEMENT, replace(POLICY, **policy), adjacency, Unit.RECORD)


def refused(query: Query, message: str, *, adjacency: Adjacency = R, **policy: Any) -> None:
    with pytest.raises(QueryRefused, match=message):
        charged(query, adjacency=adjacency, **policy)
