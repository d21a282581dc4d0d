"""Rollback check: a ledger is restored only if nobody has seen a later state of it.

Who puts an older ledger in place of a newer one has a part of the budget twice. What is asked:

- the ledger that is in its place, if it can be read,
- what else on this machine has seen it: the mark in a party's state, those of the server's runs,
- the head that the operator names, the latest that anybody has.

Each must be a row of the backup, or nothing is done. If one of the first two is its *last* row, and
none of those who saw it may have paid for more, the backup is the newest. Else nothing on this
machine can tell what was paid for since: the operator vouches with ``head`` that it was nothing, or
the rest of the budget is written off.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv._durable import OWNER_ONLY, create_file, synchronise
from fedpriv.federation.deployed.journal import LedgerMark
from fedpriv.privacy.ledger import Ledger, LedgerError
from fedpriv.privacy.ledger.write_off import write_off

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    from fedpriv.federation.deployed.budget_terms import BudgetTerms

_LOGS = ("-wal", "-shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A state of a ledger that was seen.

    Attributes:
        where: Who has seen it, as the subject of a sentence.
        rows: How many rows there were.
        head: The hash of the last one.
        end: Whether they have paid for nothing after it. A run that is not finished may have.
    """

    where: str
    rows: int
    head: str
    end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Assurance:
    """What the operator says of the time between a backup and the loss.

    Attributes:
        head: The latest head of the ledger that anybody has seen.
        lost: Nobody knows: the rest of the budget is to be written off.
    """

    head: str | None = None
    lost: bool = False

    def __post_init__(self) -> None:
        if self.head is not None and self.lost:
            raise ValueError("--head and --lost exclude each other: either it is known, or not.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A ledger that may be put in its place, or the one that is there and stays.

    Attributes:
        path: Its place.
        fresh: The file that is to be put there; None if what is there stays.
        end: Where it ends.
        said: What is done with it, a sentence each.
    """

    path: Path
    fresh: Path | None
    end: LedgerMark
    said: tuple[str, ...]

    @property
    def stays(self) -> bool:
        """Whether what is there is as new as the backup, or newer."""
        return self.fresh is None

    def exchange(self) -> None:
        """Put it in the place of what is there, which is kept beside it with its log."""
        if self.fresh is None:
            return
        kept = f"{self.path}.replaced"
        if self.path.exists():
            shutil.copy2(self.path, kept)
        for suffix in _LOGS:  # SQLite would read the log of the old one into the new one
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").replace(f"{kept}{suffix}")
        self.fresh.replace(self.path)
        synchronise(self.path.parent)


def made_ready(
    data: bytes,
    path: Path,
    *,
    seen: Sequence[Seen],
    assurance: Assurance,
    stack: ExitStack,
    terms: BudgetTerms | None = None,
) -> Ready:
    """The ledger of a backup for the place ``path``, checked and, if need be, written off.

    Args:
        data: The ledger's file.
        path: Its place.
        seen: Which states of it were seen, beside what is in its place.
        assurance: What the operator says.
        stack: Removes at its end what is not used.
        terms: If given, must be the ledger's own.

    Raises:
        ValueError: The backup is older than what was seen, or the operator has to decide.
        LedgerError: It does not hold together, or is of another budget.
    """
    fresh = path.with_name(f".{path.name}.restoring")
    _remove(fresh)
    stack.callback(_remove, fresh)
    create_file(fresh, data, mode=OWNER_ONLY)
    with (
        Ledger.open(fresh) if terms is None else terms.open_ledger(fresh) as backup,
        _readable(path) as there,
    ):
        backup.verify()
        if there is not None and there.hash_of(backup.length) == backup.head:
            _require_newest(there, path.name, seen, assurance.head)
            said = f"{path.name} is as new as the backup or newer, and stays"
            return Ready(path=path, fresh=None, end=LedgerMark.of(there), said=(said,))
        if there is not None:
            seen = (Seen(where=path.name, rows=there.length, head=there.head), *seen)
        known = _require_newest(backup, "the backup", seen, assurance.head)
        if not known and not assurance.lost:
            raise ValueError(_UNKNOWN.format(path=str(path), rows=backup.length))
        lost: tuple[str, ...] = ()
        if not known:
            write_off(backup, run=f"written-off-after-row-{backup.length}")
            lost = (f"the rest of the budget of {path.name} was written off",)
        said = f"{path.name} was put back, with {backup.length} rows"
        return Ready(path=path, fresh=fresh, end=LedgerMark.of(backup), said=(said, *lost))


_UNKNOWN = (
    "nothing here shows whether the ledger {path!r} has paid for anything since the backup, which "
    "ends with row {rows}: it would be forgotten, and the budget be spent a second time. Ask the "
    "federation for the latest head that anybody has seen, and name it with --head. If nobody can "
    "say that nothing was answered since, --lost writes off the rest of the budget."
)


def _require_newest(ledger: Ledger, name: str, seen: Sequence[Seen], head: str | None) -> bool:
    """Whether a ledger is known to be the newest; refuses one that is known not to be."""
    for each in seen:
        if ledger.hash_of(each.rows) != each.head:
            raise ValueError(
                f"{each.where} has seen row {each.rows} of a ledger, and {name} does not have it: "
                f"{name} is older, or of another ledger. Take a newer backup."
            )
    if head is None:
        ends = all(each.end for each in seen)
        return ends and any(each.rows == ledger.length for each in seen)
    try:
        ledger.verify(expected_head=head)
    except LedgerError:
        raise ValueError(
            f"{name} has no row with the head {head}: it is older than what the federation has "
            "seen, or of another ledger. Take a newer backup."
        ) from None
    return True


@contextmanager
def _readable(path: Path) -> Iterator[Ledger | None]:
    """The ledger that is there; None if there is none, or if it does not hold together."""
    try:
        ledger = Ledger.open(path, read_only=True)
    except LedgerError:
        yield None
        return
    with ledger:
        try:
            ledger.verify()
        except LedgerError:
            sound = None
        else:
            sound = ledger
        yield sound


def _remove(path: Path) -> None:
    for suffix in ("", *_LOGS):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
