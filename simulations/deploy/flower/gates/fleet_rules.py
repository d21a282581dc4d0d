"""Fleet rules: what a registered node may push, pull and confirm at the SuperLink.

Flower's Fleet API binds neither the source of a message nor what it replies to: a party could send
another one instructions as if it were the server, answer in its place, or delete what is meant for
it. Here every request is about the node's own messages, or is refused with 403, and nothing is
stored:

- a reply is one message with one tree of objects, whose root is the message; it comes from the node
  itself, goes to the SuperLink, and answers an instruction which that node got in the same run and
  which has not expired;
- one reply of a node waits to be fetched: an earlier one, which nobody has fetched since, gives way
  to it, and what was answered is kept no longer. A party that answers each instruction so late that
  nobody looks for the answer any more would fill the server's disk;
- an object is taken only for such a reply, and only as that reply announced it;
- an object is handed out only if it belongs to an instruction for this node;
- only its own instructions can a node confirm, which deletes them.

Whose request it is, Flower's own check has established: the node that a request names is the one
whose key signed it.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

from flwr.app import Message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.supercore.date import now
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
    is_valid_sha256_hash,
    iterate_object_tree,
)
from flwr.supercore.utils import uint64_to_int64
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
    from flwr.proto.message_pb2 import (
        ConfirmMessageReceivedRequest,
        ConfirmMessageReceivedResponse,
        PullObjectRequest,
        PullObjectResponse,
        PushObjectRequest,
        PushObjectResponse,
    )
    from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState
    from flwr.supercore.object_store import ObjectStore

    Push = Callable[..., PushMessagesResponse]
    PushObject = Callable[..., PushObjectResponse]
    PullObject = Callable[..., PullObjectResponse]
    Confirm = Callable[..., ConfirmMessageReceivedResponse]

MOST_OBJECTS = 256
"""Of one reply. Those of fedpriv have three."""
MOST_BYTES = 128 * 1024 * 1024
"""Of all objects of one reply, so that no party fills the server's disk."""

_INSTRUCTION = """
SELECT message_id FROM message_ins
WHERE message_id = :message AND dst_node_id = :node AND run_id = :run AND delivered_at != ''
    AND created_at + ttl > :now
"""
_REPLY = "SELECT message_id FROM message_res WHERE reply_to_message_id = :message"
_WAITING = """
SELECT message_id, reply_to_message_id FROM message_res
WHERE src_node_id = :node AND message_id != :root
"""
_OBJECT = "SELECT object_id FROM objects WHERE object_id = :object"
_MESSAGES = """
SELECT message_id FROM message_ins WHERE message_id IN (SELECT value FROM json_each(:objects))
UNION
SELECT message_id FROM message_res WHERE message_id IN (SELECT value FROM json_each(:objects))
"""
_REPLY_OF_SESSION = """
SELECT message_id, reply_to_message_id FROM object_push_session_roots
JOIN message_res ON message_id = root_object_id
WHERE session_id = :session AND src_node_id = :node AND run_id = :run
"""
_OBJECTS_OF_REPLY = """
WITH RECURSIVE tree(id) AS (
    SELECT :root UNION SELECT child_id FROM object_children JOIN tree ON parent_id = id
)
SELECT id, LENGTH(content) AS size, EXISTS (
    SELECT 1 FROM object_children WHERE parent_id = :object AND child_id = id
) AS child
FROM tree JOIN objects ON object_id = id
"""
_OBJECT_OF_INSTRUCTION = """
WITH RECURSIVE tree(id) AS (
    SELECT message_id FROM message_ins
    WHERE dst_node_id = :node AND run_id = :run AND delivered_at != ''
    UNION SELECT child_id FROM object_children JOIN tree ON parent_id = id
)
SELECT id FROM tree WHERE id = :object
"""


def replying(push: Push) -> Push:
    """Take a message of a node only if it replies to an instruction that this node got."""

    def pushed(request: PushMessagesRequest, state: SqlLinkState) -> PushMessagesResponse:
        require_reply(request, state)
        with state.session():
            _give_way(request, state)
            return push(request=request, state=state)

    return pushed


def _give_way(request: PushMessagesRequest, state: SqlLinkState) -> None:
    """Forget the replies of a node that wait, and the content of what it answers now."""
    said = request.messages_list[0].metadata
    known = {"node": _names(request, run=said.run_id)["node"], "root": said.message_id}
    waiting = state.query(_WAITING, known)
    for reply in waiting:
        state.object_store.delete(reply["message_id"])
    state.delete_messages({reply["reply_to_message_id"] for reply in waiting})
    state.object_store.delete(said.reply_to_message_id)


def require_reply(request: PushMessagesRequest, state: SqlLinkState) -> None:
    """Refuse what is not one reply to an instruction of the node.

    Raises:
        FlowerError: 403, which says the rule.
    """
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        _refuse(request, "one message with one tree of objects is pushed at a time")
    node, said = request.node.node_id, request.messages_list[0].metadata
    objects = _objects(request)
    if objects[-1] != said.message_id:
        _refuse(request, "the root of the objects must be the message")
    if not said.reply_to_message_id:
        _refuse(request, "a node sends replies only")
    if said.src_node_id != node or said.dst_node_id != SUPERLINK_NODE_ID:
        _refuse(request, "a reply goes from the node itself to the SuperLink")
    if not (isfinite(said.created_at) and isfinite(said.ttl)):
        _refuse(request, "a reply's times must be numbers")
    asked = {**_names(request, run=said.run_id), "message": said.reply_to_message_id}
    if not state.query(_INSTRUCTION, asked):
        _refuse(
            request,
            "a reply answers an instruction that this node got in this run, before it expires",
        )
    _require_own_objects(objects, request, state)


def _objects(request: PushMessagesRequest) -> list[str]:
    """The ids of a reply's objects, the root last."""
    ids: list[str] = []
    for part in iterate_object_tree(request.message_object_trees[0]):
        children = [child.object_id for child in part.children]
        if len(children) != len(set(children)) or not is_valid_sha256_hash(part.object_id):
            _refuse(request, "objects have SHA-256 ids, and a parent has each child once")
        ids.append(part.object_id)
        if len(ids) > MOST_OBJECTS:
            _refuse(request, f"a reply has at most {MOST_OBJECTS} objects")
    return ids


def _require_own_objects(
    objects: Sequence[str], request: PushMessagesRequest, state: SqlLinkState
) -> None:
    """Refuse a second reply, and one that takes other messages for its own objects.

    Nodes may send equal objects, but no message is part of another, and none has another's id.
    """
    root, said = objects[-1], request.messages_list[0].metadata
    replies = state.query(_REPLY, {"message": said.reply_to_message_id})
    repeated = [row["message_id"] for row in replies] == [root]
    if replies and not repeated:
        _refuse(request, "an instruction has one reply")
    if not repeated and state.query(_OBJECT, {"object": root}):
        _refuse(request, "the id of a reply is new")
    if state.query(_MESSAGES, {"objects": json.dumps([each for each in objects if each != root])}):
        _refuse(request, "no message is part of a reply")


def belonging(push: PushObject) -> PushObject:
    """Take an object of a node only if it belongs to a reply of this node that is being pushed."""

    def pushed(request: PushObjectRequest, state: SqlLinkState) -> PushObjectResponse:
        session = {**_names(request, run=request.run_id), "session": request.session_id}
        replies = state.query(_REPLY_OF_SESSION, session)
        if len(replies) != 1:
            _refuse(request, "an object belongs to a reply that this node is pushing")
        require_as_announced(request, replies[0], state)
        return push(request=request, state=state)

    return pushed


def require_as_announced(
    request: PushObjectRequest, reply: Mapping[str, Any], state: SqlLinkState
) -> None:
    """Refuse an object that is not what its reply announced.

    The ServerApp takes from the root object whom a message is from and what it answers, and not
    from the header that was checked when the reply was announced: so the two must agree.

    Raises:
        FlowerError: 403, which says the rule.
    """
    content, root = request.object_content, reply["message_id"]
    try:
        kind, children, _ = get_object_head_values_from_object_content(content)
    except ValueError:
        _refuse(request, "an object has a head that can be read")
    tree = state.query(_OBJECTS_OF_REPLY, {"root": root, "object": request.object_id})
    if sorted(children) != sorted(row["id"] for row in tree if row["child"]):
        _refuse(request, "an object has the children that were announced")
    if sum(row["size"] for row in tree) + len(content) > MOST_BYTES:
        _refuse(request, f"the objects of a reply have at most {MOST_BYTES} bytes")
    if (kind == Message.__name__) != (request.object_id == root):
        _refuse(request, "the root of a reply, and no other object, is a message")
    if request.object_id == root:
        _require_same_header(request, reply, children)


def _require_same_header(
    request: PushObjectRequest, reply: Mapping[str, Any], children: Sequence[str]
) -> None:
    try:
        body = ProtoMessage.FromString(get_object_body(request.object_content, Message))
    except (DecodeError, ValueError):
        _refuse(request, "a message can be read")
    said = body.metadata
    announced = (request.run_id, request.node.node_id, SUPERLINK_NODE_ID)
    if (said.run_id, said.src_node_id, said.dst_node_id) != announced or (
        said.reply_to_message_id != reply["reply_to_message_id"]
    ):
        _refuse(request, "the objects of a reply say what the reply said")
    if len(children) != (0 if body.HasField("error") else 1):
        _refuse(request, "a message has either an error or one content")


def handed(pull: PullObject) -> PullObject:
    """Hand out an object only if it belongs to an instruction that the node got."""

    def pulled(request: PullObjectRequest, state: SqlLinkState) -> PullObjectResponse:
        asked = {**_names(request, run=request.run_id), "object": request.object_id}
        if not state.query(_OBJECT_OF_INSTRUCTION, asked):
            _refuse(request, "an object belongs to an instruction that this node got")
        return pull(request=request, state=state)

    return pulled


def confirming(confirm: Confirm) -> Confirm:
    """Let a node confirm, and so delete, only an instruction that it got."""

    def confirmed(
        request: ConfirmMessageReceivedRequest, state: SqlLinkState, store: ObjectStore
    ) -> ConfirmMessageReceivedResponse:
        asked = {**_names(request, run=request.run_id), "message": request.message_object_id}
        if not state.query(_INSTRUCTION, asked):
            _refuse(request, "a node confirms an instruction that it got")
        return confirm(request=request, state=state, store=store)

    return confirmed


def _names(request: Any, *, run: int) -> dict[str, Any]:
    """The node of a request and a run as the database has them, and the time."""
    return {
        "node": uint64_to_int64(request.node.node_id),
        "run": uint64_to_int64(run),
        "now": now().timestamp(),
    }


def _refuse(request: Any, rule: str) -> NoReturn:
    told = f"Refused to node {request.node.node_id}: {rule}."
    raise FlowerError(ApiErrorCode.NO_PERMISSIONS, told, public_details=rule)
