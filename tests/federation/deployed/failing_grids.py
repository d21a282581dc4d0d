"""Grids that fail: without some parties, interrupted before a step, or all down for a while."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fedpriv.federation.engines.local import LocalGrid
from fedpriv.federation.party.client_app import client_app
from tests.federation.deployed.deployments import FOUR, Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from flwr.app import Message

SHARES: dict[str, Any] = {
    **FOUR,
    "policy": {"noise_at": "parties"},
    "experiment": {"privacy": {"noise_at": "parties"}, "run": {"dropout": 0.25}},
}


class PartialGrid(LocalGrid):
    """A grid on which some parties are missing: nothing reaches them."""

    missing: set[int]

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in super().get_node_ids() if node - 1001 not in self.missing]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        there = [m for m in messages if m.metadata.dst_node_id - 1001 not in self.missing]
        return super().push_messages(there)


class InterruptedGrid(PartialGrid):
    """Something happens before the first message of a step is sent."""

    step: str
    between: Callable[[], object] | None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        outgoing = list(messages)
        if self.between and outgoing[0].metadata.message_type == f"query.{self.step}":
            happens, self.between = self.between, None
            happens()
        return super().push_messages(outgoing)


def partial_grid(deployment: Deployment, *missing: int) -> InterruptedGrid:
    party = partial(deployment.signed_host, config=deployment.config())
    grid = InterruptedGrid(client_app(party), len(deployment.names))
    grid.missing, grid.between = set(missing), None
    return grid


def deployed(folder: Path, **settings: Any) -> Deployment:
    folder.chmod(0o700)
    return Deployment(folder=folder, **settings)
