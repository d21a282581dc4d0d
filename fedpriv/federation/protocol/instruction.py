"""Signed instructions: what the server asks of a party and what it replies, proved end to end.

Flower carries the messages, and anyone who can inject one could impersonate somebody else. So a
deployment trusts nothing that Flower says about a sender. The server's Ed25519 identity, which
every party pins, signs every instruction; the party's identity, which the roster pins, signs the
reply.

Guarantee. A party acts on a body only if the server signed it for the roster, the Flower run, the
run of secure aggregation, the experiment, the node and the party that the receiver itself knows. It
never acts on an instruction older than one that it has acted on, nor on one past its deadline. A
reply that the server reads was signed by the party that it asked, for the instruction that it
answers. The carrier of messages can only delay them, until their deadline, or withhold them.

Assumptions. Both private keys are secret, Ed25519 is unforgeable and SHA-256 resists collisions;
the two clocks differ by less than the time that the server allows. *Why numbers.* A signature alone
does not prevent replay. Numbers increase within a run of secure aggregation, which the server names
with 32 fresh random bytes whenever it starts, so a restarted server need not remember them. The
party keeps its latest number on disk and advances it only for signed instructions.

There is no I/O here and no clock: `fedpriv.federation.engines.seals` signs at the server,
`fedpriv.federation.deployed.signed` verifies at the party.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from fedpriv.federation.protocol.wire import pack, unpack
from fedpriv.secagg.errors import BadSignature, MalformedMessage, SecureAggregationError
from fedpriv.secagg.primitives.codec import Fixed, Layout, Number, Packed
from fedpriv.secagg.primitives.keys import SIGNATURE_BYTES, is_signed
from fedpriv.secagg.primitives.kinds import Kind
from fedpriv.secagg.round import RUN_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_INSTRUCTION = b"fedpriv/instruction/1\0"
_REPLY = b"fedpriv/reply/1\0"
_DIGEST_BYTES = 32
_MILLISECONDS = 1000


class Misdirected(SecureAggregationError):
    """An instruction from the server for another party, run, experiment or roster."""


class TooLate(SecureAggregationError):
    """An instruction from the server past its deadline."""


class Replayed(SecureAggregationError):
    """An instruction older than the latest one, or a different one with the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Packed):
    """The destination of an instruction: one party at one node, in one run under one roster.

    Server and party each know all of it independently.

    Attributes:
        roster: The digest of the roster, which has its epoch and the server's identity in it.
        flower: Flower's number of the run.
        node: Flower's number of the node.
        party: The party's number in the roster.
        config: SHA-256 of the text of the experiment.
    """

    layout: ClassVar[Layout] = {
        "roster": Fixed(_DIGEST_BYTES),
        "flower": Number(8),
        "node": Number(8),
        "party": Number(2),
        "config": Fixed(_DIGEST_BYTES),
    }
    roster: bytes
    flower: int
    node: int
    party: int
    config: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard(Packed):
    """The latest instruction that a party has acted on in a run of secure aggregation.

    Attributes:
        number: Its number.
        digest: Its digest.
    """

    kind: ClassVar[int] = Kind.HEARD
    layout: ClassVar[Layout] = {"number": Number(8), "digest": Fixed(_DIGEST_BYTES)}
    number: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction(Place):
    """What the server signs.

    Attributes:
        run: The run of secure aggregation.
        number: Increases from instruction to instruction of the run.
        until: The deadline for acting on it, in milliseconds since 1970.
        body: SHA-256 of the request.
    """

    kind: ClassVar[int] = Kind.INSTRUCTION
    layout: ClassVar[Layout] = {
        "run": Fixed(RUN_BYTES),
        "number": Number(8),
        "until": Number(8),
        "body": Fixed(_DIGEST_BYTES),
    }
    run: bytes
    number: int
    until: int
    body: bytes

    @property
    def digest(self) -> bytes:
        """The digest to which a reply is bound."""
        return sha256(self.to_bytes()).digest()

    @property
    def heard(self) -> Heard:
        """The record of it that a party keeps."""
        return Heard(number=self.number, digest=self.digest)

    def signed(self, body: bytes, key: Ed25519PrivateKey) -> bytes:
        """The instruction with its body, as it is sent; ``key`` is the server's identity."""
        head = self.to_bytes()
        return pack([head, key.sign(_INSTRUCTION + head), body])

    def require_at(self, place: Place) -> None:
        """Refuse an instruction that is for another place; the error says what differs."""
        wrong = [name for name in Place.wires() if getattr(self, name) != getattr(place, name)]
        if wrong:
            raise Misdirected(
                f"The server signed this instruction, but its {_listed(wrong)} not this party's: "
                "compare roster and run."
            )

    def deadline(self, *, received: int, most: float) -> int:
        """The earlier of its own deadline and ``most`` seconds after it was received."""
        return min(self.until, received + milliseconds(most))

    def require_next(self, last: Heard | None) -> None:
        """Refuse an instruction unless it is later than ``last``, or identical to it."""
        if last is None or self.number > last.number or self.heard == last:
            return
        raise Replayed(
            f"Instruction {self.number} came after instruction {last.number} of the same run."
            if self.number < last.number
            else f"Another instruction {self.number} came before."
        )


def require_in_time(now: int, *, deadline: int) -> None:
    """Refuse an instruction past its deadline; both times in milliseconds since 1970."""
    if now > deadline:
        late = (now - deadline) / _MILLISECONDS
        raise TooLate(
            f"The deadline of the instruction passed {late:.1f} s ago by this party's clock: "
            "compare the clocks."
        )


def opened(data: bytes, *, server: bytes) -> tuple[Instruction, bytes]:
    """An instruction and its unparsed body, if the server has signed them.

    Raises:
        MalformedMessage: These bytes are not an instruction.
        BadSignature: It is not signed by the identity ``server``, or it was signed with another
            body.
    """
    head, signature, body = _parts(data, 3)
    instruction = Instruction.from_bytes(head)
    if not is_signed(_INSTRUCTION + head, signature, by=server):
        raise BadSignature("The instruction is not signed by the server that this party pins.")
    if sha256(body).digest() != instruction.body:
        raise BadSignature("The instruction was signed with another body.")
    return instruction, body


def signed_reply(body: bytes, *, to: bytes, key: Ed25519PrivateKey) -> bytes:
    """A reply to the instruction with the digest ``to``; ``key`` is the party's identity.

    Equal replies to the same instruction have equal bytes: Ed25519 signatures are deterministic.
    """
    return pack([key.sign(_replied(to, body)), body])


def opened_reply(data: bytes, *, to: bytes, party: bytes) -> bytes:
    """The unparsed body of a reply, if the party has signed it.

    Args:
        data: The reply as received.
        to: The digest of the instruction that it must answer.
        party: The identity that the roster has for the party that was asked.

    Raises:
        BadSignature: The bytes are not such a reply.
    """
    try:
        signature, body = _parts(data, 2)
    except MalformedMessage:
        raise BadSignature("A reply is not signed.") from None
    if not is_signed(_replied(to, body), signature, by=party):
        raise BadSignature("A reply is not signed by the party that was asked.")
    return body


def reply_body(data: bytes) -> bytes:
    """The body of a reply, **unverified**: for the party that has just signed it."""
    return _parts(data, 2)[1]


def milliseconds(seconds: float) -> int:
    """Seconds in the unit of `Instruction.until`."""
    return round(seconds * _MILLISECONDS)


def _replied(to: bytes, body: bytes) -> bytes:
    """What a party signs; every part has a fixed length."""
    return _REPLY + to + sha256(body).digest()


def _parts(data: bytes, count: int) -> list[bytes]:
    parts = unpack(data)
    if len(parts) != count or len(parts[-2]) != SIGNATURE_BYTES:
        raise MalformedMessage("Something signed has a signature before its body.")
    return parts


def _listed(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"
