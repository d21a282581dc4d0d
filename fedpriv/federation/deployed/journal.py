"""Journal of a deployed party: what it must not forget, in a directory of its own disk.

A deployed ClientApp is a fresh process for every message, and its machine may fail between any two.
The directory survives both. Every file is replaced whole, is durable before anything that follows
from it leaves the party, and is readable by its owner alone: there are secrets in it.

    lock                one process at a time
    ledger              how long the party's ledger was after the latest answer, and its head
    left                the same when all runs were left, which is done when a backup is put back
    seats/RUN           a run that was joined: its channel key, name and protocol state
    answers/RUN         the latest release of a run: the secret of its draw, then the answer
    variates/RUN        the party's control variate in a run of SCAFFOLD, while the run goes on
    heard/RUN           the latest instruction of a run: its number and digest
    cancelled/RUN       a run that was cancelled: its name
    attested/RUN        a run whose statement was signed, and which is over: the statement's digest
    planned/RUN         a run that was first answered under a plan: what its releases are known by
    shown/RUN           what the experiment is known by that a run was first answered under
    noised/RUN          a run of which every answer has noise of the party's: its name, else nothing

Seats and answers are kept for the latest runs. Of an older one the name of the seat is left, so
that it is not joined again, and the ledger's rows, so that no release of it is drawn again. Numbers
of instructions are kept for the latest runs, too: an older instruction is late by itself. Which
ones are the latest, no clock decides that was put back meanwhile, or was wrong for a day.

The secret of a draw is worth more than the answer: who has both can subtract the noise. It is on
the disk from before the records are used until the answer is stored, which replaces it by zeros; a
release that is never finished keeps it until the run's next one. What a disk keeps of a file that
was replaced is not covered, as it is not for channel keys and mask seeds: encrypt the disk.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from fedpriv._durable import OWNER_ONLY, replace_file, synchronise
from fedpriv.federation.party.answered import Given
from fedpriv.federation.party.memory import Memory
from fedpriv.federation.protocol.instruction import Heard
from fedpriv.secagg.errors import WrongRound
from fedpriv.secagg.primitives.codec import Fixed, Layout, Number, Packed
from fedpriv.secagg.primitives.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fedpriv.privacy.ledger import Ledger

_MOST_JOINED = 1 << 16  # runs in all, so that no server fills the disk with their names
_OPEN_SEATS = 16  # runs whose protocol state is kept; of older ones only that they were joined
_ANSWERS = 64  # runs whose latest answer is kept: a server must not fill the disk with them
_HEARD = 64  # runs whose latest instruction is kept
_FOLDER = 0o700


@dataclass(frozen=True, slots=True, kw_only=True, eq=True)
class LedgerMark(Packed):
    """A ledger at one time: whatever it is later, it begins like this.

    Attributes:
        rows: How many rows it had.
        head: The hash of the last of them.
    """

    kind: ClassVar[int] = Kind.LEDGER_MARK
    layout: ClassVar[Layout] = {"rows": Number(8), "head": Fixed(32)}
    rows: int
    head: bytes

    @classmethod
    def of(cls, ledger: Ledger) -> LedgerMark:
        """Where a ledger ends now."""
        rows = ledger.length
        return cls(rows=rows, head=bytes.fromhex(ledger.hash_of(rows) or ""))


class Journal:
    """`fedpriv.federation.party.memory.Store` on a disk.

    Every method that writes has written when it returns, or raises `OSError`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seats = folder / "seats"
        self._answers = folder / "answers"
        self._variates = folder / "variates"
        self._heard = folder / "heard"
        self._cancelled = folder / "cancelled"
        self._attested = folder / "attested"
        self._planned = folder / "planned"
        self._noised = folder / "noised"
        self._shown = folder / "shown"
        self._lock = folder / "lock"
        self._ledger = folder / "ledger"
        self._left = folder / "left"

    @property
    def used(self) -> bool:
        """Whether this party has ever used its ledger, or begun an answer, or put one back."""
        begun = self._answers.is_dir() and any(self._answers.iterdir())
        return begun or self._ledger.exists() or self._left.exists()

    @property
    def ledger(self) -> LedgerMark | None:
        """The party's ledger as it was after the latest answer; None before the first one."""
        data = _read(self._ledger)
        return None if data is None else LedgerMark.from_bytes(data)

    def mark(self, ledger: LedgerMark) -> None:
        """Remember how far the ledger has got."""
        if ledger != self.ledger:
            _write(self._ledger, ledger.to_bytes())

    @property
    def left(self) -> LedgerMark | None:
        """The party's ledger as it was when all its runs were left; None if they never were."""
        data = _read(self._left)
        return None if data is None else LedgerMark.from_bytes(data)

    @property
    def joined(self) -> tuple[str, ...]:
        """The runs that were ever joined, in hexadecimal digits."""
        return tuple(sorted(path.name for path in self._seats.glob("[!.]*")))

    def leave(self, *joined: str, ledger: LedgerMark) -> None:
        """Leave all runs for good: those joined, here or as told, and all that ``ledger`` knows.

        Their protocol state, answers and draws are erased. That they were left is known first: no
        ledger is made anew then, whatever comes between this and putting the old one back.
        """
        _write(self._left, ledger.to_bytes())
        for run in {*joined, *self.joined}:
            _write(self._seats / run, b"")
        for kept in (*self._answers.glob("*"), *self._variates.glob("*")):
            kept.unlink()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all other processes out: a message is handled alone, from first to last byte."""
        for folder in (self._folder, self._seats, self._answers, self._heard):
            _make(folder)
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, OWNER_ONLY)
        try:
            os.fchmod(lock, OWNER_ONLY)  # whatever the umask
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def memory(self, run: bytes) -> Memory:
        """The place in a run, or a new one to join it with.

        Raises:
            WrongRound: The run is over, and was left for good; or no other one is joined any more.
        """
        data = _read(self._seats / run.hex())
        if data == b"":
            raise WrongRound("The run is over: this party has left it for good.")
        if data is None and len(self.joined) >= _MOST_JOINED:
            raise WrongRound(
                f"This party has joined {_MOST_JOINED} runs, and remembers no more of them: it "
                "must join the federation anew."
            )
        return Memory() if data is None else Memory.from_bytes(data)

    def keep(self, memory: Memory) -> None:
        """Replace the place in a run. A new run may push the oldest ones out, for good."""
        path = self._seats / memory.run.hex()
        new = not path.exists()
        self._write_latest(path, memory.to_bytes())
        if new:
            kept = (other for other in self._seats.glob("[!.]*") if other.stat().st_size)
            for old in _oldest(kept, newest=path)[:-_OPEN_SEATS]:
                _write(old, b"")

    def given(self, name: str) -> Given | None:
        """The latest answer of the run that queries call ``name``."""
        data = _read(self._answer(name))
        return Given.from_bytes(data) if data else None

    def give(self, name: str, given: Given) -> None:
        """Replace the latest answer of a run. That of a new run may push the oldest ones out."""
        self._write_among(self._answer(name), given.to_bytes(), most=_ANSWERS)

    def variate(self, name: str) -> bytes | None:
        """The party's control variate in the run that queries call ``name``, if it has one."""
        return _read(self._variates / _key(name))

    def keep_variate(self, name: str, variate: bytes) -> None:
        """Replace it. There is one for as many runs as there are answers, so of the same ones."""
        _make(self._variates)
        self._write_among(self._variates / _key(name), variate, most=_ANSWERS)

    def heard(self, run: bytes) -> Heard | None:
        """The latest instruction of a run that was acted on, or was about to be."""
        data = _read(self._heard / run.hex())
        return None if data is None else Heard.from_bytes(data)

    def hear(self, run: bytes, heard: Heard) -> None:
        """Replace it. That of a new run may push the oldest ones out."""
        self._write_among(self._heard / run.hex(), heard.to_bytes(), most=_HEARD)

    def cancelled(self, name: str) -> bool:
        """Whether the run that queries call ``name`` was cancelled."""
        return (self._cancelled / _key(name)).exists()

    def cancel(self, name: str, seats: Iterable[bytes]) -> None:
        """Leave a run for good: no query of it is answered, its keys, masks and shares are gone.

        Of the latest answer the file is left, empty: that there was one must not be forgotten. The
        mark is left for what there is to leave, an answer or an open seat, and for nothing else: a
        seat can be left once, so that no server fills the disk with names of its own invention.

        Args:
            name: The run, as queries call it.
            seats: The runs of the protocol that served it; others are found by the name.
        """
        told, closed = {seat.hex() for seat in seats}, set()
        for path in self._seats.glob("[!.]*"):
            data = _read(path)
            if data and (path.name in told or Memory.from_bytes(data).name == name):
                closed.add(path)
        answered = self._answer(name).exists()
        if closed or answered:
            _make(self._cancelled)
            _write(self._cancelled / _key(name), name.encode())
        for path in closed:
            _write(path, b"")
        if answered:
            _write(self._answer(name), b"")
        self._forget_variate(name)

    def attested(self, name: str) -> bool:
        """Whether the statement of the run that queries call ``name`` was signed."""
        return (self._attested / _key(name)).exists()

    def statement(self, name: str) -> bytes | None:
        """The digest of the one statement of a run that was signed; None if none was."""
        return _read(self._attested / _key(name))

    def attest(self, name: str, statement: bytes) -> None:
        """Remember what is signed of a run: no query of it is answered any more."""
        _make(self._attested)
        if not self.attested(name):
            _write(self._attested / _key(name), statement)
        self._forget_variate(name)

    def planned(self, name: str) -> bytes | None:
        """What the plan is known by under which a run began; None if none was stated then."""
        return _read(self._planned / _key(name))

    def own_noise(self, name: str) -> bool:
        """Whether every answer of a run had noise of this party's in it, from the first one on."""
        return bool(_read(self._noised / _key(name)))

    def shown(self, name: str) -> bytes | None:
        """What the experiment is known by that a run was first answered under; None if unknown."""
        return _read(self._shown / _key(name))

    def note(
        self, name: str, *, first: bool, shown: bytes, plan: bytes | None, own_noise: bool
    ) -> None:
        """Remember of a run what its statement must not contradict, before a release is begun.

        Args:
            name: The run, as queries call it.
            first: Whether it is the run's first release here.
            shown: What the experiment is known by that it is asked under.
            plan: What the plan is known by that it is asked under, if there is one.
            own_noise: Whether its answer has noise of this party's in it.
        """
        for folder in (self._shown, self._planned, self._noised):
            _make(folder)
        if first:
            _write(self._shown / _key(name), shown)
        if first and plan is not None:
            _write(self._planned / _key(name), plan)
        if first or not own_noise:
            _write(self._noised / _key(name), name.encode() if own_noise else b"")

    def _forget_variate(self, name: str) -> None:
        """Of a run that is over: it is made of the records, and needed no more."""
        (self._variates / _key(name)).unlink(missing_ok=True)

    def _answer(self, name: str) -> Path:
        return self._answers / _key(name)

    def _write_among(self, path: Path, data: bytes, *, most: int) -> None:
        """Replace a file of a directory that keeps the ``most`` latest ones."""
        new = not path.exists()
        self._write_latest(path, data)
        if new:
            for old in _oldest(path.parent.glob("[!.]*"), newest=path)[:-most]:
                old.unlink()

    def _write_latest(self, path: Path, data: bytes) -> None:
        """Replace a file, which is then later than all others: by its time, or else by one more.

        Of a clock that was put back, the file of a run that goes on would be the oldest, and the
        next run would push it out. The latest time of all is that of the lock.
        """
        _write(path, data)
        if self._lock.exists():
            time = max(path.stat().st_mtime_ns, self._lock.stat().st_mtime_ns + 1)
            for each in (path, self._lock):
                os.utime(each, ns=(time, time))


def _key(name: str) -> str:
    """A name as a file may have it."""
    return sha256(name.encode()).hexdigest()


def _oldest(paths: Iterable[Path], *, newest: Path) -> list[Path]:
    """Oldest first; ``newest`` last, whatever the clock says."""
    return sorted(paths, key=lambda path: (path == newest, path.stat().st_mtime_ns))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes) -> None:
    """Replace a file whole, durably, readable by its owner alone; if it fails, nothing is left."""
    replace_file(path, data, mode=OWNER_ONLY, locked=True)


def _make(folder: Path) -> None:
    """Make a directory that only its owner may enter, whatever the umask.

    Its name must survive as the files in it do: with the directory, all of them would be forgotten.
    """
    if not folder.is_dir():
        folder.mkdir(mode=_FOLDER, exist_ok=True)
        synchronise(folder.parent)
    folder.chmod(_FOLDER)
