"""ClientApp of Flower around a party host: Flower's messages in, Flower's messages out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from fedpriv.federation.engines.courier import envelope, opened
from fedpriv.federation.party.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr.app import RecordDict


STEPS = (
    *("join", "ask", "advertise", "share", "answer", "confirm", "reveal"),
    *("attest", "handover", "cancel"),
)
"""The exchanges that a party supports: ``query.join`` and so on."""

_MEMORY = "fedpriv"


class Host(Protocol):
    """A party that handles requests, such as `fedpriv.federation.party.host.PartyHost`."""

    def handle(self, data: bytes) -> bytes:
        """The reply to a request, returned after the new state is stored."""
        ...


class ContextStore(MemoryStore):
    """`Store` in the state of a Flower `Context`, which survives a process per message.

    Args:
        state: Of the context; replaced before a reply leaves.
    """

    def __init__(self, state: RecordDict) -> None:
        super().__init__()
        self._state = state

    @contextmanager
    def held(self) -> Iterator[None]:
        """Read the state before a message, and replace it after."""
        if _MEMORY in self._state:
            data = self._state.config_records[_MEMORY][_MEMORY]
            if not isinstance(data, bytes):
                raise ValueError("the memory of a party must be bytes.")
            self.read(data)
        yield
        self._state[_MEMORY] = ConfigRecord({_MEMORY: self.to_bytes()})


class PartyFailed(RuntimeError):
    """A party could not handle a message; the server gets only the error's type."""


def client_app(open_party: Callable[[Context], Host]) -> ClientApp:
    """A ClientApp whose node is the party that ``open_party`` finds for a context."""
    app = ClientApp()

    def handle(message: Message, context: Context) -> Message:
        try:
            reply = open_party(context).handle(opened(message))
        except Exception as error:
            # Flower sends the server the text of an exception, which may reveal a record.
            raise PartyFailed(f"the party failed: {type(error).__name__}.") from error
        return Message(envelope(reply), reply_to=message)

    for step in STEPS:
        app.query(step)(handle)
    return app
