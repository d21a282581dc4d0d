"""One row of a ledger, and the hash that ties it to the row before.

A row's hash is SHA-256 over a canonical encoding of every other column, including the previous
row's hash: each value is preceded by its type and its length, so that no two different rows have
the same encoding. A release enters by its own SHA-256, so that the chain can be checked without the
releases.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.ledger.composition import Cost
from fedpriv.privacy.ledger.errors import LedgerTampered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GENESIS = bytes(32)
THE_LEDGER = ""  # the `run` of a row that belongs to no run
WHOLE_RUN = -1  # the `round` of a row that belongs to no single round

_DOMAIN = b"fedpriv ledger row 1\0"
_LENGTH = struct.Struct(">Q").pack
# How a value of each type enters the hash: its tag, then its length, then these bytes.
_ENCODINGS: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {
    type(None): (b"n", lambda _: b""),
    int: (b"i", lambda value: b"%d" % value),
    float: (b"f", struct.Struct(">d").pack),
    # Text that a fault made invalid UTF-8 must still hash, to some other value.
    str: (b"s", lambda value: value.encode(errors="surrogateescape")),
    bytes: (b"b", bytes),
}


class Kind(StrEnum):
    """What a row records.

    A ledger begins with CREATED and, unless its owner left the rule to the first charge, with
    COMPOSITION. DATA binds it to records; there is one more each time its owner binds it again.
    """

    CREATED = "created"
    DATA = "data"
    COMPOSITION = "composition"
    DECLARED = "declared"
    RESERVED = "reserved"
    COMMITTED = "committed"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row, as stored, except for the bytes of a release.

    Attributes:
        seq: 1, 2, 3, …
        kind: a `Kind`.
        run: which run, or `THE_LEDGER`.
        round: which round of it, or `WHOLE_RUN`.
        detail: canonical JSON: an event, a declaration, settings or a summary.
        ordinal: under a declared run, which release of this event it is, by count.
        amount: what the row spends, in the measure of the ledger's composition.
        delta: what it spends of δ directly.
        total_amount: Σ amount up to here.
        total_delta: Σ delta up to here.
        time: UTC, ISO 8601.
        release_hash: SHA-256 of the release, in a committed row.
        prev_hash: hash of the row before; zeros in the first.
        hash: of all the rest.
    """

    seq: int
    kind: str
    run: str
    round: int
    detail: str
    ordinal: int | None
    amount: float
    delta: float
    total_amount: float
    total_delta: float
    time: str
    release_hash: bytes | None
    prev_hash: bytes
    hash: bytes

    @property
    def cost(self) -> Cost:
        """What the row spends."""
        return Cost(amount=self.amount, delta=self.delta)

    @property
    def total(self) -> Cost:
        """What the ledger has spent up to here."""
        return Cost(amount=self.total_amount, delta=self.total_delta)

    def values(self) -> tuple[Any, ...]:
        """The columns in order, `hash` last."""
        return _get_columns(self)


COLUMNS = tuple(field.name for field in fields(Row))
_get_columns = attrgetter(*COLUMNS)


def next_row(
    after: Row | None,
    *,
    kind: Kind,
    run: str = THE_LEDGER,
    round: int = WHOLE_RUN,  # noqa: A002 (its name everywhere)
    detail: str,
    cost: Cost = Cost(),  # noqa: B008 (immutable)
    ordinal: int | None = None,
    release_hash: bytes | None = None,
) -> Row:
    """The row that follows ``after``, or the first one, with the present time and its hash."""
    total = after.total + cost if after else cost
    columns: dict[str, Any] = {
        "seq": after.seq + 1 if after else 1,
        "kind": kind.value,
        "run": run,
        "round": round,
        "detail": detail,
        "ordinal": ordinal,
        "amount": cost.amount,
        "delta": cost.delta,
        "total_amount": total.amount,
        "total_delta": total.delta,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "release_hash": release_hash,
        "prev_hash": after.hash if after else GENESIS,
    }
    return Row(**columns, hash=_hash(columns.values()))


def require_hash(row: Row) -> None:
    """Raise `LedgerTampered` if the row's hash is not that of its content."""
    if row.hash != _hash(row.values()[:-1]):
        raise LedgerTampered("its hash does not match its content", row=row.seq)


def require_release(row: Row, release: object) -> None:
    """Raise `LedgerTampered` if ``release`` is not the one whose hash the row has."""
    intact = (
        sha256(release).digest() == row.release_hash
        if isinstance(release, bytes)
        else release is row.release_hash is None
    )
    if not intact:
        raise LedgerTampered("its release is not the one that was committed", row=row.seq)


def _hash(values: Iterable[Any]) -> bytes:
    """SHA-256 of the canonical encoding of all columns but ``hash``, in the order of `COLUMNS`."""
    encoding = [_DOMAIN]
    for value in values:
        tag, encode = _ENCODINGS[type(value)]
        payload = encode(value)
        encoding += (tag, _LENGTH(len(payload)), payload)
    return sha256(b"".join(encoding)).digest()


def canonical_json(value: Any) -> str:
    """The one JSON text of ``value``: sorted keys, no spaces, exact floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
