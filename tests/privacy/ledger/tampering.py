"""Tampering with the file of a ledger, as somebody would who knows SQLite."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.ledger import Ledger, LedgerTampered
from fedpriv.privacy.ledger.storage.chain import COLUMNS
from fedpriv.privacy.ledger.storage.database import SCHEMA

TRIGGERS = [sql for sql in SCHEMA if sql.startswith("CREATE TRIGGER")]


def rows_of(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [
            dict(row)
            for row in connection.execute("SELECT rowid AS seq, * FROM rows ORDER BY rowid")
        ]


def tamper(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Run SQL as somebody would who knows SQLite: triggers out of the way, and back again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for name in ("keep", "fixed"):
            connection.execute(f"DROP TRIGGER {name}")
        for sql, parameters in statements:
            connection.execute(sql, parameters)
        for sql in TRIGGERS:
            connection.execute(sql)


def write(path: Path, rows: list[dict[str, Any]], *, head: bool) -> None:
    """Replace all rows, and the head too if asked."""
    names = [*COLUMNS, "release"]
    columns = ", ".join(["rowid", *names[1:]])
    insert = f"INSERT INTO rows ({columns}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    new_head = ("UPDATE head SET rows = ?, hash = ?", (rows[-1]["seq"], rows[-1]["hash"]))
    tamper(
        path,
        ("DELETE FROM rows", ()),
        *((insert, tuple(row[name] for name in names)) for row in rows),
        *([new_head] if head else []),
    )


def first_bad_row(path: Path, expected_head: str | None = None) -> int | None:
    with Ledger.open(path, read_only=True) as ledger, pytest.raises(LedgerTampered) as caught:
        ledger.verify(expected_head=expected_head)
    return caught.value.row
