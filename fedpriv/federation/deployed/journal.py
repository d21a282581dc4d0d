"""What a deployed party must not forget, in a directory of its own disk.

A deployed ClientApp is a fresh process for every message, and its machine may fail between any two.
The directory survives both. Every file is replaced whole, is durable before anything that follows
from it leaves the party, and is readable by its owner alone: there are secrets in it.

    lock                one process at a time
    ledger              how long the party's ledger was after the latest answer, and its head
    seats/RUN           a run that was joined: its channel key, name and protocol state
    answers/RUN         the latest release of a run: the secret of its draw, then the answer

Seats and answers are kept for the latest runs. Of an older one the name of the seat is left, so
that it is not joined again, and the ledger's rows, so that no release of it is drawn again.

The secret of a draw is worth more than the answer: who has both can subtract the noise. It is on
the disk from before the records are used until the answer is stored, which replaces it by zeros; a
release that is never finished keeps it until the run's next one. What a disk keeps of a file that
was replaced is not covered, as it is not for channel keys and mask seeds: encrypt the disk.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from fedpriv.federation.party.memory import Memory
from fedpriv.federation.protocol.wire import pack, unpack
from fedpriv.privacy.randomness import SECRET_BYTES
from fedpriv.secagg.errors import MalformedMessage, WrongRound
from fedpriv.secagg.primitives.codec import Fixed, Ids, Layout, Number, Record, Vector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fedpriv.secagg.numbers.fixed_point import Ring

SALT_BYTES = 32
_ERASED = bytes(SECRET_BYTES)
_OPEN_SEATS = 16  # runs whose protocol state is kept; of older ones only that they were joined
_ANSWERS = 64  # runs whose latest answer is kept: a server must not fill the disk with them
_FOLDER, _FILE = 0o700, 0o600


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Given(Record):
    """The answer to one query of a run, before its masks, or how it will be drawn: private.

    Attributes:
        release: Which release of the run the query serves.
        query: SHA-256 of the query.
        salt: Random: the digest of an answer must not tell the answer.
        secret: All randomness of the answer follows from it; zeros once the answer is here, and
            where it has no randomness.
        vector: The answer; empty where asking again gets it computed again, without randomness.
        shared: 1 if it carries a share of the noise of the sum, else 0.
        seat: The 32 bytes of the masked run that it was last given in; zeros if in the clear.
        masks: The round of masks there.
        opened: The parties over which a sum with this answer in it was opened; empty if none was.
    """

    kind: ClassVar[int] = 96
    layout: ClassVar[Layout] = {
        "release": Number(8),
        "query": Fixed(32),
        "salt": Fixed(SALT_BYTES),
        "secret": Fixed(SECRET_BYTES),
        "vector": Vector(),
        "shared": Number(1),
        "seat": Fixed(32),
        "masks": Number(4),
        "opened": Ids(),
    }
    release: int
    query: bytes
    salt: bytes
    vector: Ring
    shared: int
    secret: bytes = _ERASED
    seat: bytes = bytes(32)
    masks: int = 0
    opened: tuple[int, ...] = ()

    @property
    def pending(self) -> bool:
        """Whether the answer is still to come, from the secret."""
        return self.secret != _ERASED

    def answered(self, vector: Ring) -> Given:
        """The same, with its answer, and without the secret."""
        return replace(self, vector=vector, secret=_ERASED)

    @property
    def digest(self) -> bytes:
        """What a ledger keeps of it: proof that it was this answer, and nothing about it."""
        return sha256(self.salt + self.query + self.vector.tobytes()).digest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=True)
class LedgerMark(Record):
    """A ledger at one time: whatever it is later, it begins like this.

    Attributes:
        rows: How many rows it had.
        head: The hash of the last of them.
    """

    kind: ClassVar[int] = 97
    layout: ClassVar[Layout] = {"rows": Number(8), "head": Fixed(32)}
    rows: int
    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A party's place in a run of the protocol: secret.

    Attributes:
        channel: Its X25519 key for this run.
        terms: SHA-256 of what it joined: which experiment, under which protection.
        name: The run as queries call it; empty before the first one.
        memory: Its place in the protocol.
    """

    channel: bytes = field(repr=False)
    terms: bytes
    name: str = ""
    memory: Memory = field(default_factory=Memory, repr=False)

    def to_bytes(self) -> bytes:
        """`from_bytes` inverts it."""
        return pack([self.channel, self.terms, self.name.encode(), self.memory.to_bytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Seat:
        """Read back what `to_bytes` wrote."""
        parts = unpack(data)
        if len(parts) != 4:
            raise MalformedMessage("A seat has four parts.")
        channel, terms, name, memory = parts
        return cls(
            channel=channel,
            terms=terms,
            name=name.decode(),
            memory=Memory.from_bytes(memory),
        )


class Journal:
    """The directory. Every method that writes has written when it returns, or raises `OSError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seats = folder / "seats"
        self._answers = folder / "answers"
        self._ledger = folder / "ledger"

    @property
    def used(self) -> bool:
        """Whether this party has ever used its ledger, or begun an answer."""
        begun = self._answers.is_dir() and any(self._answers.iterdir())
        return begun or self._ledger.exists()

    @property
    def ledger(self) -> LedgerMark | None:
        """The party's ledger as it was after the latest answer; None before the first one."""
        data = _read(self._ledger)
        return None if data is None else LedgerMark.from_bytes(data)

    def mark(self, ledger: LedgerMark) -> None:
        """Remember how far the ledger has got."""
        if ledger != self.ledger:
            _write(self._ledger, ledger.to_bytes())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all other processes out: a message is handled alone, from first to last byte."""
        for folder in (self._folder, self._seats, self._answers):
            folder.mkdir(mode=_FOLDER, exist_ok=True)
            folder.chmod(_FOLDER)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, _FILE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def seat(self, run: bytes) -> Seat | None:
        """The place in a run; None if it was never joined.

        Raises:
            WrongRound: The run is over, and was left for good.
        """
        data = _read(self._seats / run.hex())
        if data == b"":
            raise WrongRound("The run is over: this party has left it for good.")
        return None if data is None else Seat.from_bytes(data)

    def sit(self, run: bytes, seat: Seat) -> None:
        """Replace the place in a run. A new run may push the oldest ones out, for good."""
        path = self._seats / run.hex()
        new = not path.exists()
        _write(path, seat.to_bytes())
        if new:
            kept = (other for other in self._seats.glob("[!.]*") if other.stat().st_size)
            for old in _oldest(kept, newest=path)[:-_OPEN_SEATS]:
                _write(old, b"")

    def given(self, name: str) -> Given | None:
        """The latest answer of the run that queries call ``name``."""
        data = _read(self._answer(name))
        return None if data is None else Given.from_bytes(data)

    def give(self, name: str, given: Given) -> None:
        """Replace the latest answer of a run. That of a new run may push the oldest ones out."""
        path = self._answer(name)
        new = not path.exists()
        _write(path, given.to_bytes())
        if new:
            for old in _oldest(self._answers.glob("[!.]*"), newest=path)[:-_ANSWERS]:
                old.unlink()

    def _answer(self, name: str) -> Path:
        return self._answers / sha256(name.encode()).hexdigest()


def _oldest(paths: Iterable[Path], *, newest: Path) -> list[Path]:
    """Oldest first; ``newest`` last, whatever the clock says."""
    return sorted(paths, key=lambda path: (path == newest, path.stat().st_mtime_ns))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    """Replace a file whole, durably, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name itself must survive
    finally:
        os.close(folder)
