"""A party's SuperNode: every message gets a reply, and no code is fetched for it.

Flower's own loop and handlers, with what `supernode.changes` puts into them. Of the loop's two
sides, the server is played by functions and the worker by calls of the handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from flwr.common.constant import SubStatus
from flwr.supercore.heartbeat import HeartbeatFailure
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection
from flwr.supernode import start_client_internal as loop

from fedpriv.simulations.deploy.flower import node_state, supernode
from fedpriv.simulations.deploy.flower.held import News
from fedpriv.simulations.deploy.flower.run_config import MOST_BYTES
from tests.simulations.deploy.supernodes import CONFIG, RUN, Node

if TYPE_CHECKING:
    from pathlib import Path


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
