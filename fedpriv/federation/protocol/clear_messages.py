"""Clear messages: queries and answers as Flower messages, without secure aggregation.

The server adds an answer to the total as soon as it reads it, and keeps none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)

from fedpriv.federation.federation import Sum
from fedpriv.federation.queries.bounds import require_minimum
from fedpriv.federation.queries.encoding import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.federation.party.party import Party
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task

_QUERY, _ANSWER, _SIZE = "query", "answer", "size"


def query_messages(query: Query, nodes: Iterable[int]) -> list[Message]:
    """The query, to every node."""
    content = RecordDict({_QUERY: ConfigRecord({_QUERY: to_bytes(query)})})
    return [
        Message(content=content, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes
    ]


def answer_message(message: Message, party: Party) -> Message:
    """The reply of a party to a message of `query_messages`."""
    data = message.content.config_records[_QUERY][_QUERY]
    if not isinstance(data, bytes):
        raise ValueError("a query must be bytes.")
    content = RecordDict(
        {
            _ANSWER: ArrayRecord({_ANSWER: Array(party.answer(from_bytes(data)))}),
            _SIZE: MetricRecord({_SIZE: party.size}),
        }
    )
    return Message(content=content, reply_to=message)


def sum_replies(replies: Iterable[Message], query: Query, task: Task) -> Sum | None:
    """The sum of the answers in the query's ring; None if nobody answered.

    Replies with an error are parties that dropped out.

    Raises:
        ValueError: A node answered twice, with a wrong shape, or with a size that the task does not
            state: the noise would not be calibrated to that sum.
    """
    total = np.zeros(query.answer_width(task), query.grid.dtype)
    sizes: list[int] = []
    nodes: list[int] = []
    for reply in replies:
        if reply.has_error():
            continue
        answer = reply.content.array_records[_ANSWER][_ANSWER].numpy()
        if answer.dtype != total.dtype or answer.shape != total.shape:
            raise ValueError(
                f"an answer must be {total.dtype} of shape {total.shape}, "
                f"got {answer.dtype} of shape {answer.shape}."
            )
        total += answer
        sizes.append(int(str(reply.content.metric_records[_SIZE][_SIZE])))
        nodes.append(reply.metadata.src_node_id)
    if not sizes:
        return None
    if len(set(nodes)) < len(nodes):
        raise ValueError("every node must answer once; one answered twice.")
    if not Counter(sizes) <= task.size_counts:
        raise ValueError("the parties that answered must have sizes that the task states.")
    require_minimum(query, len(sizes))
    return Sum(total=query.grid.decode(total), step=query.grid.step, sizes=tuple(sizes))
