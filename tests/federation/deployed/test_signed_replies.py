"""Replies that parties sign, at the server: who is believed, and who counts for nothing."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message

from fedpriv.federation.engines.courier import Patience, envelope, opened
from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.engines.local import FIRST_NODE, LocalGrid, VirtualClock
from fedpriv.federation.party.client_app import client_app
from fedpriv.federation.protocol.instruction import reply_body, signed_reply
from fedpriv.federation.protocol.wire import Joined, Reply, unpack
from fedpriv.simulations.deploy.keys import identity_private, read_identity, write_private
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FOUR, Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fedpriv.federation.queries.kinds import Query

HIGHEST_PARTY = 2**16 - 1
STRANGER = Ed25519PrivateKey.generate()


def untouched(_node: int, _step: str, _asked: bytes, reply: bytes) -> list[bytes]:
    return [reply]


class Tampered(LocalGrid):
    """Somebody does something to replies on their way; who was asked is noted.

    What was done to the reply of a node, at a step, to an instruction with a digest: all replies
    that arrive instead, in order.
    """

    tamper: Callable[[int, str, bytes, bytes], list[bytes]] = staticmethod(untouched)
    strangers: tuple[int, ...] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: set[int] = set()
        self.first: list[Message] = []

    def get_node_ids(self) -> Iterable[int]:
        return [*super().get_node_ids(), *self.strangers]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        first, self.first = self.first, []
        return [*first, *super().pull_messages(message_ids)]

    def _deliver(self, message: Message) -> Message:
        node, step = message.metadata.dst_node_id, message.metadata.message_type.partition(".")[2]
        self.asked.add(node)
        reply = super()._deliver(message)
        if reply.has_error():
            return reply
        digest = sha256(unpack(opened(message))[0]).digest()
        *others, last = self.tamper(node, step, digest, opened(reply))
        self.first += [Message(envelope(data), reply_to=message) for data in others]
        return Message(envelope(last), reply_to=message)


def federation(deployment: Deployment) -> tuple[GridFederation, Tampered, Query]:
    """The server's end, where time passes only by waiting, the grid, and what to ask."""
    session, roster = open_session(
        {
            "config": deployment.config(),
            "roster": str(deployment.server / "roster.toml"),
            "output": str(deployment.folder / "out"),
        }
    )
    grid = Tampered(client_app(deployment.signed_host), len(deployment.names))
    made = GridFederation(
        grid,
        task=session.prepared.task,
        protection=protection(session.prepared.experiment),
        roster=roster.identities,
        patience=Patience(arrival=5.0, reply=10.0, poll=0.5),
        clock=VirtualClock(),
        pipelined=False,
        seal=deployment.seal(),
    )
    query = build_strategy(session.prepared, run=session.identity.run).ask()
    assert query is not None
    return made, grid, query


@pytest.fixture
def four(tmp_path: Path) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path, **FOUR)


def without(party: int) -> tuple[int, ...]:
    return tuple(size for number, size in enumerate(FOUR["sizes"]) if number != party)


def test_replies_that_their_parties_signed_are_believed(four: Deployment) -> None:
    made, grid, query = federation(four)
    assert made.sum(query).sizes == FOUR["sizes"]
    assert made.report.rejected == {}
    assert grid.asked == {FIRST_NODE + number for number in range(4)}


@pytest.mark.parametrize("step", ["join", "advertise", "share", "answer", "confirm", "reveal"])
def test_a_reply_in_the_place_of_a_party_counts_for_nothing(four: Deployment, step: str) -> None:
    """It is bound to the right instruction, has the right body, and the signature of a peer."""
    peer = read_identity(four.home("east") / "identity.key")

    def forged(node: int, at: str, asked: bytes, reply: bytes) -> list[bytes]:
        if (node, at) != (FIRST_NODE + 2, step):
            return [reply]
        return [signed_reply(reply_body(reply), to=asked, key=peer)]

    made, grid, query = federation(four)
    grid.tamper = forged
    # Whoever has answered is in the sum, and the others open it.
    later = step in ("confirm", "reveal")
    assert made.sum(query).sizes == (FOUR["sizes"] if later else without(2))
    assert made.report.rejected == {"forged": 1, "silent": 1}


def test_a_forged_reply_does_not_take_the_place_of_the_genuine_one(four: Deployment) -> None:
    def both(node: int, _step: str, asked: bytes, reply: bytes) -> list[bytes]:
        """Somebody is quicker than the third party."""
        forged = signed_reply(reply_body(reply), to=asked, key=STRANGER)
        return [forged, reply] if node == FIRST_NODE + 2 else [reply]

    made, grid, query = federation(four)
    grid.tamper = both
    assert made.sum(query).sizes == FOUR["sizes"]
    assert made.report.rejected == {"forged": 6}


def test_an_earlier_reply_of_the_same_party_is_none_to_a_later_instruction(
    four: Deployment,
) -> None:
    kept: list[bytes] = []

    def replayed(node: int, step: str, _asked: bytes, reply: bytes) -> list[bytes]:
        if node == FIRST_NODE + 2:
            kept.append(reply)
        return [kept[-2] if (node, step) == (FIRST_NODE + 2, "answer") else reply]

    made, grid, query = federation(four)
    grid.tamper = replayed
    assert made.sum(query).sizes == without(2)
    assert made.report.rejected == {"forged": 1, "silent": 1}


@pytest.mark.parametrize("claims", [(0,), (2,), (1, 0), (1, 1), (HIGHEST_PARTY,)])
def test_a_node_has_its_own_seat_and_no_other(four: Deployment, claims: tuple[int, ...]) -> None:
    """Whose place it claims, signed as itself, stays in the sum; the squatter is in none."""
    key = read_identity(four.home("east") / "identity.key")

    def squatting(node: int, step: str, asked: bytes, reply: bytes) -> list[bytes]:
        if (node, step) != (FIRST_NODE + 1, "join"):
            return [reply]
        (joined,) = Reply.from_bytes(reply_body(reply)).messages
        assert isinstance(joined, Joined)
        sizes = dict(enumerate(four.sizes))
        claimed = tuple(replace(joined, party=each, size=sizes.get(each, 1)) for each in claims)
        return [signed_reply(Reply(messages=claimed).to_bytes(), to=asked, key=key)]

    made, grid, query = federation(four)
    grid.tamper = squatting
    assert made.sum(query).sizes == without(1)
    assert made.report.rejected == {"stranger": 1}


def test_a_node_without_a_seat_gets_no_message(four: Deployment) -> None:
    """Neither one that nobody knows, nor one that is registered with a key of no party."""
    path = four.server / "nodes" / "south.json"
    write_json(path, {"node": str(FIRST_NODE + 2), "key": "ecdsa-sha2-nistp384 another"})
    made, grid, query = federation(four)
    grid.strangers = (FIRST_NODE + 7,)
    assert made.sum(query).sizes == without(2)
    assert grid.asked == {FIRST_NODE, FIRST_NODE + 1, FIRST_NODE + 3}


def test_a_party_that_is_registered_again_has_its_seat_at_the_new_node(four: Deployment) -> None:
    made, grid, query = federation(four)
    new = FIRST_NODE + 9
    grid._states[new] = grid._states.pop(FIRST_NODE + 2)
    assert made.sum(query).sizes == without(2)
    note = {"node": str(new), "key": four.roster.members[2].node}
    write_json(four.server / "nodes" / "south.json", note)
    grid._app = client_app(
        lambda context: (
            four.opened("south", node=new) if context.node_id == new else four.signed_host(context)
        )
    )
    assert made.sum(query).sizes == FOUR["sizes"]


def test_two_parties_at_one_node_stop_the_run(four: Deployment) -> None:
    note = {"node": str(FIRST_NODE), "key": four.roster.members[1].node}
    write_json(four.server / "nodes" / "east.json", note)
    made, _, query = federation(four)
    with pytest.raises(ValueError, match="notes two parties at node 1001"):
        made.sum(query)


def test_a_server_without_the_rosters_key_does_not_begin(four: Deployment) -> None:
    path = four.server / "identity.key"
    write_private(path, identity_private(STRANGER), force=True)
    with pytest.raises(ValueError, match="must be the private key of the server in the roster"):
        four.seal()
    path.chmod(0o644)
    with pytest.raises(ValueError, match="readable by its owner alone"):
        four.seal()


def test_a_federation_of_strangers_has_no_sum(four: Deployment) -> None:
    """A server that signs with another key than the one which the parties pin is not heard."""
    made, _, query = federation(four)
    made._members._courier._seal = replace(four.seal(), key=STRANGER)
    made._members._seal = made._members._courier._seal
    with pytest.raises(RoundFailed, match="no party has joined"):
        made.sum(query)
    assert made.report.rejected == {"error": 4}
