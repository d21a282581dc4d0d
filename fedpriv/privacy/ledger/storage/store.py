"""The queries of a ledger. Its rows are only ever appended.

Writers take the lock before they read (``BEGIN IMMEDIATE``), so that they append to exactly what
they checked. Every query is answered from an index or the end of the table: none slows down as the
ledger grows, except those that list it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.ledger.composition import Cost
from fedpriv.privacy.ledger.errors import LedgerError, LedgerTampered
from fedpriv.privacy.ledger.storage.chain import (
    COLUMNS,
    THE_LEDGER,
    WHOLE_RUN,
    Kind,
    Row,
    next_row,
    require_hash,
    require_release,
)
from fedpriv.privacy.ledger.storage.database import (
    copy_database,
    create_database,
    open_database,
    require_same,
    translated,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

_COLUMNS = ", ".join(["rows.rowid", *(f"rows.{name}" for name in COLUMNS[1:])])
_READ = f"SELECT {_COLUMNS} FROM rows"  # noqa: S608 (constants)
_READ_ALL = f"SELECT {_COLUMNS}, release FROM rows ORDER BY rowid"  # noqa: S608 (constants)
# One statement, hence one view of both tables, whatever others append meanwhile.
_TAIL = (
    f"SELECT {_COLUMNS}, head.rows, head.hash "  # noqa: S608 (constants)
    "FROM head LEFT JOIN rows ON rows.rowid = (SELECT MAX(rowid) FROM rows)"
)
_WRITE = (
    f"INSERT INTO rows (rowid, {', '.join(COLUMNS[1:])}, release) "  # noqa: S608 (constants)
    f"VALUES ({', '.join('?' * (len(COLUMNS) + 1))})"
)
_PAGE = 1000
_BEFORE_ALL = -(2**63)


class Store:
    """A connection to the ledger at ``path``.

    May be shared by threads, not by processes: after a fork, open the file again.
    """

    def __init__(self, path: Path, *, read_only: bool, timeout: float) -> None:
        self.path = path
        self._lock = RLock()
        self._process = os.getpid()
        self._connection, self._place = open_database(path, read_only=read_only, timeout=timeout)

    @staticmethod
    def create(path: Path, *, salt: bytes, details: Mapping[Kind, str]) -> None:
        """Create the file with its first rows: a kind and a detail each, in order."""
        rows: list[Row] = []
        for kind, detail in details.items():
            rows.append(next_row(rows[-1] if rows else None, kind=kind, detail=detail))

        def fill(connection: sqlite3.Connection) -> None:
            for row in rows:
                connection.execute(_WRITE, (*row.values(), None))
            last = rows[-1]
            connection.execute("INSERT INTO head VALUES (1, ?, ?)", (last.seq, last.hash))
            connection.execute("INSERT INTO secret VALUES (1, ?)", (salt,))

        create_database(path, fill)

    def close(self) -> None:
        """Close the connection; the last one also folds the write-ahead log into the file."""
        with self._lock:
            self._connection.close()

    def copy_to(self, path: Path) -> None:
        """Copy the file as it is at one moment, whatever others append meanwhile."""
        self._require_own_process()
        with self._lock, translated(self.path):
            copy_database(self._connection, path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction in which nobody else can write: durable when it returns, or nothing.

        Durable in the file that has the ledger's name, before and after it: if someone puts back a
        copy, or a fresh one, while this one is open, its rows must not be missing there.
        """
        require_same(self.path, self._place)
        with self._transaction("BEGIN IMMEDIATE"):
            yield
        require_same(self.path, self._place)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One consistent view of the file."""
        with self._transaction("BEGIN"):
            yield

    def append(
        self,
        after: Row,
        *,
        kind: Kind,
        run: str = THE_LEDGER,
        round: int = WHOLE_RUN,  # noqa: A002 (its name everywhere)
        detail: str,
        cost: Cost = Cost(),  # noqa: B008 (immutable)
        ordinal: int | None = None,
        release: bytes | None = None,
    ) -> Row:
        """Add a row after the last one, within `writing`."""
        row = next_row(
            after,
            kind=kind,
            run=run,
            round=round,
            detail=detail,
            cost=cost,
            ordinal=ordinal,
            release_hash=None if release is None else sha256(release).digest(),
        )
        self._connection.execute(_WRITE, (*row.values(), release))
        self._connection.execute("UPDATE head SET rows = ?, hash = ?", (row.seq, row.hash))
        return row

    def tail(self) -> Row:
        """The last row, checked against its own hash and the head."""
        *values, count, head = self._first(_TAIL) or (None,) * (len(COLUMNS) + 2)
        row = _as_row(values)
        if count is None or (row.seq, row.hash) != (count, head):
            raise LedgerTampered("its last row is not the one that its head names")
        require_hash(row)
        return row

    def head(self) -> tuple[int, bytes] | None:
        """How many rows there should be, and the hash of the last."""
        head: tuple[int, bytes] | None = self._first("SELECT rows, hash FROM head")
        return head

    def salt(self) -> bytes:
        """The secret of the fingerprint; empty if it was removed."""
        (salt,) = self._first("SELECT salt FROM secret") or (None,)
        return salt if isinstance(salt, bytes) else b""

    def kinds(self, run: str, round: int) -> set[str]:  # noqa: A002
        """The kinds of rows that exist for a round, and for its run as a whole."""
        kinds = self._all(
            "SELECT kind FROM rows WHERE run = ? AND round IN (?, ?)", run, WHOLE_RUN, round
        )
        return {kind for (kind,) in kinds}

    def has_run(self, run: str) -> bool:
        """Whether any row belongs to ``run``."""
        return self._first("SELECT 1 FROM rows WHERE run = ? LIMIT 1", run) is not None

    def row(self, kind: Kind, run: str = THE_LEDGER, round: int = WHOLE_RUN) -> Row | None:  # noqa: A002
        """The one row of this kind for a round, a run or the ledger, checked against its hash."""
        row = self._row(f"{_READ} WHERE run = ? AND round = ? AND kind = ?", run, round, kind)
        if row is not None:
            require_hash(row)
        return row

    def numbered(self, seq: int) -> Row | None:
        """The row of this number, checked against its hash."""
        row = self._row(f"{_READ} WHERE rowid = ?", seq)
        if row is not None:
            require_hash(row)
        return row

    def bindings(self) -> list[Row]:
        """Every row that binds the ledger to records, in order, checked against its hash."""
        bindings = self._all(
            f"{_READ} WHERE run = ? AND kind = ? ORDER BY round", THE_LEDGER, Kind.DATA
        )
        rows = [_as_row(values) for values in bindings]
        for row in rows:
            require_hash(row)
        return rows

    def row_before(self, run: str) -> Row | None:
        """The last row before the first one of ``run``; None if the run does not exist."""
        (first,) = self._first("SELECT MIN(rowid) FROM rows WHERE run = ?", run)
        return None if first is None else self._row(f"{_READ} WHERE rowid = ?", first - 1)

    def used(self, run: str, detail: str) -> int:
        """How many releases of one event a declared run has reserved."""
        (used,) = self._first(
            "SELECT MAX(ordinal) FROM rows WHERE run = ? AND detail = ? AND ordinal IS NOT NULL",
            run,
            detail,
        )
        return used or 0

    def release(self, row: Row) -> bytes | None:
        """The release that ``row`` stores, checked against its hash."""
        (release,) = self._first("SELECT release FROM rows WHERE rowid = ?", row.seq)
        require_release(row, release)
        return None if release is None else bytes(release)

    def rows(self) -> Iterator[Row]:
        """Every row in order, a page at a time."""
        start = _BEFORE_ALL
        while page := self._all(f"{_READ} WHERE rowid >= ? ORDER BY rowid LIMIT {_PAGE}", start):
            yield from map(_as_row, page)
            start = page[-1][0] + 1

    def rows_and_releases(self) -> Iterator[tuple[Row, object]]:
        """Every row in order, with its stored release, one at a time, within `reading`."""
        with translated(self.path):
            for *values, release in self._connection.execute(_READ_ALL):
                yield _as_row(values), release

    def runs(self) -> list[tuple[Any, ...]]:
        """Totals of every run, in order of appearance."""
        return self._all(
            """SELECT run, MAX(kind = 'simulated'), MAX(kind = 'declared'),
                SUM(kind = 'reserved'), SUM(kind = 'committed'), TOTAL(amount), TOTAL(delta),
                MIN(time), MAX(time)
            FROM rows NOT INDEXED WHERE run <> '' GROUP BY run ORDER BY MIN(rowid)"""
        )

    def schema(self) -> set[str]:
        """The definitions of everything in the file."""
        return {sql for (sql,) in self._all("SELECT sql FROM sqlite_master")}

    def damage(self) -> str | None:
        """What SQLite itself finds wrong with the file, its indices included."""
        (report,) = self._first("PRAGMA integrity_check(1)")
        return None if report == "ok" else str(report)

    def _row(self, query: str, *parameters: str | int) -> Row | None:
        values = self._first(query, *parameters)
        return None if values is None else _as_row(values)

    def _first(self, query: str, *parameters: str | int | bytes) -> Any:
        return next(iter(self._all(query, *parameters)), None)

    def _all(self, query: str, *parameters: str | int | bytes) -> list[Any]:
        self._require_own_process()
        with self._lock, translated(self.path):
            return self._connection.execute(query, parameters).fetchall()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._require_own_process()
        with self._lock, translated(self.path):
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError("a ledger cannot be used after a fork: open it again.")


def _as_row(values: Iterable[Any]) -> Row:
    return Row(**dict(zip(COLUMNS, values, strict=True)))
