"""Body limits of the SuperLink: length, memory in flight, and progress.

Flower reads every body to its end, however long, and waits for ever. Here a request must say its
length before a byte is read; what it says is bounded, is counted against the memory of all bodies
at once, and is not exceeded; and a sender that makes no progress is cut off. The body is read here
and handed on whole, as Flower would have it anyway, so that it is in memory once.

A node gets a quarter of that memory, so that one party alone does not keep the others out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from fedpriv._validate import require_count, require_positive
from fedpriv.simulations.deploy.flower.gates.admission import FLEET, NODE, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be sent.

    Attributes:
        body: Bytes of one body.
        in_flight: Bytes of all bodies that are being read or answered.
        node: The same, of one node.
        silence: Seconds without a byte after which a sender is cut off.
    """

    body: int = 64 * _MIB
    in_flight: int = 512 * _MIB
    node: int = 128 * _MIB
    silence: float = 30.0

    def __post_init__(self) -> None:
        require_count(body=self.body, in_flight=self.in_flight, node=self.node)
        require_positive(silence=self.silence)


class Refused(Exception):
    """A body that is not read, or not to its end: the status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Bodies:
    """Reads bodies within limits, and hands them on.

    Args:
        app: What answers.
        limits: How much may be sent.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._in_flight: Counter[object] = Counter()  # of one event loop, so that no lock is needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 408, 411, 413 or 503 and close, or let the request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            length = self._declared(scope)
            with self._room(scope.get(NODE), length):
                body = await self._read(receive, length)
                if body is not None:
                    await self._app(scope, _replayed(body, receive), send)
        except Refused as refused:
            await refusal(refused.status, str(refused))(scope, receive, send)

    def _declared(self, scope: Scope) -> int:
        """The length that a request declares; 0 if it has no body."""
        headers = Headers(scope=scope)
        lengths = headers.getlist("content-length")
        if not lengths:
            if "transfer-encoding" in headers or scope["path"].startswith(FLEET):
                raise Refused(411, "The request must say how long its body is.")
            return 0
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            raise Refused(400, "The length of the body must be one number.")
        if len(lengths[0]) > len(str(self._limits.body)) or int(lengths[0]) > self._limits.body:
            raise Refused(413, f"A body may have {self._limits.body} bytes.")
        return int(lengths[0])

    @contextmanager
    def _room(self, node: int | None, length: int) -> Iterator[None]:
        """Room for a body until it is answered. Requests of this machine have no node."""
        held = self._in_flight
        own = node is not None and held[node] + length > self._limits.node
        if own or held.total() + length > self._limits.in_flight:
            raise Refused(503, "Too much is being sent: try again.")
        held[node] += length
        try:
            yield
        finally:
            held[node] -= length
            if not held[node]:
                del held[node]

    async def _read(self, receive: Receive, length: int) -> bytes | None:
        """The body; None if the sender is gone."""
        parts, count, more = [], 0, True
        while more:
            try:
                message = await asyncio.wait_for(receive(), self._limits.silence)
            except TimeoutError:
                raise Refused(408, "The body did not come.") from None
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            count += len(part)
            if count > length:
                raise Refused(413, "The body is longer than it was said to be.")
            parts.append(part)
            more = message.get("more_body", False)
        if count < length:
            raise Refused(400, "The body is shorter than it was said to be.")
        return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What the app receives: the body at once, then what comes afterwards."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed
