"""Replies of a hostile party against a real SuperLink: odd, late, unreadable or for another."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from hashlib import sha256
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedpriv.federation.engines.courier import opened
from fedpriv.simulations.deploy.flower.control import state_of
from fedpriv.simulations.deploy.flower.replies import changes
from tests.simulations.deploy import forged_replies
from tests.simulations.deploy.fleet import REFUSED, Node, answer_to, received, status, stored
from tests.simulations.deploy.forged_replies import changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Message

    from tests.simulations.deploy.fleet import Fleet


def test_odd_replies_of_one_party_cost_nobody_else_anything(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    """Times, types, errors and computing times that no worker sends: the other's reply arrives."""
    for number, runtime in enumerate((nan, inf, -1e308, nan, inf, nan, -inf)):
        own = received(live, hostile, b"hostile %d" % number)
        awaited = received(live, victim, b"victim %d" % number)
        odd = forged_replies.odd_ones(own)[number]
        changed(odd, message_id=odd.object_id)
        pushed = PushMessagesRequest(
            node=hostile.named,
            messages_list=[message_to_proto(odd)],
            message_object_trees=[get_object_tree(odd)],
            clientapp_runtime_list=[runtime],
        )
        status(lambda pushed=pushed: hostile.client.PushMessages(pushed))  # type: ignore[misc]
        victim.reply(answer_to(awaited, b"answer %d" % number))
        replies = live.replies(own, awaited)
        assert b"answer %d" % number in [opened(each) for each in replies if not each.has_error()]
    assert state_of(live.server, str(live.run)) == "running"


def test_a_reply_whose_objects_speak_for_another_never_arrives(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    """Its header is in order; the ServerApp would believe the objects."""
    awaited, own = received(live, victim), received(live, hostile)
    forged = answer_to(awaited, b"forged")
    identifier = forged.object_id
    header = message_to_proto(answer_to(own))
    header.metadata.message_id = identifier
    session = hostile.client.PushMessages(
        PushMessagesRequest(
            node=hostile.named,
            messages_list=[header],
            message_object_trees=[get_object_tree(forged)],
        )
    ).session_id
    objects = get_all_nested_objects(forged)
    root = objects.pop(identifier)
    for each, part in objects.items():
        assert hostile.push_object(part.deflate(), each, run=live.run, session=session)
    before = stored(live)

    def push() -> None:
        hostile.push_object(root.deflate(), identifier, run=live.run, session=session)

    assert status(push) == REFUSED
    assert stored(live) == before
    assert live.replies(awaited, own) == []


@pytest.mark.parametrize("attack", forged_replies.ALL)
def test_what_is_not_one_reply_to_an_instruction_of_the_node_is_not_stored(
    live: Fleet, hostile: Node, attack: Callable[[Message], dict[str, Any]]
) -> None:
    own = received(live, hostile)
    pushed, before = attack(own), stored(live)
    assert status(lambda: hostile.push(*pushed["messages"], trees=pushed["trees"])) == REFUSED
    assert stored(live) == before
    assert live.replies(own) == []


def test_an_instruction_has_one_reply_and_none_after_it_has_expired(
    live: Fleet, hostile: Node
) -> None:
    own = received(live, hostile)
    reply = answer_to(own)
    hostile.reply(reply)
    hostile.push(reply)  # as a node does that has not heard the first answer
    assert status(lambda: hostile.push(answer_to(own, b"second"))) == REFUSED
    (arrived,) = live.replies(own)
    assert opened(arrived) == b"answer"
    short = received(live, hostile, ttl=2.0)
    late = answer_to(short)
    time.sleep(max(0.0, short.metadata.created_at + 2.1 - time.time()))
    assert status(lambda: hostile.push(late)) == REFUSED
    # For a SuperNode, that is its run's end: see `while_running`.
    assert status(lambda: hostile.confirm(short.metadata.message_id, run=live.run)) == REFUSED


@pytest.mark.parametrize("seconds", [nan, inf, -1e308])
def test_how_long_a_party_says_it_took_costs_nobody_else_anything(
    live: Fleet, victim: Node, hostile: Node, seconds: float
) -> None:
    """The SuperLink adds it up in the row of the run, which everybody needs."""
    own = answer_to(received(live, hostile), repr(seconds).encode())
    own.metadata.__dict__["_message_id"] = own.object_id
    hostile.client.PushMessages(
        PushMessagesRequest(
            node=hostile.named,
            messages_list=[message_to_proto(own)],
            message_object_trees=[get_object_tree(own)],
            clientapp_runtime_list=[seconds],
        )
    )
    assert state_of(live.server, str(live.run)) == "running"
    asked = received(live, victim)
    victim.reply(answer_to(asked, f"after {seconds}".encode()))
    assert [opened(reply) for reply in live.replies(asked)] == [f"after {seconds}".encode()]


def test_a_party_cannot_push_objects_of_another_ones_reply(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    reply = answer_to(received(live, victim))
    session = victim.push(reply).session_id
    before = stored(live)
    for identifier, part in get_all_nested_objects(reply).items():
        for named in (session, ""):  # Flower looks the session up for whoever names none

            def push(identifier: str = identifier, part: Any = part, named: str = named) -> None:
                hostile.push_object(part.deflate(), identifier, run=live.run, session=named)

            assert status(push) == REFUSED
    assert stored(live) == before


def test_the_server_does_not_wait_for_the_objects_of_a_reply(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    """The hostile party announces a reply and sends none; the other's arrives all the same."""
    asked = [received(live, node) for node in (victim, hostile)]
    hostile.push(answer_to(asked[1]))
    assert live.replies(*asked) == []
    victim.reply(answer_to(asked[0]))
    (reply,) = live.replies(*asked)
    assert reply.metadata.src_node_id == victim.number


def test_replies_that_nobody_fetches_any_more_do_not_add_up(live: Fleet, hostile: Node) -> None:
    """A party that always answered too late stored 128 MiB for each instruction."""
    size = 1 << 20
    for number in range(6):  # of which it confirms none, either
        asked = received(live, hostile, bytes([number]) * size)
        hostile.reply(answer_to(asked, bytes([64 + number]) * size))
    with closing(sqlite3.connect(f"file:{live.server.database}?mode=ro", uri=True)) as database:
        kept = database.execute("SELECT LENGTH(content) FROM objects").fetchall()
    assert sum(length >= size for (length,) in kept) == 1
    assert [opened(reply)[:1] for reply in live.replies(asked)] == [bytes([69])]


def packed(kind: str, body: bytes, *children: str) -> tuple[str, bytes]:
    """An object as it travels, whether it can be read or not, and its id."""
    content = f"{kind} {','.join(children)} {len(body)}".encode() + b"\0" + body
    return sha256(content).hexdigest(), content


def unreadable_record() -> list[tuple[str, bytes]]:
    leaf = packed("ConfigRecord", b"\xff\xff")
    return [leaf, packed("RecordDict", json.dumps({"fedpriv": leaf[0]}).encode(), leaf[0])]


def broken_dictionary() -> list[tuple[str, bytes]]:
    leaf = packed("ConfigRecord", b"")
    return [leaf, packed("RecordDict", b"{", leaf[0])]


def no_dictionary() -> list[tuple[str, bytes]]:
    return [packed("ConfigRecord", b"")]


@pytest.mark.parametrize("objects", [unreadable_record, broken_dictionary, no_dictionary])
def test_a_reply_that_cannot_be_read_takes_no_other_with_it(
    live: Fleet,
    victim: Node,
    hostile: Node,
    objects: Callable[[], list[tuple[str, bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It raised an error in the ServerApp, which lost all replies that had come with it."""
    for owner, name, value in changes():
        monkeypatch.setattr(owner, name, value)
    own, awaited = received(live, hostile), received(live, victim)
    header, made = message_to_proto(answer_to(own)), objects()
    content = made[-1][0]
    made.append(packed("Message", header.SerializeToString(), content))
    header.metadata.message_id = made[-1][0]
    tree = ObjectTree(object_id=made[0][0])
    for identifier, _ in made[1:]:
        tree = ObjectTree(object_id=identifier, children=[tree])
    session = hostile.client.PushMessages(
        PushMessagesRequest(node=hostile.named, messages_list=[header], message_object_trees=[tree])
    ).session_id
    for identifier, data in made:
        assert hostile.push_object(data, identifier, run=live.run, session=session)
    said = objects.__name__.encode()
    victim.reply(answer_to(awaited, said))
    replies = {each.metadata.reply_to_message_id: each for each in live.replies(own, awaited)}
    assert opened(replies[awaited.metadata.message_id]) == said
    unreadable = replies[own.metadata.message_id]
    assert unreadable.metadata.src_node_id == hostile.number
    assert unreadable.error.reason == "the reply cannot be read"
