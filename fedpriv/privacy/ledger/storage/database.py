"""The SQLite file of a ledger: its schema, how it is opened, and its errors in our words.

Write-ahead log with ``synchronous = FULL``: a transaction is durable when it returns, for one
fsync.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv._durable import synchronise
from fedpriv.privacy.ledger.errors import (
    LedgerCorrupt,
    LedgerError,
    LedgerForeign,
    LedgerFull,
    LedgerLocked,
    LedgerMissing,
    LedgerNewer,
    LedgerReadOnly,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Place = tuple[int, int]
"""A file as the system knows it, whatever its name: device and number."""

APPLICATION_ID = 0x66507256  # "fPrV"
VERSION = 1

# The number of a row is SQLite's own rowid. As a column it would be stored a second time, in a byte
# that nothing reads, and that could therefore be changed unnoticed.
SCHEMA = (
    """CREATE TABLE rows (
    kind TEXT NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, detail TEXT NOT NULL,
    ordinal INTEGER, amount REAL NOT NULL, delta REAL NOT NULL, total_amount REAL NOT NULL,
    total_delta REAL NOT NULL, time TEXT NOT NULL, release_hash BLOB, prev_hash BLOB NOT NULL,
    hash BLOB NOT NULL, release BLOB)""",
    "CREATE UNIQUE INDEX once ON rows (run, round, kind)",
    "CREATE UNIQUE INDEX allowance ON rows (run, detail, ordinal) WHERE ordinal IS NOT NULL",
    "CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), rows INTEGER, hash BLOB)",
    "CREATE TABLE secret (only INTEGER PRIMARY KEY CHECK (only = 1), salt BLOB)",
    """CREATE TRIGGER keep BEFORE DELETE ON rows
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
    """CREATE TRIGGER fixed BEFORE UPDATE ON rows
    BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END""",
)


def create_database(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create the file, readable by its owner only, and ``fill`` it: completely, or not at all."""
    if not path.exists() and _has_log(path):
        # SQLite would remove it, and with it rows that no other file has.
        raise LedgerError(
            f"{str(_log_of(path))!r} holds the last rows of a ledger that was moved away without "
            "it. Put that ledger back, and open it once: then its log is part of it."
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        raise LedgerError(
            f"{str(path)!r} exists already: open it, or choose another path. "
            "A ledger is never overwritten."
        ) from None
    except FileNotFoundError:
        raise LedgerMissing(f"the directory of {str(path)!r} does not exist.") from None
    except OSError as error:
        raise LedgerReadOnly(f"{str(path)!r} cannot be created: {error.strerror}.") from None
    try:
        with translated(path), closing(_connect(path, "rw", timeout=0.0)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            for statement in SCHEMA:
                connection.execute(statement)
            fill(connection)
            connection.execute("COMMIT")
        synchronise(path.absolute().parent)  # which holds the name of the new file
    except BaseException:
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{path}{suffix}").unlink()
        raise


def open_database(
    path: Path, *, read_only: bool, timeout: float
) -> tuple[sqlite3.Connection, Place]:
    """A connection to an existing ledger of a known version, and the identity of its file."""
    if not path.exists():
        raise LedgerMissing(f"there is no ledger at {str(path)!r}: is that the name?")
    if not path.is_file():
        raise LedgerForeign(f"{str(path)!r} is not a file.")
    path = path.resolve()  # SQLite names the log after the file, not after a link to it
    place = require_one_name(path)
    mode = "ro" if read_only else "rw"
    if read_only and not _can_write_beside(path) and not _has_log(path):
        mode = "ro&immutable=1"  # on a read-only disk SQLite cannot even share the file
    with translated(path):
        connection = _connect(path, mode, timeout)
        try:
            _identify(connection, path)
            if not read_only:
                _settle(connection, path)
            require_same(path, place)
        except BaseException:
            connection.close()
            raise
    return connection, place


def copy_database(connection: sqlite3.Connection, path: Path) -> None:
    """Copy a database into one new file, readable by its owner only; it needs no log beside it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(_connect(path, "rw", timeout=0.0)) as copy:
        connection.backup(copy)
    synchronise(path)


def require_one_name(path: Path) -> Place:
    """The file's identity. Refuses a second name: each name has its own log, and spends again."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise LedgerMissing(f"the ledger {str(path)!r} was moved or removed.") from None
    if status.st_nlink != 1:
        raise LedgerError(
            f"the ledger {str(path)!r} has {status.st_nlink} names (hard links): processes that "
            "use different ones would not see each other's spend. Remove all names but one."
        )
    return status.st_dev, status.st_ino


def require_same(path: Path, place: Place) -> None:
    """Refuse to continue once another file has the name: rows would be written out of sight."""
    if require_one_name(path) != place:
        raise LedgerError(
            f"the ledger {str(path)!r} was exchanged for another file while it was in use. What "
            "was spent is in the one that was there before: put that back."
        )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeDecodeError:  # SQLite quotes the damaged file in its message
        raise LedgerCorrupt(f"the ledger {str(path)!r} is damaged.") from None


def _connect(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,  # transactions are ours
        check_same_thread=False,  # `Store` has a lock
    )
    # Damaged text must be readable, to be reported.
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # on macOS, fsync alone may stay in the drive
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _identify(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    if objects and path.stat().st_size % page_size and not _has_log(path):
        # SQLite would read zeros for what is missing of the last page.
        raise LedgerCorrupt(f"the ledger {str(path)!r} is cut short.")
    if objects == 0:
        raise LedgerCorrupt(
            f"{str(path)!r} is empty: it was cut short, or its creation was. If it never was a "
            "ledger, remove it and create it again."
        )
    if application != APPLICATION_ID:
        raise LedgerForeign(f"{str(path)!r} is an SQLite database of another application.")
    if version != VERSION:
        raise LedgerNewer(
            f"{str(path)!r} is a ledger of version {version}; this fedpriv knows version "
            f"{VERSION}. Update fedpriv."
        )


def _settle(connection: sqlite3.Connection, path: Path) -> None:
    """Make durable what a killed process may have written, but not yet synchronised.

    The first reader recovers such transactions from the log. A retry is answered from them, so they
    must not vanish in a power failure afterwards.
    """
    connection.execute("SELECT 1 FROM head").fetchone()
    with suppress(FileNotFoundError):
        synchronise(_log_of(path))


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def _has_log(path: Path) -> bool:
    log = _log_of(path)
    return log.exists() and log.stat().st_size > 0


def _can_write_beside(path: Path) -> bool:
    return os.access(path.absolute().parent, os.W_OK)


def translate(error: sqlite3.Error, path: Path) -> LedgerError:
    """SQLite's error as one of ours."""
    where = repr(str(path))
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the rest of the code is a detail
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return LedgerLocked(
                f"the ledger {where} is locked by another process. Try again, or wait longer."
            )
        case sqlite3.SQLITE_READONLY:
            return LedgerReadOnly(f"the ledger {where} is read-only.")
        case sqlite3.SQLITE_CANTOPEN if not _can_write_beside(path):
            return LedgerReadOnly(f"the ledger {where} is on a read-only disk.")
        case sqlite3.SQLITE_FULL:
            return LedgerFull(f"no space is left for the ledger {where}. Free some and try again.")
        case sqlite3.SQLITE_NOTADB:
            return LedgerForeign(f"{where} is not a ledger, nor any SQLite database.")
        case sqlite3.SQLITE_CORRUPT:
            return LedgerCorrupt(f"the ledger {where} is damaged or cut short ({error}).")
    return LedgerError(f"the ledger {where} cannot be used: {error}.")
