"""Heads of requests: each must come in time, or its connection is ended.

uvicorn ends a connection that is idle between two requests, and waits for ever for the rest of a
head. Whoever reaches the port, without any key, could keep as many connections open as there may
be. The time counts from the first moment, and more of the head does not add to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 10.0
"""From the beginning of a connection, or of a further request on it, to the end of the head."""


class PromptHeads(H11Protocol):
    """A connection whose heads come within `seconds`."""

    seconds = HEAD_SECONDS
    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Go on to wait for a head, or stop when it is there."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._overdue is None:
            self._overdue = self.loop.call_later(self.seconds, self.transport.abort)

    def _forget(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
