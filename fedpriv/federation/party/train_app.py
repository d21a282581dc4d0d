"""A ClientApp for Flower's own loop: one party answers train messages, without masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.clientapp import ClientApp

from fedpriv.federation.party.client_app import PartyFailed
from fedpriv.federation.protocol.clear_messages import answer_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context, Message

    from fedpriv.federation.party.party import Party


def train_app(open_party: Callable[[Context], Party]) -> ClientApp:
    """A ClientApp whose node is the party that ``open_party`` finds for a context.

    The party checks every query against its task and its policy. The server learns only the type of
    an error, because its text may reveal a record.
    """
    app = ClientApp()

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        try:
            return answer_message(message, open_party(context))
        except Exception as error:
            raise PartyFailed(f"the party failed: {type(error).__name__}.") from error

    return app
