"""Replies that no SuperNode sends: each breaks one rule of the SuperLink."""

from __future__ import annotations

from typing import Any

from flwr.app import Error, Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_tree

from tests.simulations.deploy.fleet import answer_to


def changed(message: Message, **metadata: Any) -> Message:
    """The message with other metadata, which no constructor would make."""
    for name, value in metadata.items():
        message.metadata.__dict__[f"_{name}"] = value
    return message


def two_messages(own: Message) -> dict[str, Any]:
    messages = [answer_to(own, data) for data in (b"one", b"two")]
    return {"messages": messages, "trees": [get_object_tree(each) for each in messages]}


def no_tree(own: Message) -> dict[str, Any]:
    return {"messages": [answer_to(own)], "trees": []}


def other_root(own: Message) -> dict[str, Any]:
    return {"messages": [answer_to(own)], "trees": [get_object_tree(answer_to(own, b"other"))]}


def no_question(own: Message) -> dict[str, Any]:
    return _whole(changed(answer_to(own), reply_to_message_id=""))


def unknown_question(own: Message) -> dict[str, Any]:
    return _whole(changed(answer_to(own), reply_to_message_id="ab" * 32))


def other_run(own: Message) -> dict[str, Any]:
    return _whole(changed(answer_to(own), run_id=own.metadata.run_id + 1))


def no_time(own: Message) -> dict[str, Any]:
    return _whole(changed(answer_to(own), created_at=float("nan")))


def many_objects(own: Message) -> dict[str, Any]:
    message = answer_to(own)
    leaves = [ObjectTree(object_id=f"{number:064x}") for number in range(256)]
    return {
        "messages": [message],
        "trees": [ObjectTree(object_id=message.object_id, children=leaves)],
    }


def part_of_another_message(own: Message) -> dict[str, Any]:
    message, other = answer_to(own), get_object_tree(own)
    tree = ObjectTree(object_id=message.object_id, children=[other])
    return {"messages": [message], "trees": [tree]}


def odd_ones(own: Message) -> list[Message]:
    """Replies that keep the rules of the SuperLink, or are refused, and say what none says."""
    return [
        changed(answer_to(own, b"ttl"), ttl=-1e300),
        changed(answer_to(own, b"past"), created_at=-1e308),
        changed(answer_to(own, b"future"), created_at=1e308, ttl=1.0),
        changed(answer_to(own, b"type"), message_type="\x00\x1b"),
        changed(answer_to(own, b"group"), group_id="x" * 10**5),
        Message(Error(-5, None), reply_to=own),
        Message(Error(10**9, "\x1b[2J" * 100), reply_to=own),
    ]


def _whole(message: Message) -> dict[str, Any]:
    return {"messages": [message], "trees": [get_object_tree(message)]}


ALL = (
    two_messages,
    no_tree,
    other_root,
    no_question,
    unknown_question,
    other_run,
    no_time,
    many_objects,
    part_of_another_message,
)
