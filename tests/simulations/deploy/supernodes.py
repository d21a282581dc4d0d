"""A SuperNode without its network: its server and its worker are in the hands of a test."""

from __future__ import annotations

import io
import threading
import zipfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import start_client_internal as loop
from flwr.supernode.nodestate import nodestate_factory
from flwr.supernode.servicer.runtime import runtime_handlers as handlers

from fedpriv.federation.engines.courier import envelope

if TYPE_CHECKING:
    from pathlib import Path

RUN, NODE = 5, 9
CONFIG = {"config": "an experiment", "output": "", "roster": ""}


def bomb() -> bytes:
    """A bundle of a few hundred kilobytes whose run config has a quarter of a gigabyte."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        start = '[project]\nname = "a"\n[tool.flwr.app.config]\nconfig = "'
        archive.writestr("pyproject.toml", start + " " * 2**28 + '"\n')
    return data.getvalue()


@dataclass
class Node:
    """A SuperNode, its server and its worker."""

    party: Path
    config: dict[str, Any] = field(default_factory=lambda: dict(CONFIG))
    lost: bool = False
    ended: bool = False
    withdrawn: bool = False
    fetched: int = 0
    sent: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        store = ObjectStoreFactory()
        self.state: Any = nodestate_factory.NodeStateFactory(store).state()
        self.state.set_node_id(NODE)
        self.store = store.store()

    def take(self, *, ttl: float = 600.0) -> int | None:
        """One turn of the loop, in which the server has a message."""
        message = Message(envelope(b"question"), NODE, "query.answer", ttl=ttl)
        message.metadata.__dict__["_message_id"] = message.object_id
        tree, objects = get_object_tree(message), get_all_nested_objects(message)
        contents = {name: each.deflate() for name, each in objects.items()}

        def pull_object(_run: int, name: str) -> bytes:
            if self.ended:
                raise RunNotRunningException
            if self.lost:
                raise ObjectUnavailableError(name)
            return contents[name]

        def confirm(_run: int, _name: str) -> None:
            if self.withdrawn:  # the SuperLink's 403, whatever it is for
                raise RunNotRunningException

        def get_fab(name: str, _run: int) -> Fab:
            self.fetched += 1
            return Fab(hash_str=name, content=bomb(), verifications={})

        return loop._pull_and_store_message(
            state=self.state,
            object_store=self.store,
            node_config={"party": str(self.party)},
            receive=lambda: (remove_content_from_message(message), tree),
            get_run=lambda run: replace(Run.create_empty(run), override_config=self.config),
            get_fab=get_fab,
            pull_object=pull_object,
            confirm_message_received=confirm,
            trusted_entities=None,
        )

    def replies(self) -> list[str]:
        """What the loop sends for the message that it took: reasons of errors, or "answer"."""

        def send(message: Message, tree: Any, _seconds: float) -> tuple[set[str], str]:
            self.sent.append(message)
            names = {each.object_id for each in iterate_object_tree(tree)}
            return names, "session"

        def push(*_arguments: Any) -> None:
            """The server takes everything."""

        turn = threading.Thread(
            target=loop._push_messages,
            kwargs={
                "state": self.state,
                "object_store": self.store,
                "send": send,
                "push_object": push,
            },
            daemon=True,
        )
        before = len(self.sent)
        turn.start()
        turn.join(timeout=30)
        assert not turn.is_alive(), "the SuperNode waits for ever"
        return [
            str(each.error.reason) if each.has_error() else "answer" for each in self.sent[before:]
        ]

    def acquire(self) -> Any:
        """The worker asks for a task; the task, if there is one."""
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        acquired = handlers.acquire_task(wanted, self.state)
        return self.state.get_task_by_token(acquired.token) if acquired.token else None

    def read(self, task: Any) -> Message:
        """The worker fetches its task."""
        answer = handlers.pull_task_input(PullTaskInputRequest(), self.state, task)
        assert answer.fab.content == b""
        pulled = handlers.pull_messages(PullAppMessagesRequest(), self.state, task)
        assert len(pulled.messages_list) == 1
        stored = self.state.msg_store[pulled.messages_list[0].metadata.message_id]
        message: Message = stored.message
        return message

    def answer(self, task: Any, question: Message, *, objects: int | None = None) -> None:
        """The worker replies, with all of the reply's objects or with some."""
        reply = Message(envelope(b"answer"), reply_to=question)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        request = PushAppMessagesRequest(
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
        )
        pushed = handlers.push_messages(request, self.state, task)
        everything = get_all_nested_objects(reply)
        for name in list(pushed.objects_to_push)[:objects]:
            content = everything[name].deflate()
            part = PushObjectRequest(
                session_id=pushed.session_id, object_id=name, object_content=content
            )
            assert handlers.push_object(part, self.state, task).stored

    def finish(self, task: Any, status: str, details: str = "") -> None:
        """The worker says how its task ended."""
        output = PushTaskOutputRequest(sub_status=status, details=details)
        handlers.push_task_output(output, self.state, task)
