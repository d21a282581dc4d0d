"""Replies at the ServerApp: one that cannot be read is an error of its sender's, and no other's.

Flower's grid pulls all replies that have come, marks them as delivered, and puts their objects
together one by one. An object of one reply that it could not read raised an error there, and the
replies of all other parties that had come with it were gone. Whom a reply is from and what it
answers is in its root object, which the SuperLink has read when it took it
(`fedpriv.simulations.deploy.flower.gates.fleet_rules`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr.app import Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.common.serde_utils import metadata_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.supercore.inflatable.inflatable_object import get_object_body
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid import http_grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Inflate = Callable[..., Any]

_UNREADABLE = "the reply cannot be read"


def changes() -> tuple[tuple[ModuleType, str, object], ...]:
    """What is described above: the module of Flower's, the name in it, and what it becomes."""
    name = "inflate_object_from_contents"
    return ((http_grid, name, readable(inflate_object_from_contents)),)


def readable(inflate: Inflate) -> Inflate:
    """Put a message together from its objects, or make an error of it, whatever is wrong."""

    def inflated(object_id: str, object_contents: dict[str, bytes]) -> Message:
        root = object_contents[object_id]  # which is taken out when it is used
        try:
            found = inflate(object_id, object_contents)
            read = isinstance(found, Message) and (
                found.has_error() or isinstance(found.content, RecordDict)
            )
        except Exception:  # of whatever kind: a party chose the bytes
            read = False
        return found if read else _unreadable(root)

    return inflated


def _unreadable(root: bytes) -> Message:
    said = ProtoMessage.FromString(get_object_body(root, Message)).metadata
    error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, _UNREADABLE)
    return make_message(metadata=metadata_from_proto(said), error=error)
