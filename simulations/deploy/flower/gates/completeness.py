"""Completeness of messages: the SuperLink delivers a message when all of its objects are there.

Flower delivers a message as soon as its header is stored, and whoever gets it asks for the objects
until they come: a node for two hours, and the server as long. One lost object, or one party that
sends a header and nothing else, would hang them. A message that never becomes complete expires, as
if it had not been sent.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from flwr.supercore.utils import uint64_to_int64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
    from flwr.proto.task_pb2 import Task
    from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState
    from flwr.supercore.object_store import ObjectStore

    Pull = Callable[..., PullMessagesResponse]
    PullReplies = Callable[..., PullAppMessagesResponse]

_HOLD_INSTRUCTIONS = """
UPDATE message_ins SET delivered_at = 'held'
WHERE dst_node_id = :node AND delivered_at = '' AND EXISTS (
    WITH RECURSIVE tree(id) AS (
        SELECT message_id UNION SELECT child_id FROM object_children JOIN tree ON parent_id = id
    )
    SELECT 1 FROM objects JOIN tree ON object_id = id WHERE is_available = 0
)
"""
_RELEASE_INSTRUCTIONS = """
UPDATE message_ins SET delivered_at = '' WHERE dst_node_id = :node AND delivered_at = 'held'
"""
_HOLD_REPLIES = """
UPDATE message_res SET delivered_at = 'held'
WHERE run_id = :run AND delivered_at = '' AND EXISTS (
    WITH RECURSIVE tree(id) AS (
        SELECT message_id UNION SELECT child_id FROM object_children JOIN tree ON parent_id = id
    )
    SELECT 1 FROM objects JOIN tree ON object_id = id WHERE is_available = 0
)
"""
_RELEASE_REPLIES = """
UPDATE message_res SET delivered_at = '' WHERE run_id = :run AND delivered_at = 'held'
"""


def complete_instructions(pull: Pull) -> Pull:
    """Let a node pull only instructions whose objects are all there, the oldest of them first."""

    def pulled(
        request: PullMessagesRequest, state: SqlLinkState, store: ObjectStore
    ) -> PullMessagesResponse:
        node = {"node": uint64_to_int64(request.node.node_id)}
        with _held(state, _HOLD_INSTRUCTIONS, _RELEASE_INSTRUCTIONS, node):
            return pull(request=request, state=state, store=store)

    return pulled


def complete_replies(pull: PullReplies) -> PullReplies:
    """Let the ServerApp pull only replies whose objects are all there."""

    def pulled(
        request: PullAppMessagesRequest, state: SqlLinkState, task: Task
    ) -> PullAppMessagesResponse:
        run = {"run": uint64_to_int64(task.run_id)}
        with _held(state, _HOLD_REPLIES, _RELEASE_REPLIES, run):
            return pull(request, state, task)

    return pulled


@contextmanager
def _held(state: SqlLinkState, hold: str, release: str, whose: dict[str, int]) -> Iterator[None]:
    """Hold incomplete messages back for the time of a pull.

    They are taken for delivered, in the transaction of the pull and nowhere else. It begins with a
    write, so that no message comes between.
    """
    with state.session():
        state.query(hold, whose)
        yield
        state.query(release, whose)
