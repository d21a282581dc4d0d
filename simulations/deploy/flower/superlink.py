"""Flower's SuperLink, of which other machines can reach only the part for nodes.

The SuperLink has one port for everything. Its Control API, which starts runs and admits nodes, asks
nobody who they are; its Runtime API hands out the server's tasks. Only the Fleet API, which nodes
use, checks a signature in every request. So the other two answer requests from this machine alone.
Whether it is up it tells everybody, who may not send a body with that question.
Who reaches the Fleet API is settled in `admission`, how much they may send in `bodies`, what they
may say in `fleet_rules`, and when it is passed on in `completeness`. What would find nothing waits
in `held`, and `middleware` keeps requests out of layers that are not for them. What comes before
all that, the head of a request, has a limit in one of uvicorn's two parsers, and none in the one
that it prefers; and its time is limited in `heads`. How often it complains is limited in `sparing`.

Not covered: other users of this machine, and a proxy on it, which makes every request a local one.

A node that was killed could not come back for a minute: until its heartbeat is overdue Flower takes
it for alive, and does not activate it again. Here it does. The request is signed with the key of
the node, so that whoever makes it is that node.
"""

from __future__ import annotations

import os
from importlib import import_module
from ipaddress import ip_address
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import uvicorn
from flwr.common.constant import FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API
from flwr.proto.fleet_pb2 import ActivateNodeResponse
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.superlink import extensions
from flwr.superlink import main as api
from flwr.superlink.cli.flower_superlink import flower_superlink
from flwr.superlink.main import _get_middleware
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.datastructures import Headers
from starlette.middleware import Middleware

from fedpriv.simulations.deploy.flower.gates.admission import FLEET, Signed, refusal
from fedpriv.simulations.deploy.flower.gates.bodies import Bodies, Limits
from fedpriv.simulations.deploy.flower.gates.completeness import (
    complete_instructions,
    complete_replies,
)
from fedpriv.simulations.deploy.flower.gates.fleet_rules import (
    belonging,
    confirming,
    handed,
    replying,
)
from fedpriv.simulations.deploy.flower.gates.heads import PromptHeads
from fedpriv.simulations.deploy.flower.held import held_by_superlink
from fedpriv.simulations.deploy.flower.middleware import lean
from fedpriv.simulations.deploy.flower.patches import put_in_place
from fedpriv.simulations.deploy.flower.sparing import spare

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.server.superlink.linkstate import LinkState
    from starlette.types import ASGIApp, Receive, Scope, Send

    Activate = Callable[..., ActivateNodeResponse]

_HEALTH = "/health"
_PROGRAM = import_module("flwr.superlink.cli.flower_superlink")  # its package has a function there


class FleetOnly:
    """Refuses what comes from another machine and is not for nodes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer 403; what is not HTTP gets no answer."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and _allowed(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refusal(403, "Only nodes are served from outside.")(scope, receive, send)


def _allowed(scope: Scope) -> bool:
    path: str = scope["path"]
    if path == _HEALTH:
        return not _has_body(scope)
    if path.startswith(FLEET):
        return True
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _has_body(scope: Scope) -> bool:
    """Whether a request announces a body: from a stranger it would take the nodes' memory."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or any(
        length != "0" for length in headers.getlist("content-length")
    )


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


def served(**settings: Any) -> None:
    """Serve with limits on the head of a request, and without a line of log for each of them."""
    uvicorn.run(**settings | {"http": PromptHeads, "ws": "none", "access_log": False})


def changes() -> tuple[tuple[ModuleType, str, object], ...]:
    """The rules: the module of Flower's, the name in it, and what it becomes."""
    # Whatever comes first refuses first, and hands on what it lets through.
    gates = (Middleware(FleetOnly), Middleware(Signed), Middleware(Bodies, limits=Limits()))
    layers = (*gates, held_by_superlink())  # only who may ask is held
    fleet, runtime = fleet_handlers, runtime_handlers
    return (
        (_PROGRAM, "uvicorn", SimpleNamespace(run=served)),
        (extensions, "get_middleware", lambda: layers),
        (api, "_get_middleware", lambda: lean(_get_middleware())),
        (fleet, "activate_node", returning(fleet.activate_node)),
        (fleet, "push_messages", replying(fleet.push_messages)),
        (fleet, "push_object", belonging(fleet.push_object)),
        (fleet, "pull_object", handed(fleet.pull_object)),
        (fleet, "confirm_message_received", confirming(fleet.confirm_message_received)),
        (fleet, "pull_messages", complete_instructions(fleet.pull_messages)),
        (runtime, "pull_messages", complete_replies(runtime.pull_messages)),
    )


def main() -> None:
    """Run Flower's SuperLink, by ``python -m``, with the options of flower-superlink."""
    put_in_place(changes())
    spare()
    # An older API, on a port of its own, which none of this would guard.
    for name in (FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API):
        os.environ.pop(name, None)
    flower_superlink()


if __name__ == "__main__":
    main()
