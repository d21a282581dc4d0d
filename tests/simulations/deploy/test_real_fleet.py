"""A hostile party, properly registered and signing, against a real SuperLink: who may do what."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from flwr.app import Message
from flwr.common.serde import message_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes

from fedpriv.federation.engines.courier import envelope, opened
from fedpriv.simulations.deploy.flower.control import control_client
from fedpriv.simulations.deploy.members.membership import Reconciled, nodes, reconcile
from fedpriv.simulations.deploy.members.roster import read_roster, write_roster
from fedpriv.simulations.run.files import read_json
from tests.simulations.deploy.fleet import REFUSED, Node, answer_to, received, status, stored
from tests.simulations.deploy.forged_replies import changed

if TYPE_CHECKING:
    from tests.simulations.deploy.fleet import Fleet

SUPERLINK = 1
LOCKS_OUT = (2**32 - 1).to_bytes(4, "big")  # a round number after which no other is accepted


def test_an_honest_node_gets_its_instructions_and_its_replies_arrive(
    live: Fleet, victim: Node
) -> None:
    instruction = received(live, victim)
    for identifier in get_all_nested_objects(instruction):
        assert victim.object(identifier, run=live.run).object_available
    victim.confirm(instruction.metadata.message_id, run=live.run)
    victim.reply(answer_to(instruction))
    (reply,) = live.replies(instruction)
    assert opened(reply) == b"answer"
    assert reply.metadata.src_node_id == victim.number


def test_a_party_cannot_instruct_another_as_if_it_were_the_server(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    own = received(live, hostile)
    victim.beat()
    before = stored(live)
    for source in (SUPERLINK, hostile.number):
        forged = Message(envelope(LOCKS_OUT), victim.number, "query.step", ttl=600.0)
        changed(forged, src_node_id=source)
        assert status(lambda forged=forged: hostile.push(forged)) == REFUSED  # type: ignore[misc]
        changed(forged, reply_to_message_id=own.metadata.message_id)
        assert status(lambda forged=forged: hostile.push(forged)) == REFUSED  # type: ignore[misc]
    assert stored(live) == before
    assert victim.pulled() == []


def test_a_party_cannot_answer_in_the_place_of_another(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    instruction = received(live, victim)
    hostile.beat()
    before = stored(live)
    forged = answer_to(instruction, b"forged")
    assert forged.metadata.src_node_id == victim.number
    assert status(lambda: hostile.push(forged)) == REFUSED
    changed(forged, src_node_id=hostile.number)
    assert status(lambda: hostile.push(forged)) == REFUSED
    assert stored(live) == before
    victim.reply(answer_to(instruction))
    (reply,) = live.replies(instruction)
    assert opened(reply) == b"answer"


def test_a_party_can_neither_read_nor_delete_what_is_meant_for_another(
    live: Fleet, victim: Node, hostile: Node
) -> None:
    instruction = received(live, victim, b"for the victim alone")
    hostile.beat()
    identifier = instruction.metadata.message_id
    for each in get_all_nested_objects(instruction):
        assert status(lambda each=each: hostile.object(each, run=live.run)) == REFUSED  # type: ignore[misc]
    assert status(lambda: hostile.confirm(identifier, run=live.run)) == REFUSED
    for each in get_all_nested_objects(instruction):
        assert victim.object(each, run=live.run).object_content
    victim.confirm(identifier, run=live.run)


def test_objects_that_no_instruction_named_are_not_handed_out(live: Fleet, victim: Node) -> None:
    waiting = live.instruct(victim)  # not delivered yet
    assert status(lambda: victim.object(waiting.object_id, run=live.run)) == REFUSED
    assert status(lambda: victim.object("ab" * 32, run=live.run)) == REFUSED
    assert victim.pulled() == [waiting.metadata.message_id]
    assert victim.object(waiting.object_id, run=live.run).object_available
    other_run = live.run + 1
    assert status(lambda: victim.object(waiting.object_id, run=other_run)) == REFUSED


def announced(live: Fleet, node: Node) -> tuple[Message, str]:
    """An instruction of which the SuperLink has no object, and the session to push them in."""
    node.beat()
    message = Message(envelope(b"incomplete"), node.number, "query.step", ttl=600.0)
    message.metadata.__dict__["_message_id"] = message.object_id
    answer = live.grid._runtime_client.PushMessages(
        PushAppMessagesRequest(
            messages_list=[message_to_proto(message)],
            message_object_trees=[get_object_tree(message)],
        )
    )
    return message, answer.session_id


def test_a_node_is_not_given_a_message_whose_objects_are_lost_but_the_next_one(
    live: Fleet, victim: Node
) -> None:
    lost, session = announced(live, victim)
    assert victim.pulled() == []
    following = live.instruct(victim)
    assert victim.pulled() == [following.metadata.message_id]
    objects = get_all_nested_objects(lost)
    for identifier, part in objects.items():
        assert victim.pulled() == []
        live.grid._runtime_client.PushObject(
            PushObjectRequest(
                node=live.grid.node,
                run_id=live.run,
                object_id=identifier,
                object_content=part.deflate(),
                session_id=session,
            )
        )
    assert victim.pulled() == [lost.metadata.message_id]


# Registered nodes are the roster's.


def test_an_expelled_key_is_refused_at_once_and_a_stranger_unregistered(live: Fleet) -> None:
    expelled, party = live.nodes[2], live.deployment.parties[2]
    expelled.beat()  # its connection stays open
    roster = read_roster(live.server.roster)
    with control_client(live.server) as control:
        _, stranger = generate_key_pairs()
        number = control.RegisterNode(
            RegisterNodeRequest(public_key=public_key_to_bytes(stranger))
        ).node_id
    assert {state.name for state in nodes(live.server)} == {*roster.names, "unknown"}
    gone = replace(roster.row(party.root.name), expelled=roster.epoch + 1)
    without = roster.successor(gone)
    write_roster(live.server.roster, without)
    try:
        assert reconcile(live.server) == Reconciled(
            registered=(), unregistered=tuple(sorted((party.root.name, str(number))))
        )
        assert {state.name for state in nodes(live.server)} == set(without.names)
        noted = {path.stem: read_json(path) for path in live.server.nodes.glob("*.json")}
        assert noted == {
            member.name: {"node": str(node.number), "key": member.node}
            for member, node in zip(without.seats, live.nodes, strict=False)
        }
        assert status(expelled.beat) == 401
        assert status(expelled.pulled) == 401
        again = Node(party, expelled.address)
        with again.client:
            assert status(lambda: again.number) == 412  # for which a SuperNode tells the reason
        write_roster(live.server.roster, roster)
        with pytest.raises(ValueError, match="was unregistered before, or is no EC key"):
            reconcile(live.server)
    finally:
        write_roster(live.server.roster, roster)
