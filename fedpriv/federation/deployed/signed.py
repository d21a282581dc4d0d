"""Signed host of a deployed party: it opens for instructions that its server signed, and no other.

The rules are those of `fedpriv.federation.protocol.instruction`, in this order:

1. Signature of the server and hash of the body. What fails is an error, and nothing is signed.
2. Roster, run, node, party and experiment are those that this party has itself, and it is not late.
   Until here neither the body nor the experiment was parsed, and nothing was read from the journal.
3. Under the journal's lock: the number is higher than the latest one, or the instruction is the
   same. It is on the disk before the instruction is acted on; a party that is killed in between is
   asked the same again.

What fails at 2 or 3 is the server's, and is refused in a signed reply, so that it learns why. The
same instruction gets the same bytes: the host below has stored them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from logging import getLogger
from typing import TYPE_CHECKING

from fedpriv.federation.protocol.instruction import (
    Misdirected,
    Replayed,
    TooLate,
    milliseconds,
    opened,
    require_in_time,
    signed_reply,
)
from fedpriv.federation.protocol.wire import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.federation.deployed.host import DeployedHost
    from fedpriv.federation.deployed.journal import Journal
    from fedpriv.federation.protocol.instruction import Instruction, Place

_LOG = getLogger("fedpriv.party")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignedHost:
    """A party behind its server's signature.

    Attributes:
        place: What an instruction must be for.
        server: The identity of the server: 32 bytes, from the party's own roster.
        identity: The party's own, which signs its replies.
        journal: Where the number of the latest instruction is kept.
        max_seconds: How long an instruction may wait here, whatever time the server gives it.
        open_party: Opens the party for the experiment of the run.
        clock: Seconds since 1970.
    """

    place: Place
    server: bytes
    identity: Ed25519PrivateKey = field(repr=False)
    journal: Journal
    max_seconds: float
    open_party: Callable[[], DeployedHost]
    clock: Callable[[], float] = time.time

    def handle(self, data: bytes) -> bytes:
        """The signed reply to an instruction; what follows from it is in the journal.

        Raises:
            MalformedMessage: These bytes are no instruction, or what it asks is no request.
            BadSignature: It is not the server's. Nothing was done.
        """
        instruction, body = opened(data, server=self.server)
        try:
            reply = self._obeyed(instruction, body)
        except (Misdirected, TooLate, Replayed) as error:
            refusal = f"{type(error).__name__}: {error}"
            _LOG.warning("party %d refused: %s", self.place.party, refusal)
            reply = Reply(messages=(), refusal=refusal).to_bytes()
        return signed_reply(reply, to=instruction.digest, key=self.identity)

    def _obeyed(self, instruction: Instruction, body: bytes) -> bytes:
        received = self._now()
        instruction.require_at(self.place)
        deadline = instruction.deadline(received=received, most=self.max_seconds)
        require_in_time(received, deadline=deadline)
        host = self.open_party()
        with self.journal.held():  # perhaps after a while
            require_in_time(self._now(), deadline=deadline)
            last = self.journal.heard(instruction.run)
            instruction.require_next(last)
            if instruction.heard != last:
                self.journal.hear(instruction.run, instruction.heard)
            return host.handled(body, run=instruction.run)

    def _now(self) -> int:
        return milliseconds(self.clock())
