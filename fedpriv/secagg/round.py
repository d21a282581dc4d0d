"""A round: what everybody must agree on before it, and what binds a message or state to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_count
from fedpriv.secagg.errors import WrongRound
from fedpriv.secagg.numbers.fixed_point import MAX_PARTIES
from fedpriv.secagg.primitives.codec import Fixed, Layout, Number, Packed

if TYPE_CHECKING:
    from fedpriv.secagg.thresholds import Parameters

RUN_BYTES = 32
IDENTITY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bound(Packed):
    """A message or state of one party in one round of one run. Its repr shows no secret."""

    layout: ClassVar[Layout] = {
        "run": Fixed(RUN_BYTES),
        "round": Number(4),
        "party": Number(2),
    }
    run: bytes
    round: int
    party: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(round={self.round}, party={self.party})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of one run, as one participant sees it.

    Each participant builds its own: run, number and cohort as the server announced them, roster and
    parameters from what it trusts itself. Participants that differ in any of these derive different
    keys and sign different bytes, so neither accepts a message of the other.

    Attributes:
        run: 32 random bytes that name the run.
        number: The round, from 1.
        cohort: The parties announced for this round, in increasing order.
        roster: Every party's Ed25519 identity key, exchanged out of band; a party is its position.
        parameters: Mode, colluders, holders, threshold and minimum for a cohort of this size.
        context: The digest of all of the above, in every derived key, signature and ciphertext.
    """

    run: bytes
    number: int
    cohort: tuple[int, ...]
    roster: tuple[bytes, ...] = field(repr=False)
    parameters: Parameters
    context: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_count(number=self.number)
        if self.number >= 2**32:
            raise ValueError(f"number must be below 2^32, got {self.number}.")
        if len(self.run) != RUN_BYTES:
            raise ValueError(f"run must have {RUN_BYTES} bytes, got {len(self.run)}.")
        if any(len(key) != IDENTITY_BYTES for key in self.roster):
            raise ValueError(f"roster must consist of keys of {IDENTITY_BYTES} bytes.")
        if len(self.roster) > MAX_PARTIES:
            raise ValueError(f"roster must have at most {MAX_PARTIES} keys: numbers have 2 bytes.")
        if len(set(self.roster)) != len(self.roster):
            raise ValueError("roster must not repeat an identity key: one party would count twice.")
        if list(self.cohort) != sorted(set(self.cohort)):
            raise ValueError("cohort must increase: one party is repeated or out of order.")
        if not (self.cohort and 0 <= self.cohort[0] <= self.cohort[-1] < len(self.roster)):
            raise ValueError(f"cohort must be positions in the roster of {len(self.roster)} keys.")
        if len(self.cohort) != self.parameters.parties:
            raise ValueError(
                f"cohort must have parameters.parties = {self.parameters.parties} members, got "
                f"{len(self.cohort)}. Plan parameters for this cohort."
            )
        if len(self.roster) != self.parameters.roster:
            raise ValueError(
                f"roster must have parameters.roster = {self.parameters.roster} keys, got "
                f"{len(self.roster)}. Plan parameters for this roster."
            )
        object.__setattr__(self, "context", self._digest())

    def require_here(self, value: Bound, *, party: int | None = None) -> None:
        """Refuse a value of another run, round or party than expected, or of a stranger."""
        if (value.run, value.round) != (self.run, self.number):
            raise WrongRound(f"{value!r} is not of round {self.number} of this run.")
        if value.party not in self.cohort or party not in (None, value.party):
            raise WrongRound(f"{value!r} is not of a party expected here.")

    def _digest(self) -> bytes:
        """SHA-256 of all fields, each of fixed length or prefixed by its length."""
        mode = self.parameters.mode.value.encode()
        numbers = (
            self.number,
            self.parameters.holders,
            self.parameters.threshold,
            self.parameters.minimum,
            self.parameters.colluders,
            len(mode),
            len(self.cohort),
            len(self.roster),
        )
        parts = [
            b"fedpriv/secagg/1/round\0",
            self.run,
            np.array(numbers, dtype=">u4").tobytes(),
            mode,
            np.array(self.cohort, dtype=">u2").tobytes(),
            *self.roster,
        ]
        return sha256(b"".join(parts)).digest()
