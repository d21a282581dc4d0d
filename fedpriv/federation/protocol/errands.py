"""Errands of a deployment: attest a statement, hand over the model, cancel a run.

They travel like every other message but need no seat: a party that missed a run, or returns after
its end, carries them out as well. Each can be repeated safely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpriv.secagg.primitives.codec import Blob, Fixed, Layout, Number
from fedpriv.secagg.primitives.kinds import Kind
from fedpriv.secagg.round import RUN_BYTES, Bound

MOST_STATEMENT = 1 << 22
MOST_MODEL = 1 << 25
"""Bytes of a model file that is handed over: four million parameters."""
MOST_SEATS = 1024
_NAME_BYTES = 800


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Attest(Bound):
    """Server to party: sign this statement, if your ledger says the same.

    Attributes:
        statement: The text of a `fedpriv.privacy.statement.signed.SignedStatement`.
    """

    kind: ClassVar[int] = Kind.ATTEST
    layout: ClassVar[Layout] = {"statement": Blob(MOST_STATEMENT)}
    statement: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Attested(Bound):
    """Party to server: its signature.

    Attributes:
        head: Of its ledger.
        rows: Of its ledger.
        releases: The number of the run's releases that it paid for.
        signature: See `fedpriv.privacy.statement.signed`.
    """

    kind: ClassVar[int] = Kind.ATTESTED
    layout: ClassVar[Layout] = {
        "head": Fixed(32),
        "rows": Number(8),
        "releases": Number(8),
        "signature": Fixed(64),
    }
    head: bytes
    rows: int
    releases: int
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HandOver(Bound):
    """Server to party: the released model, and the statement that names its digest.

    Attributes:
        statement: As in `Attest`, with its signatures.
        model: The bytes of model.npz.
    """

    kind: ClassVar[int] = Kind.HAND_OVER
    layout: ClassVar[Layout] = {"statement": Blob(MOST_STATEMENT), "model": Blob(MOST_MODEL)}
    statement: bytes
    model: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HandedOver(Bound):
    """Party to server: it has the model.

    Attributes:
        model: The SHA-256 of the model that it stored.
    """

    kind: ClassVar[int] = Kind.HANDED_OVER
    layout: ClassVar[Layout] = {"model": Fixed(32)}
    model: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cancel(Bound):
    """Server to party: leave a run for good. The budget that it spent stays spent.

    Attributes:
        name: The run's name in its queries.
        seats: The runs of the protocol that served it, 32 bytes each, one after the other.
    """

    kind: ClassVar[int] = Kind.CANCEL
    layout: ClassVar[Layout] = {"name": Blob(_NAME_BYTES), "seats": Blob(RUN_BYTES * MOST_SEATS)}
    name: bytes
    seats: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cancelled(Bound):
    """Party to server: it has left, and erased masks and shares."""

    kind: ClassVar[int] = Kind.CANCELLED


ERRANDS: tuple[type[Bound], ...] = (Attest, Attested, HandOver, HandedOver, Cancel, Cancelled)
