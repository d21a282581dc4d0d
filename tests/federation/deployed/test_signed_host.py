"""Instructions that the server signs, at a party: who is heard, of which run, and when."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.federation.engines.local import FIRST_NODE
from fedpriv.federation.protocol.instruction import (
    Heard,
    Instruction,
    milliseconds,
    opened_reply,
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
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.deploy.members.epochs import pin
from fedpriv.simulations.deploy.members.roster import write_roster
from tests.federation.deployed.deployments import FLOWER, Deployment

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.deployed.signed import SignedHost
    from fedpriv.secagg.round import Bound

RUN, OTHER_RUN = b"s" * 32, b"t" * 32
HIGHEST = 2**32 - 1
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
        "Misdirected: The server signed this instruction",
    )
    assert f"its {field} is not this party's" in reply.refusal
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
    assert reply.refusal.startswith("TooLate: The deadline of the instruction passed 3")
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
