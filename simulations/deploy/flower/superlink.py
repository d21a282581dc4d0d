"""Flower's SuperLink, of which other machines can reach only the part for nodes.

The SuperLink has one port for everything. Its Control API, which starts runs and admits nodes, asks
nobody who they are; its Runtime API hands out the server's tasks. Only the Fleet API, which nodes
use, checks a signature in every request. So the other two answer requests from this machine alone.

Not covered: other users of this machine, and a proxy on it, which makes every request a local one.

A node that was killed could not come back for a minute: until its heartbeat is overdue Flower takes
it for alive, and does not activate it again. Here it does. The request is signed with the key of
the node, so that whoever makes it is that node.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from flwr.proto.fleet_pb2 import ActivateNodeResponse
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.superlink import extensions
from flwr.superlink.cli.flower_superlink import flower_superlink
from flwr.superlink.servicer.fleet import fleet_handlers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.server.superlink.linkstate import LinkState
    from starlette.types import ASGIApp, Receive, Scope, Send

    Activate = Callable[..., ActivateNodeResponse]

PUBLIC = ("/v1/fleet/", "/health")
"""What other machines may ask for."""


class FleetOnly:
    """Refuses what comes from another machine and is not for nodes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 403."""
        if scope["type"] == "lifespan" or _allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = PlainTextResponse("Only nodes are served from outside.", status_code=403)
            await refusal(scope, receive, send)


def _allowed(scope: Scope) -> bool:
    path: str = scope["path"]
    if path.startswith(PUBLIC[0]) or path == PUBLIC[1]:
        return True
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False


def returning(activate: Activate) -> Activate:
    """Let a node return that is taken for alive: its own request is as good as a heartbeat."""

    def activated(request: ActivateNodeRequest, state: LinkState) -> ActivateNodeResponse:
        try:
            return activate(request=request, state=state)
        except FlowerError as error:
            node = state.get_node_id_by_public_key(request.public_key)
            if error.code != ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED or node is None:
                raise
            if not state.acknowledge_node_heartbeat(node, request.heartbeat_interval):
                raise
            return ActivateNodeResponse(node_id=node)

    return activated


def main() -> None:
    """Run Flower's SuperLink, by ``python -m``, with the options of flower-superlink."""
    extensions.get_middleware = lambda: (Middleware(FleetOnly),)
    fleet_handlers.activate_node = returning(fleet_handlers.activate_node)
    flower_superlink()


if __name__ == "__main__":
    main()
