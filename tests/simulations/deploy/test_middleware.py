"""Layers of the SuperLink: which stay, where they act, and that none is lost unseen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from flwr.superlink import main as superlink
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from starlette.middleware import Middleware

from fedpriv.simulations.deploy.flower.middleware import FLEET, OnlyFor, lean

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Layer:
    """Notes that a request went through."""

    def __init__(self, app: ASGIApp, *, through: list[str]) -> None:
        self._app = app
        self._through = through

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._through.append(scope["path"])
        await self._app(scope, receive, send)


async def _end(_scope: Scope, _receive: Receive, _send: Send) -> None:
    return


async def _nothing() -> Message:
    return {"type": "http.request"}


async def _ignore(_message: Message) -> None:
    return


async def _asked(layer: Middleware, *paths: str) -> None:
    app = layer.cls(_end, *layer.args, **layer.kwargs)
    for path in paths:
        await app({"type": "http", "path": path}, _nothing, _ignore)


def test_a_layer_acts_on_its_own_paths_alone() -> None:
    through: list[str] = []
    inner = Middleware(_Layer, through=through)
    only = Middleware(OnlyFor, prefix=FLEET, layer=inner)
    asyncio.run(_asked(only, f"{FLEET}pull", "/v1/runtime/pull"))
    assert through == [f"{FLEET}pull"]


def test_a_layer_that_is_not_known_stays() -> None:
    stranger = Middleware(_Layer, through=[])
    assert lean([stranger]) == [stranger]


def test_nodes_are_still_asked_who_they_are() -> None:
    kept: list[Any] = [layer.kwargs for layer in lean(superlink._get_middleware())]
    inner = {each["layer"].cls: each["prefix"] for each in kept if "layer" in each}
    assert inner[NodeAuthMiddleware] == FLEET


def test_flower_has_the_layers_that_are_left_out() -> None:
    """A new version may replace one by another that does something."""
    flowers = superlink._get_middleware()
    assert len(flowers) - len(lean(flowers)) == 4
