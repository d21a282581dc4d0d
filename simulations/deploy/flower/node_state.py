"""Memory of a party's SuperNode, in which every message gets a reply: the party's, or an error.

Flower's SuperNode takes a message, waits for its worker's reply, and takes the next one. It waits
for ever, or for a minute, where the worker that had the message was killed, where nobody took it,
and where half of a reply was stored. Here a message has one task, and a task ends:

- finished by the worker, with a reply that is whole, or without one;
- by its deadline (`fedpriv.simulations.deploy.flower.deadlines`), and a moment for the worker to
  notice it first;
- when the worker asks for another task: it does one at a time, so that it has lost this one.

If there is no whole reply then, the server is told why in one word. What the party had to remember
is in its journal, and it gives the same answer when it is asked again.

Nor is an app bundle kept here, or fetched (`fedpriv.simulations.deploy.flower.run_config`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fedpriv.federation.deployed.policy import MOST_SECONDS
from fedpriv.simulations.deploy.flower.deadlines import seconds_left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr.proto.task_pb2 import Task
    from flwr.supercore.object_store import ObjectStore

OVERDUE, LOST = "overdue", "lost"
_WORKER_FIRST = 5.0  # seconds for the worker to end a task at its deadline, and to say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A message that was taken, and has no reply yet.

    Attributes:
        message: Its id.
        deadline: When it is given up, on the clock that never goes back.
    """

    message: str
    deadline: float


class PartyState(InMemoryNodeState):
    """Flower's, with an end to every wait.

    Attributes:
        most: How many seconds a message may take.
    """

    def __init__(self, object_store: ObjectStore) -> None:
        super().__init__(object_store)
        self.most = MOST_SECONDS
        self._newest: int | None = None
        self._asked: dict[int, Asked] = {}

    def create_task(self, *arguments: Any, **more: Any) -> int | None:
        """Make the task of the message that is stored next."""
        self._newest = super().create_task(*arguments, **more)
        return self._newest

    def store_message(self, message: Message) -> str | None:
        """Store a message, or the reply to one."""
        if not message.metadata.reply_to_message_id and self._newest is not None:
            left = max(seconds_left(message.metadata, most=self.most), 0.0) + _WORKER_FIRST
            self._asked[self._newest] = Asked(
                message=message.metadata.message_id, deadline=time.monotonic() + left
            )
            self._newest = None
        return super().store_message(message)

    def finish_task(self, task_id: int, sub_status: str, details: str) -> bool:
        """End a task; its message has a reply from then on."""
        finished = super().finish_task(task_id, sub_status, details)
        if finished:
            self._settle(task_id, details)
        return finished

    def lose_tasks(self) -> None:
        """End every task that somebody has taken: who took it asks for another."""
        with self.lock_task_store:
            lost = [task for task in list(self._asked) if task in self.task_token_store]
        for task in lost:
            self.finish_task(task, SubStatus.FAILED, LOST)

    def get_messages_legacy(
        self,
        *,
        run_ids: Sequence[int] | None = None,
        is_reply: bool | None = None,
        limit: int | None = None,
    ) -> Sequence[Message]:
        """Messages that were not handed out yet; replies only when they are whole."""
        if is_reply:
            for task, asked in list(self._asked.items()):
                if asked.deadline < time.monotonic():
                    self.finish_task(task, SubStatus.FAILED, OVERDUE)
            with self.lock_msg_store:
                stored = [entry.message for entry in self.msg_store.values()]
                replies = [each for each in stored if each.metadata.reply_to_message_id]
                if not all(self._whole(reply) for reply in replies):
                    return []
        return super().get_messages_legacy(run_ids=run_ids, is_reply=is_reply, limit=limit)

    def delete_messages(self, *, message_ids: Sequence[str] | None = None) -> None:
        """Forget messages, and that they were asked."""
        super().delete_messages(message_ids=message_ids)
        for task, asked in list(self._asked.items()):
            if message_ids is None or asked.message in message_ids:
                self._asked.pop(task, None)

    def store_fab(self, fab: Fab) -> str:
        """Keep no bundle."""
        return fab.hash_str

    def get_fab(self, fab_hash: str) -> Fab:
        """An empty bundle, in the place of every one."""
        return Fab(hash_str=fab_hash, content=b"", verifications={})

    def _on_task_tokens_expired(self, tasks: list[Task]) -> None:
        for task in tasks:
            self._settle(task.task_id, LOST)

    def _settle(self, task: int, why: str) -> None:
        """Reply to the message of a task that has ended, unless a whole reply is there."""
        with self.lock_msg_store:
            asked = self._asked.pop(task, None)
            entry = None if asked is None else self.msg_store.get(asked.message)
            if asked is None or entry is None:  # the reply has left
                return
            for each in [other.message for other in self.msg_store.values()]:
                if each.metadata.reply_to_message_id == asked.message:
                    if self._whole(each):
                        return
                    self.msg_store.pop(each.metadata.message_id)
                    self.object_store.delete(each.metadata.message_id)
            entry.is_retrieved = True  # nobody is to take it now
            self.object_store.delete(asked.message)
            reply = Message(Error(ErrorCode.CLIENT_APP_CRASHED, why), reply_to=entry.message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            self._store_generated_message(reply)
            self.store_message(reply)

    def _whole(self, reply: Message) -> bool:
        """Whether all objects of a reply are there."""
        tree = self.object_store.get_object_tree(reply.metadata.message_id)
        return all(self.object_store.get(each.object_id) for each in iterate_object_tree(tree))
