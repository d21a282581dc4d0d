"""Whatever is done to a row is found, and the first bad row is named."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.ledger import Kind, Ledger, LedgerCorrupt, LedgerError, LedgerTampered
from fedpriv.privacy.ledger.composition import Cost, randomised_response_mu
from fedpriv.privacy.ledger.storage.chain import COLUMNS, GENESIS, _hash, canonical_json
from fedpriv.privacy.ledger.storage.database import SCHEMA

A = Adjacency.ADD_REMOVE
TRIGGERS = [sql for sql in SCHEMA if sql.startswith("CREATE TRIGGER")]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger with a row of every kind."""
    path = tmp_path_factory.mktemp("original") / "test.ledger"
    noisy = GaussianEvent(relative_noise=30.0, adjacency=A)
    with Ledger.create(
        path, data_name="clinic", budget=Budget(epsilon=1.0, delta=1e-6), adjacency=A
    ) as ledger:
        ledger.bind_data(b"records")
        ledger.record_simulation("study", {"seed": 7})
        ledger.commit(ledger.reserve(noisy, run="run", round=0), b"first release")
        ledger.declare("declared", [(noisy, 2)])
        ledger.commit(ledger.reserve(noisy, run="declared", round=0), b"second release")
        ledger.reserve(PureEvent(epsilon=0.01, adjacency=A), run="run", round=1)
        assert {row.kind for row in ledger.rows()} == set(Kind)
        ledger.verify()
    assert not Path(f"{path}-wal").exists()
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path))


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


def rechained(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with numbers, previous hashes and hashes that fit."""
    chained: list[dict[str, Any]] = []
    for number, row in enumerate(rows, start=1):
        values = {**row, "seq": number, "prev_hash": chained[-1]["hash"] if chained else GENESIS}
        values["hash"] = _hash([values[name] for name in COLUMNS[:-1]])
        chained.append(values)
    return chained


def first_bad_row(path: Path, expected_head: str | None = None) -> int | None:
    with Ledger.open(path, read_only=True) as ledger, pytest.raises(LedgerTampered) as caught:
        ledger.verify(expected_head=expected_head)
    return caught.value.row


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


def lies(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """What is wrong, and a ledger that is wrong in this way, but with a perfect chain of hashes."""

    def place(kind: str) -> int:
        return next(i for i, row in enumerate(rows) if row["kind"] == kind)

    def edited(place_of: str, **values: Any) -> list[dict[str, Any]]:
        index = place(place_of)
        return [*rows[:index], {**rows[index], **values}, *rows[index + 1 :]]

    def without(kind: str) -> list[dict[str, Any]]:
        return [row for i, row in enumerate(rows) if i != place(kind)]

    def extended(kind: str, **values: Any) -> list[dict[str, Any]]:
        totals = {name: rows[-1][name] for name in ("total_amount", "total_delta")}
        return [*rows, {**rows[place(kind)], **totals, "amount": 0.0, **values}]

    nothing = {"amount": 0.0, "delta": 0.0, "total_amount": 0.0, "total_delta": 0.0}
    louder = canonical_json(GaussianEvent(relative_noise=3.0, adjacency=A).to_dict())
    ruinous = canonical_json(PureEvent(epsilon=30.0, adjacency=A).to_dict())
    yield "it charges", edited("reserved", amount=1e-9)
    yield "it charges", edited("declared", delta=1e-9)
    yield "it charges", [{**row, **nothing} for row in rows]
    yield "it charges", edited("reserved", detail=louder)
    yield "its totals", edited("committed", total_amount=0.0)
    yield "its totals", edited("simulated", total_delta=1e-9)
    yield "before a composition", without("composition")
    yield "created for", edited("created", detail=rows[0]["detail"].replace('"gdp"', '"rdp"'))
    yield "never declared", without("declared")
    yield "was not reserved", without("reserved")
    yield "may not stand here", [*rows, rows[0]]
    yield "out of turn", extended("data")
    yield "out of turn", extended("data", round=2)
    yield "makes no sense", extended("data", round=1)
    yield "may not have this run", extended("data", round=0)
    yield "without a reason", extended("data", round=1, detail='{"fingerprint":"x","reason":""}')
    yield "was reserved before", extended("reserved")
    yield "was committed before", extended("committed")
    yield "began before it was declared", extended("declared")
    yield "its run was recorded before", extended("simulated")
    yield "its run was recorded before", extended("simulated", run="run")
    yield "its run is simulated", extended("reserved", run="study")
    yield "not one of the releases", extended("reserved", run="declared", round=9, ordinal=3)
    yield (
        "spends more than the budget",
        extended("reserved", round=9, detail=ruinous, **ruined(rows[-1], 30.0)),
    )
    yield "not canonical", edited("simulated", detail='{"seed": 7}')
    yield "makes no sense", edited("reserved", kind="something else")
    yield "makes no sense", edited("reserved", detail='{"kind":"unknown"}')
    yield "makes no sense", edited("composition", detail='{"mode":"free"}')
    yield "makes no sense", edited("declared", detail="[]")
    yield (
        "belongs to a committed row",
        edited("simulated", release=b"x", release_hash=sha256(b"x").digest()),
    )


def ruined(last: dict[str, Any], epsilon: float) -> dict[str, float]:
    """Cost and totals of a pure release after ``last``."""
    amount = randomised_response_mu(epsilon) ** 2
    total = Cost(amount=last["total_amount"]) + Cost(amount=amount)
    return {"amount": amount, "total_amount": total.amount}


def test_a_rewritten_ledger_must_still_make_sense(original: Path, tmp_path: Path) -> None:
    """Even with every hash recomputed, costs and rules are checked from the events themselves."""
    for problem, rows in lies(rows_of(original)):
        path = Path(shutil.copy(original, tmp_path / "copy.ledger"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP INDEX once")
            connection.execute("DROP INDEX allowance")
        write(path, rechained(rows), head=True)
        with (
            Ledger.open(path, read_only=True) as ledger,
            pytest.raises(LedgerTampered, match=problem),
        ):
            ledger.verify()


def test_a_rewrite_that_changes_nothing_is_valid(path: Path) -> None:
    """The twin of the test above: what it rejects, it rejects for the reason it names."""
    write(path, rechained(rows_of(path)), head=True)
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()


def test_compacting_the_file_changes_no_row(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()


def test_a_consistent_rewrite_is_found_by_a_head_kept_elsewhere(path: Path) -> None:
    with Ledger.open(path, read_only=True) as ledger:
        kept = ledger.head
    write(path, rechained(rows_of(path)[:-3]), head=True)
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()  # it holds together: nobody can tell from the file alone
    assert first_bad_row(path, expected_head=kept) is None


def test_a_kept_head_stays_valid_when_rows_are_added(path: Path) -> None:
    with Ledger.open(path) as ledger:
        kept, rows = ledger.head, ledger.verify().rows
        ledger.record_simulation("later", {})
        found = ledger.verify(expected_head=kept)
        assert (found.expected_row, found.rows) == (rows, rows + 1)
        assert found.head == ledger.head != kept


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
