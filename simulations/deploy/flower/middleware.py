"""Middleware of Flower's SuperLink, each only where it has something to do.

Flower puts every request through nine layers, most of which look at the path and pass it on, and
passing on costs more than all that a request is for. Here a layer sees the requests of the API that
it is for, and layers for what no deployment turns on (event logs, tracing, licences) are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.supercore.routers.runtime.tracing import RuntimeTracingMiddleware
from flwr.superlink.routers.control.middlewares import (
    ControlAuthenticationMiddleware,
    ControlEventLogMiddleware,
    ControlLicenseMiddleware,
    ControlSensitiveResponseMiddleware,
)
from flwr.superlink.routers.fleet.middlewares import FleetEventLogMiddleware
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from starlette.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

CONTROL, FLEET = "/v1/control/", "/v1/fleet/"
_ONLY_FOR: dict[object, str] = {
    ControlSensitiveResponseMiddleware: CONTROL,
    ControlAuthenticationMiddleware: CONTROL,
    NodeAuthMiddleware: FLEET,
}
_IDLE: frozenset[object] = frozenset(
    {
        ControlLicenseMiddleware,
        ControlEventLogMiddleware,
        FleetEventLogMiddleware,
        RuntimeTracingMiddleware,
    }
)


class OnlyFor:
    """A layer that requests of other paths go around."""

    def __init__(self, app: ASGIApp, *, prefix: str, layer: Middleware) -> None:
        self._app = app
        self._prefix = prefix
        self._layer = layer.cls(app, *layer.args, **layer.kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go through the layer, or around it."""
        inside = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        await (self._layer if inside else self._app)(scope, receive, send)


def lean(layers: Sequence[Middleware]) -> list[Middleware]:
    """Flower's layers in their order; one that is not known here stays as it is."""
    kept = []
    for layer in layers:
        if layer.cls in _IDLE:
            continue
        prefix = _ONLY_FOR.get(layer.cls)
        kept.append(layer if prefix is None else Middleware(OnlyFor, prefix=prefix, layer=layer))
    return kept
