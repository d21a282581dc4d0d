"""Whatever is done to a row is found, and the first bad row is named."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Kind, Ledger, LedgerCorrupt, LedgerError, LedgerTampered
from fedpriv.privacy.ledger.storage.chain import COLUMNS, _hash, canonical_json
from tests.privacy.ledger.tampering import first_bad_row, rows_of, tamper, write

A = Adjacency.ADD_REMOVE


def changed(value: Any) -> list[Any]:
    """Other values of the same column, from a flipped bit to another type."""
    match value:
        case None:
            return [0, 1, "", b"", 0.0]
        case int():
            return [value + 1, value - 1, None]
        case float():
            return [value + 1e-300, value * (1 + 1e-15) + 5e-324, -1.0, 1e300]
        case str():
            return [value + " ", value[:-1], "", value.swapcase()]
        case bytes():
            flipped = bytes([value[0] ^ 1]) + value[1:] if value else b"x"
            return [flipped, value + b"\0", value[:-1], b"" if value else b"xx"]
    raise AssertionError(value)


def test_a_changed_value_in_any_column_of_any_row_is_found(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.ledger"
    tried = 0
    for row in rows_of(original):
        for column in (*COLUMNS, "release"):
            target = column.replace("seq", "rowid")
            update = f"UPDATE rows SET {target} = ? WHERE rowid = ?"  # noqa: S608
            for value in changed(row[column]):
                if value == row[column]:
                    continue
                shutil.copy(original, path)
                try:
                    tamper(path, (update, (value, row["seq"])))
                except sqlite3.IntegrityError:
                    continue  # the schema itself refuses it
                tried += 1
                try:
                    found = first_bad_row(path)
                except LedgerError as refused:  # row 1 is read, and checked, by opening
                    assert row["seq"] == 1, refused  # noqa: PT017
                    continue
                # A moved row leaves a gap; any other is itself the first bad one.
                assert column == "seq" or found == row["seq"], (column, value)
    assert tried > 300


def table_cells(image: bytes, root: int) -> Iterator[tuple[int, int]]:
    """Where the cells of a one-page table are in a file: offset and length of each."""

    def varint(offset: int) -> tuple[int, int]:
        value = 0
        for size in range(1, 10):
            byte = image[offset + size - 1]
            value = (value << 7) | (byte & 0x7F)
            if byte < 0x80:
                return value, size
        raise AssertionError(offset)

    page = int.from_bytes(image[16:18])
    start = (root - 1) * page
    assert image[start] == 0x0D, "a leaf of a table"
    for index in range(int.from_bytes(image[start + 3 : start + 5])):
        pointer = start + 8 + 2 * index
        cell = start + int.from_bytes(image[pointer : pointer + 2])
        payload, size = varint(cell)
        _, key = varint(cell + size)
        yield cell, size + key + payload


def test_a_flipped_bit_in_any_byte_of_a_row_is_found(tmp_path: Path) -> None:
    """Byte by byte through the file, as a failing disk or a hex editor would do it."""
    path = tmp_path / "small.ledger"
    with Ledger.create(
        path, data_name="x", budget=Budget(epsilon=1.0, delta=1e-6), adjacency=A
    ) as ledger:
        noisy = GaussianEvent(relative_noise=30.0, adjacency=A)
        ledger.commit(ledger.reserve(noisy, run="r", round=0), b"release")
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'rows'"
        ).fetchone()
    image = path.read_bytes()
    cells = list(table_cells(image, root))
    assert len(cells) == 4
    flips = 0
    for offset, length in cells:
        for position in range(offset, offset + length):
            damaged = bytearray(image)
            damaged[position] ^= 1 << (position * 5 % 8)
            path.write_bytes(damaged)
            with pytest.raises(LedgerCorrupt):  # noqa: SIM117
                with Ledger.open(path, read_only=True) as ledger:
                    ledger.verify()
            flips += 1
    assert flips > 800
    path.write_bytes(image)
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()


def test_a_removed_row_is_found(original: Path, tmp_path: Path) -> None:
    rows = rows_of(original)
    for row in rows[1:]:
        path = Path(shutil.copy(original, tmp_path / "copy.ledger"))
        tamper(path, ("DELETE FROM rows WHERE rowid = ?", (row["seq"],)))
        expected = None if row is rows[-1] else row["seq"] + 1
        assert first_bad_row(path) == expected


def test_a_removed_row_is_found_when_the_rest_are_renumbered(path: Path) -> None:
    rows = rows_of(path)
    del rows[5]
    for number, row in enumerate(rows, start=1):
        row["seq"] = number
    write(path, rows, head=False)
    assert first_bad_row(path) == 6


def test_removed_last_rows_are_found_by_the_head(path: Path) -> None:
    write(path, rows_of(path)[:-3], head=False)
    assert first_bad_row(path) is None


@pytest.mark.parametrize(("left", "right"), [(3, 4), (4, 5), (2, 9)])
def test_exchanged_rows_are_found(path: Path, left: int, right: int) -> None:
    rows = rows_of(path)
    rows[left], rows[right] = (
        {**rows[right], "seq": left + 1},
        {**rows[left], "seq": right + 1},
    )
    write(path, rows, head=True)
    assert first_bad_row(path) == left + 1


def test_an_inserted_row_is_found(path: Path) -> None:
    rows = rows_of(path)
    last = rows[-1]
    forged = {**last, "run": "forged", "kind": "simulated", "detail": "{}", "seq": len(rows) + 1}
    forged |= {"round": -1, "amount": 0.0, "prev_hash": last["hash"]}
    forged["hash"] = _hash([forged[name] for name in COLUMNS[:-1]])
    write(path, [*rows, forged], head=False)
    assert first_bad_row(path) is None
    with Ledger.open(path) as ledger, pytest.raises(LedgerTampered):
        ledger.reserve(GaussianEvent(relative_noise=30.0, adjacency=A), run="new", round=0)


def test_a_row_whose_own_hash_was_recomputed_is_found_by_the_next(path: Path) -> None:
    rows = rows_of(path)
    reserved = next(row for row in rows if row["kind"] == "reserved")
    reserved["amount"] = 0.0
    reserved["hash"] = _hash([reserved[name] for name in COLUMNS[:-1]])
    write(path, rows, head=False)
    assert first_bad_row(path) in (reserved["seq"], reserved["seq"] + 1)


def test_an_exchanged_salt_is_found(path: Path) -> None:
    tamper(path, ("UPDATE secret SET salt = ?", (bytes(32),)))
    assert first_bad_row(path) == 1


@pytest.mark.parametrize("table", ["head", "secret"])
def test_an_emptied_table_is_found(path: Path, table: str) -> None:
    tamper(path, (f"DELETE FROM {table}", ()))  # noqa: S608
    first_bad_row(path)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP INDEX once",
        "DROP INDEX allowance",
        "DROP TRIGGER keep",
        "CREATE TABLE extra (x)",
        "CREATE TRIGGER quiet AFTER INSERT ON rows BEGIN UPDATE head SET rows = 0; END",
    ],
)
def test_a_changed_schema_is_found(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
    assert first_bad_row(path) is None


def test_an_index_that_disagrees_with_its_table_is_found(path: Path) -> None:
    """A reservation that the index cannot find would be made again, with fresh noise."""
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'once'"
        ).fetchone()
    image = bytearray(path.read_bytes())
    page = int.from_bytes(image[16:18])
    place = image.index(b"study", (root - 1) * page, root * page)
    image[place : place + 5] = b"stuff"
    path.write_bytes(image)
    assert first_bad_row(path) is None


def test_a_ledger_refuses_to_charge_after_a_last_row_that_was_changed(path: Path) -> None:
    tamper(
        path, ("UPDATE rows SET total_amount = 0 WHERE rowid = (SELECT MAX(rowid) FROM rows)", ())
    )
    with Ledger.open(path) as ledger, pytest.raises(LedgerTampered):
        ledger.reserve(GaussianEvent(relative_noise=30.0, adjacency=A), run="new", round=0)


def test_a_ledger_does_not_hand_out_a_changed_release(path: Path) -> None:
    tamper(path, ("UPDATE rows SET release = ? WHERE release = ?", (b"other", b"first release")))
    with Ledger.open(path) as ledger, pytest.raises(LedgerTampered, match="not the one"):
        ledger.reserve(GaussianEvent(relative_noise=30.0, adjacency=A), run="run", round=0)


def test_rows_cannot_be_changed_by_accident(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for sql in ("DELETE FROM rows", "UPDATE rows SET amount = 0"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(sql)


def test_a_release_of_infinite_cost_never_verifies(tmp_path: Path) -> None:
    """Infinity agrees with every recorded cost, unless it is looked for."""
    with Ledger.create(
        tmp_path / "l", data_name="x", budget=Budget(epsilon=1.0, delta=1e-6), adjacency=A
    ) as ledger:
        quiet = GaussianEvent(relative_noise=30.0, adjacency=A)
        ledger.reserve(quiet, run="a", round=0)
        loud = GaussianEvent(relative_noise=1e-200, adjacency=A)
        store = ledger._store
        with store.writing():
            detail = canonical_json(loud.to_dict())
            store.append(store.tail(), kind=Kind.RESERVED, run="b", round=0, detail=detail)
        with pytest.raises(LedgerTampered, match="for releases that cost inf"):
            ledger.verify()


@pytest.mark.parametrize(
    ("kind", "run", "round_"),
    [
        (Kind.COMPOSITION, "zz", 7),
        (Kind.DATA, "zz", -1),
        (Kind.DECLARED, "run", 3),
        (Kind.SIMULATED, "", -1),
        (Kind.RESERVED, "run", -2),
    ],
)
def test_a_row_where_no_writer_would_look_for_it_is_found(
    tmp_path: Path, kind: Kind, run: str, round_: int
) -> None:
    with Ledger.create(
        tmp_path / "l", data_name="x", budget=Budget(epsilon=1.0, delta=1e-6), adjacency=A
    ) as ledger:
        store = ledger._store
        with store.writing():
            store.append(store.tail(), kind=kind, run=run, round=round_, detail="{}")
        with pytest.raises(LedgerTampered, match="may not have this run, round or ordinal"):
            ledger.verify()
