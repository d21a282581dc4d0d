"""The ClientApp: Flower's messages in, Flower's messages out, and a party host in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedpriv.federation.engines.courier import envelope, opened
from fedpriv.federation.party.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = ("join", "ask", "advertise", "share", "answer", "confirm", "reveal")
"""The exchanges that a party knows: ``query.join`` and so on."""

_MEMORY = "fedpriv"


class Host(Protocol):
    """A party that handles requests, such as `fedpriv.federation.party.host.PartyHost`."""

    def handle(self, memory: Memory, data: bytes) -> tuple[Memory, bytes]:
        """The reply to a request, and what to remember before it leaves."""
        ...


class PartyFailed(RuntimeError):
    """A party could not handle a message; only the kind of the error is told."""


def client_app(open_party: Callable[[Context], Host]) -> ClientApp:
    """A ClientApp whose node is the party that ``open_party`` finds for a context.

    The party's memory is in `Context.state`, because a deployed ClientApp is a fresh process for
    every message. It is replaced before the reply is returned.
    """
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        try:
            host = open_party(context)
            memory, reply = host.handle(_remembered(context), opened(message))
        except Exception as error:
            # Flower tells the server the text of an exception, which may have met a record.
            raise PartyFailed(f"the party failed: {type(error).__name__}.") from error
        context.state[_MEMORY] = ConfigRecord({_MEMORY: memory.to_bytes()})
        return Message(envelope(reply), reply_to=message)

    for step in STEPS:
        app.query(step)(handle)
    return app


def _remembered(context: Context) -> Memory:
    if _MEMORY not in context.state:
        return Memory()
    data = context.state.config_records[_MEMORY][_MEMORY]
    if not isinstance(data, bytes):
        raise ValueError("the memory of a party must be bytes.")
    return Memory.from_bytes(data)
