"""A party's SuperNode: every message gets a reply, and no code is fetched for it.

Flower's own loop and handlers, with what `supernode.changes` puts into them. Of the loop's two
sides, the server is played by functions and the worker by calls of the handlers.
"""

from __future__ import annotations

import io
import threading
import zipfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import SubStatus
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
from flwr.supercore.heartbeat import HeartbeatFailure
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection
from flwr.supernode import start_client_internal as loop
from flwr.supernode.nodestate import nodestate_factory
from flwr.supernode.servicer.runtime import runtime_handlers as handlers

from fedpriv.federation.engines.courier import envelope
from fedpriv.simulations.deploy.flower import node_state, supernode
from fedpriv.simulations.deploy.flower.held import News
from fedpriv.simulations.deploy.flower.run_config import MOST_BYTES

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


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    for owner, name, value in supernode.changes():
        monkeypatch.setattr(owner, name, value)
    for name, value in (("_run_id", RUN), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
    return Node(tmp_path / "party.toml")


def test_a_message_that_is_answered_gets_its_answer(node: Node) -> None:
    for _ in range(2):
        assert node.take() == RUN
        task = node.acquire()
        node.answer(task, node.read(task))
        node.finish(task, SubStatus.COMPLETED)
        assert node.replies() == ["answer"]
    assert node.state.msg_store == {}


def test_a_bundle_is_neither_fetched_nor_unpacked(node: Node) -> None:
    assert node.take() == RUN
    assert node.fetched == 0
    context = node.state.get_run_series_context(0)
    assert context.run_config == CONFIG


def test_a_run_config_larger_than_any_experiment_is_refused_at_once(node: Node) -> None:
    node.config = {"config": "x" * MOST_BYTES}
    assert node.take() == RUN
    (said,) = node.replies()
    assert "at most 262144 bytes" in said
    assert node.acquire() is None
    node.config = dict(CONFIG)  # and the next message is taken
    assert node.take() == RUN
    assert node.acquire() is not None


def test_a_message_whose_content_never_comes_is_left_and_the_next_one_taken(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = vars(loop)["pull_objects"].keywords
    assert limits == {"max_time": 60.0}
    monkeypatch.setitem(limits, "max_time", 0.1)
    node.lost = True
    assert node.take() is None
    node.lost = False
    assert node.take() == RUN
    task = node.acquire()
    node.answer(task, node.read(task))
    assert node.replies() == ["answer"]


def test_a_message_whose_run_ends_while_it_comes_is_left_and_holds_up_no_other(node: Node) -> None:
    node.ended = True
    assert node.take() is None
    assert node.acquire() is None  # a worker would wait for its content
    node.ended = False
    assert node.take() == RUN
    task = node.acquire()
    node.answer(task, node.read(task))
    assert node.replies() == ["answer"]


def test_a_message_that_is_withdrawn_when_it_has_come_leaves_no_reply_behind(node: Node) -> None:
    """Its reply was sent for the next message, whose own one then waited for the one after that."""
    node.withdrawn = True
    assert node.take() is None
    assert node.acquire() is None
    assert node.state.msg_store == {}
    node.withdrawn = False
    assert node.take() == RUN
    task = node.acquire()
    question = node.read(task)
    node.answer(task, question)
    assert node.replies() == ["answer"]
    assert node.sent[-1].metadata.reply_to_message_id == question.metadata.message_id


def test_a_task_that_its_worker_gives_up_is_answered_with_the_reason(node: Node) -> None:
    node.take()
    task = node.acquire()
    node.read(task)
    node.finish(task, SubStatus.FAILED, "overdue")
    assert node.replies() == ["overdue"]


def test_half_a_reply_is_not_waited_for_when_its_task_has_ended(node: Node) -> None:
    node.take()
    task = node.acquire()
    node.answer(task, node.read(task), objects=1)
    assert node.state.get_messages_legacy(is_reply=True) == []  # not before it is whole
    node.finish(task, SubStatus.FAILED, "overdue")
    assert node.replies() == ["overdue"]


@pytest.mark.parametrize("read", [False, True])
def test_a_worker_that_comes_back_has_lost_its_task_and_gets_the_next_one(
    node: Node, read: bool
) -> None:
    """Flower would wait for a minute, and take no other message."""
    node.take()
    task = node.acquire()
    if read:
        node.read(task)
    assert node.acquire() is None  # a new worker: nothing to do yet
    assert node.replies() == ["lost"]
    node.take()
    assert node.acquire() is not None


def test_a_message_that_nobody_takes_is_given_up_at_its_deadline(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "_WORKER_FIRST", 0.1)
    node.take(ttl=0.2)
    assert node.replies() == ["overdue"]


def test_a_server_cannot_make_a_party_wait_longer_than_the_party_allows(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_state, "_WORKER_FIRST", 0.1)
    monkeypatch.setattr(supernode, "max_seconds", lambda _party: 0.1)
    for ttl in (1e9, float("nan")):
        node.take(ttl=ttl)
        assert node.replies() == ["overdue"]


def test_a_reply_that_has_left_is_not_followed_by_an_error(node: Node) -> None:
    """The worker's last word about a task may come when the next message is there already."""
    node.take()
    task = node.acquire()
    node.answer(task, node.read(task))
    assert node.replies() == ["answer"]
    node.take()
    node.finish(task, SubStatus.FAILED, "ValueError")
    second = node.acquire()
    assert second is not None
    node.answer(second, node.read(second))
    assert node.replies() == ["answer"]


def test_a_server_that_answers_nonsense_is_asked_again(node: Node) -> None:
    def nonsense() -> None:
        raise RuntimeError("a page of HTML")

    given = {"state": node.state, "object_store": node.store, "node_config": {}}
    given["confirm_message_received"] = print
    pulled = supernode.careful(lambda **more: more["receive"](), News())
    assert pulled(**given, receive=nonsense) is None
    assert pulled(**given, receive=lambda: None) is None


def test_heartbeats_go_on_after_an_answer_that_nobody_expects(node: Node) -> None:
    """After one 500, the server took a party for gone that asked it for messages all the time."""
    answers = iter([500, 403, 200])

    def beat() -> bool:
        answer = httpx.Response(next(answers), request=httpx.Request("POST", "https://server"))
        return answer.raise_for_status().is_success

    sender = vars(fleet_http_connection)["HeartbeatSender"](beat)
    for _ in range(2):
        with pytest.raises(HeartbeatFailure):  # which it tries again after
            sender._heartbeat()
    sender._heartbeat()


def test_flower_has_everything_that_is_changed() -> None:
    for owner, name, _value in supernode.changes():
        assert hasattr(owner, name), f"{owner.__name__}.{name} is gone"
