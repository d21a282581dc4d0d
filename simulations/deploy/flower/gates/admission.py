"""Admission to the Fleet API: registered node key, fresh timestamp and signature, before the body.

Flower checks the same three, but after it has read and parsed the whole body: so anybody who
reached the port could fill the server's memory. All of it is in the headers, and is checked here
before the first byte of a body is asked for. Flower's own check follows, and binds the key to the
node that the body names.

The key is looked up for every request: one that was unregistered is refused from then on, on
connections that are open as well. 401 makes a SuperNode end. Only its first request, the
activation, is answered by 412 if the key is not registered, because of that one a SuperNode tells
the reason in its log, and ends with exit code 1.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from datetime import datetime
from typing import TYPE_CHECKING

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse

if TYPE_CHECKING:
    from flwr.server.superlink.linkstate import LinkState
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

FLEET = "/v1/fleet/"
"""Where the paths of the Fleet API begin."""
NODE = "fedpriv.node"
"""Where a request's scope has the number of the node whose key signed it."""
_ACTIVATE = f"{FLEET}activate-node"
_CLOSE = {"connection": "close"}  # what is left of the body is not even read to be thrown away
# Some releases of Starlette take the path from a crafted Host, and Flower its checks from the path.
_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")


def refusal(status: int, why: str) -> Response:
    """An answer that ends the connection."""
    return PlainTextResponse(why, status_code=status, headers=_CLOSE)


class Signed:
    """Refuses Fleet requests whose headers do not prove a registered node."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, with the node in its scope, or answer 400, 401 or 412."""
        if scope["type"] != "http" or not scope["path"].startswith(FLEET):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not _HOST.fullmatch(headers.get("host", "")):
            await refusal(400, "The request must name one host.")(scope, receive, send)
            return
        state = scope["app"].state.linkstate_factory.state()
        known, node = await run_in_threadpool(signer, headers, state)
        if node is not None:
            await self._app({**scope, NODE: node}, receive, send)
        elif scope["path"] == _ACTIVATE and not known:
            await _unregistered()(scope, receive, send)
        else:
            answer = refusal(401, "The request is not signed by a registered node.")
            await answer(scope, receive, send)


def signer(headers: Headers, state: LinkState) -> tuple[bool, int | None]:
    """Whether the key of a request is registered, and the node that signed it, if one did.

    A key that is not registered is never parsed, and no signature is checked with it.
    """
    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        signed = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.fromisoformat(signed)).total_seconds()
    except (KeyError, ValueError, TypeError, binascii.Error):
        return True, None
    if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
        return True, None
    node = state.get_node_id_by_public_key(key)
    if node is None:
        return False, None
    try:
        valid = verify_signature(bytes_to_public_key(key), signed.encode("ascii"), signature)
    except ValueError:
        return True, None
    return True, node if valid else None


def _unregistered() -> Response:
    """Flower's own error for this, which its SuperNode prints, with the remedy."""
    return JSONResponse(
        {
            "code": int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED),
            "detail": "Failed to activate SuperNode: its key is not registered, or was expelled.",
            "extra": "The coordinator registers it with `fedpriv deploy add BUNDLE.toml`.",
        },
        status_code=412,
        headers=_CLOSE,
    )
