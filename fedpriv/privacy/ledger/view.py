"""A read-only view of a ledger: its settings, spend, runs and rows. Nothing is written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.ledger.binding import bound_fingerprints, require_bound
from fedpriv.privacy.ledger.charges import Charges
from fedpriv.privacy.ledger.errors import LedgerTampered
from fedpriv.privacy.ledger.reservations import merged
from fedpriv.privacy.ledger.settings import Settings, settings_from_dict
from fedpriv.privacy.ledger.storage.chain import THE_LEDGER, WHOLE_RUN, Kind, Row
from fedpriv.privacy.ledger.storage.verify import Verification, verify_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.fingerprint import Part
    from fedpriv.privacy.ledger.spend import Left, Spend
    from fedpriv.privacy.ledger.storage.store import Store

FORMAT = "fedpriv ledger 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a ledger.

    Attributes:
        run: its name.
        simulated: it protected nothing and was charged nothing.
        declared: it was charged as a whole, before its first release.
        reserved: releases paid for.
        committed: releases stored.
        amount: what it spent, in the measure of the ledger's composition.
        delta: what it spent of δ directly.
        first: time of its first row.
        last: time of its last row.
    """

    run: str
    simulated: bool
    declared: bool
    reserved: int
    committed: int
    amount: float
    delta: float
    first: str
    last: str


class LedgerView:
    """A read-only view of a ledger; `Ledger` can also be charged."""

    def __init__(self, store: Store) -> None:
        created = store.row(Kind.CREATED)
        if created is None:
            raise LedgerTampered("its first row is missing")
        self._store = store
        self._settings = settings_from_dict(json.loads(created.detail))
        self._charges = Charges(store, self._settings)

    @property
    def settings(self) -> Settings:
        """What the ledger is for."""
        return self._settings

    @property
    def head(self) -> str:
        """Hash of the last row. Kept elsewhere, it proves that nothing before it was changed."""
        return self._store.tail().hash.hex()

    @property
    def length(self) -> int:
        """The number of rows, and of the last one."""
        return self._store.tail().seq

    def hash_of(self, row: int) -> str | None:
        """Hash of row number ``row``; None if there is no such row.

        Whoever keeps the length and the head of a ledger elsewhere can tell by it whether a file is
        that ledger, unchanged or with rows added since, or an older or another one.
        """
        numbered = self._store.numbered(row)
        return None if numbered is None else numbered.hash.hex()

    def began(self, run: str) -> int | None:
        """Number of the first row of ``run``; None if it has none."""
        before = self._store.row_before(run)
        return None if before is None else before.seq + 1

    def declared(self, run: str) -> dict[str, Any] | None:
        """What ``run`` was charged for as a whole, as its row records it; None if it was not."""
        row = self._store.row(Kind.DECLARED, run)
        return None if row is None else json.loads(row.detail)

    def copy_to(self, path: Path) -> None:
        """Copy the ledger as it is at one moment, its log included, into a new file.

        An older copy has forgotten what was spent since: it is for `fedpriv deploy restore`, which
        checks whether it is the newest.
        """
        self._store.copy_to(path)

    def check_data(self, *parts: Part) -> None:
        """Raise `LedgerMismatch` unless ``parts`` are data that this ledger is bound to."""
        require_bound(self._store, *parts, name=self._settings.data_name)

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the data bound last; None until `bind_data`. Reveals no record."""
        return next(reversed(bound_fingerprints(self._store)), None)

    def prices(self, event: Event) -> bool:
        """Whether the rule of this ledger has a price for a release that was not declared.

        Where the first charge decides on the rule, it will be one that has.
        """
        rule = self.spent().composition
        if rule is not None:
            try:
                rule.price(event)
            except UnsupportedEvent:
                return False
        return True

    def require_price(
        self, releases: Iterable[tuple[Event, int]], *, delta: float | None = None
    ) -> None:
        """Raise `UnsupportedEvent` if the rule of this ledger has no price for a declared run.

        Writes nothing; whether the budget affords the run is another question.
        """
        self._charges.require_price(merged(releases), delta)

    def require_room(
        self, run: str, releases: Iterable[tuple[Event, int]], *, delta: float | None = None
    ) -> None:
        """Raise `BudgetRefusal` if a run of these releases would end before its last one.

        Writes nothing. For a run that has not begun.

        Args:
            run: what to call it in the refusal.
            releases: (event, count) pairs: all that it plans.
            delta: as for `Ledger.declare`.

        Raises:
            UnsupportedEvent: The rule of this ledger has no price for them.
        """
        self._charges.require_room(run, merged(releases), delta)

    def spent(self, *, before_run: str | None = None) -> Spend:
        """What was spent: in total, or before the first row of a run."""
        row = None if before_run is None else self._store.row_before(before_run)
        return self._charges.spent(row)

    def left(self) -> Left:
        """What is left."""
        return self.spent().left

    def runs(self) -> list[RunSummary]:
        """Every run, in order of appearance."""
        return _run_summaries(self._store)

    def rows(self) -> Iterator[Row]:
        """Every row, from the first."""
        return self._store.rows()

    def export(self) -> dict[str, Any]:
        """The whole ledger as JSON-ready values, except the salt and the bytes of releases.

        A release is represented by its SHA-256, so that the chain of hashes can still be checked.
        """
        with self._store.reading():
            return {
                "format": FORMAT,
                "settings": self._settings.to_dict(),
                "fingerprint": self.fingerprint,
                "head": self.head,
                **self.spent().to_dict(),
                "rows": [_row_values(row) for row in self.rows()],
            }

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """Check every row and recompute every cost; raises `LedgerTampered` at the first bad row.

        Args:
            expected_head: a head hash kept elsewhere, which some row must have. Without it, rows
                rewritten or removed at the end together with the head go unnoticed.
        """
        return verify_store(self._store, expected_head=expected_head)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _run_summaries(store: Store) -> list[RunSummary]:
    """Every run, in order of appearance."""
    return [
        RunSummary(
            run=run,
            simulated=bool(simulated),
            declared=bool(declared),
            reserved=reserved,
            committed=committed,
            amount=amount,
            delta=delta,
            first=first,
            last=last,
        )
        for (
            run,
            simulated,
            declared,
            reserved,
            committed,
            amount,
            delta,
            first,
            last,
        ) in store.runs()
    ]


def _row_values(row: Row) -> dict[str, Any]:
    """A row as JSON-ready values: bytes as hexadecimal digits, and null where there is no run."""
    return {
        **asdict(row),
        "run": None if row.run == THE_LEDGER else row.run,
        "round": None if row.round == WHOLE_RUN else row.round,
        "detail": json.loads(row.detail),
        "release_hash": None if row.release_hash is None else row.release_hash.hex(),
        "prev_hash": row.prev_hash.hex(),
        "hash": row.hash.hex(),
    }
