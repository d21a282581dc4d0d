"""Who is heard, and who is believed: the server's signature at a party, the party's at the server.

Whoever gets Flower to carry a message could speak for the server, or answer for somebody else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Message

from fedpriv.federation.engines.courier import Patience, envelope, opened
from fedpriv.federation.engines.grid import GridFederation, RoundFailed
from fedpriv.federation.engines.local import FIRST_NODE, LocalGrid, VirtualClock
from fedpriv.federation.party.client_app import client_app
from fedpriv.federation.protocol.instruction import (
    Heard,
    Instruction,
    milliseconds,
    opened_reply,
    reply_body,
    signed_reply,
)
from fedpriv.federation.protocol.wire import (
    Announce,
    Ask,
    Join,
    Joined,
    Reply,
    Request,
    pack,
    unpack,
)
from fedpriv.secagg.errors import BadSignature, MalformedMessage
from fedpriv.secagg.messages import Advertise
from fedpriv.simulations.deploy.keys import identity_private, read_identity, write_private
from fedpriv.simulations.deploy.members.epochs import pin
from fedpriv.simulations.deploy.members.roster import write_roster
from fedpriv.simulations.deploy.run.server import open_session
from fedpriv.simulations.engines.parties import protection
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.prepare import build_strategy
from tests.federation.deployed.deployments import FLOWER, FOUR, Deployment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fedpriv.federation.deployed.signed import SignedHost
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.secagg.round import Bound

RUN, OTHER_RUN = b"s" * 32, b"t" * 32
HIGHEST = 2**32 - 1
HIGHEST_PARTY = 2**16 - 1
STRANGER = Ed25519PrivateKey.generate()


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    tmp_path.chmod(0o700)
    return Deployment(folder=tmp_path)


def announce(round_: int) -> Announce:
    return Announce(run=RUN, round=round_, party=0, cohort=(0, 1, 2), minimum=3)


JOIN = Join(run=RUN, round=0, party=0)


@dataclass
class Line:
    """From the server's identity to the first party, whose every message has a fresh process."""

    deployment: Deployment
    number: int = 0

    @property
    def server(self) -> Ed25519PrivateKey:
        return read_identity(self.deployment.server / "identity.key")

    @property
    def party(self) -> SignedHost:
        return self.deployment.opened("north", node=FIRST_NODE)

    def instruction(self, body: bytes, **changes: Any) -> Instruction:
        self.number += 1
        stated = {
            "roster": self.deployment.roster.digest,
            "flower": FLOWER,
            "node": FIRST_NODE,
            "party": 0,
            "config": sha256(self.deployment.config().encode()).digest(),
            "run": RUN,
            "number": self.number,
            "until": milliseconds(time.time() + 60),
            "body": sha256(body).digest(),
        }
        return Instruction(**{**stated, **changes})

    def signed(self, *messages: Bound, key: Ed25519PrivateKey | None = None, **more: Any) -> bytes:
        body = Request(messages=messages).to_bytes()
        return self.instruction(body, **more).signed(body, key or self.server)

    def say(self, *messages: Bound, **more: Any) -> Reply:
        """What the party replies to an instruction, if its own signature is right."""
        return self.read(self.signed(*messages, **more))

    def read(self, data: bytes, party: SignedHost | None = None) -> Reply:
        reply = (party or self.party).handle(data)
        digest = sha256(unpack(data)[0]).digest()
        identity = self.deployment.roster.identities[0]
        return Reply.from_bytes(opened_reply(reply, to=digest, party=identity))

    @property
    def state(self) -> dict[str, bytes]:
        """All that the party has on its disk."""
        home = self.deployment.home("north")
        return {
            str(path.relative_to(home)): path.read_bytes()
            for path in sorted(home.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def line(deployment: Deployment) -> Line:
    return Line(deployment)


def _never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("it was opened")


# At the party: who is heard.


def forgeries(line: Line) -> dict[str, bytes]:
    """How a party, which knows all that is public, could speak to another one as the server."""
    peer = read_identity(line.deployment.home("east") / "identity.key")
    lock_out = (JOIN, announce(HIGHEST))
    genuine = line.signed(JOIN)
    head, signature, _ = unpack(genuine)
    other = Request(messages=lock_out).to_bytes()
    return {
        "unsigned": other,
        "a peer's signature": line.signed(*lock_out, key=peer, number=2**63),
        "a stranger's signature": line.signed(*lock_out, key=STRANGER),
        "another body": pack([head, signature, other]),
        "a reply": signed_reply(other, to=bytes(32), key=peer),
    }


@pytest.mark.parametrize(
    "kind", ["unsigned", "a peer's signature", "a stranger's signature", "another body", "a reply"]
)
def test_an_instruction_that_the_server_did_not_sign_changes_nothing(line: Line, kind: str) -> None:
    """A round of 2^32 - 1 would be the last one that the victim takes part in."""
    assert isinstance(line.say(JOIN).messages[0], Joined)
    before = line.state
    with pytest.raises((BadSignature, MalformedMessage)):
        line.party.handle(forgeries(line)[kind])
    assert line.state == before
    (advertised,) = line.say(announce(1)).messages
    assert isinstance(advertised, Advertise)


def test_the_servers_own_last_round_is_the_last_one(line: Line) -> None:
    """The twin of the test above: signed by the server, the same words lock the party out."""
    assert len(line.say(JOIN, announce(HIGHEST)).messages) == 2
    assert "WrongRound" in line.say(announce(1)).refusal


def test_nothing_is_opened_for_a_forgery(line: Line) -> None:
    """Neither the experiment nor the journal: both could be what an attacker has prepared."""
    closed: Any = type("Closed", (), {"__getattr__": _never})()
    party = replace(line.party, open_party=_never, journal=closed)
    for data in forgeries(line).values():
        with pytest.raises((BadSignature, MalformedMessage)):
            party.handle(data)
    with pytest.raises(AssertionError, match="it was opened"):
        party.handle(line.signed(JOIN))


OTHERS: dict[str, Any] = {
    "roster": bytes(32),
    "flower": FLOWER + 1,
    "node": FIRST_NODE + 1,
    "party": 1,
    "config": bytes(32),
}


@pytest.mark.parametrize("field", OTHERS)
def test_an_instruction_for_somewhere_else_changes_nothing(line: Line, field: str) -> None:
    """It is the server's, captured on its way to another party or in another run or epoch."""
    before = line.state
    reply = line.say(JOIN, **{field: OTHERS[field]})
    assert (reply.messages, reply.refusal.partition(",")[0]) == (
        (),
        "Misdirected: The instruction is of the server's",
    )
    assert f"its {field} is not what this party has" in reply.refusal
    assert line.state == before


def test_another_text_of_the_experiment_is_another_instruction(line: Line) -> None:
    other = line.deployment.config(strategy={"rounds": 5})
    party = line.deployment.opened("north", other, node=FIRST_NODE)
    assert "its config is not" in line.read(line.signed(JOIN), party).refusal


def test_a_party_in_another_epoch_of_the_roster_hears_nothing_of_this_one(line: Line) -> None:
    roster = line.deployment.roster
    home = line.deployment.home("north")
    write_roster(home / "roster.toml", roster.successor())
    pin(home / "state", roster.successor())
    assert "its roster is not" in line.say(JOIN).refusal


def test_the_same_instruction_gets_the_same_bytes(line: Line) -> None:
    line.say(JOIN)
    data = line.signed(announce(1))
    first, before = line.party.handle(data), line.state
    assert line.party.handle(data) == first
    assert line.state == before


def test_an_instruction_that_was_overtaken_is_not_heard(line: Line) -> None:
    """By anybody who has kept it, and by any process of the party."""
    kept = line.signed(JOIN)
    line.read(kept)
    assert line.say(announce(1)).messages
    before = line.state
    assert "Replayed: Instruction 1 came after instruction 2" in line.read(kept).refusal
    other = line.say(announce(2), number=2)
    assert other.refusal == "Replayed: Another instruction 2 came before."
    assert line.state == before


def test_numbers_begin_anew_with_a_run_of_secure_aggregation(line: Line) -> None:
    """A server that was restarted begins one, and remembers no number."""
    line.say(JOIN, number=100)
    assert line.say(replace(JOIN, run=OTHER_RUN), run=OTHER_RUN, number=1).messages
    assert line.party.journal.heard(RUN) != line.party.journal.heard(OTHER_RUN)


def test_a_number_is_remembered_of_a_run_that_was_not_joined(line: Line) -> None:
    """Whatever an instruction asks for: the rule knows no kinds of message."""
    ask = Ask(run=RUN, round=1, party=0)
    assert "No run was joined yet" in line.say(ask, number=2).refusal
    assert "Replayed" in line.say(JOIN, number=1).refusal


def test_an_instruction_is_of_the_run_that_its_request_is_of(line: Line) -> None:
    with pytest.raises(MalformedMessage, match="another run than it is sent for"):
        line.say(JOIN, run=OTHER_RUN)
    assert not list((line.deployment.home("north") / "state" / "seats").iterdir())


def test_numbers_are_kept_of_the_latest_runs(line: Line) -> None:
    journal = line.party.journal
    runs = [sha256(bytes([i])).digest() for i in range(80)]
    with journal.held():
        for run in runs:
            journal.hear(run, Heard(number=1, digest=run))
    assert journal.heard(runs[-1]) == Heard(number=1, digest=runs[-1])
    assert sum(journal.heard(run) is not None for run in runs) == 64


def test_an_instruction_that_is_late_changes_nothing(line: Line) -> None:
    before = line.state
    reply = line.say(JOIN, until=milliseconds(time.time() - 30))
    assert reply.refusal.startswith("TooLate: The time of the instruction was over 3")
    assert line.state == before


def test_an_instruction_waits_no_longer_than_the_policy_says(line: Line) -> None:
    """Whatever time the server gives it: here an hour, and the party's file five seconds."""
    line.deployment.write_party("north", policy={"max_seconds": 5.0})
    data = line.signed(JOIN, until=milliseconds(time.time() + 3600))
    now = time.time()
    for waited, heard in ((6.0, False), (4.0, True)):
        ticks = iter((now, now + waited))
        reply = line.read(data, replace(line.party, clock=ticks.__next__))
        assert bool(reply.messages) == heard, reply.refusal


# At the server: who is believed.


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
