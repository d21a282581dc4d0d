"""Hostile rows: what a row becomes must follow from it and the schema, whatever stands beside it.

Files are drawn at random, of values that readers stumble over, and cut in two. If both parts are
read, so is the whole, to the same bits; and if one is refused, so is the whole. For every reader
that a release has: of records, of columns to describe, and of magnitudes.
"""

from __future__ import annotations

import os
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from fedpriv.data import DataError, parse_schema, read_table
from fedpriv.data.tables.columns import read_columns
from fedpriv.data.tables.magnitudes import read_magnitudes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fedpriv.data import Dataset, Schema

FILES = 1500 if os.environ.get("FEDPRIV_STRESS") else 60
NAMES = ("x", "z", "c", "y", "p", "who", "fold", "note")
READERS: list[Callable[[Path, Schema], Dataset]] = [
    lambda path, schema: read_table(path, schema, empty=True)[0],
    lambda path, schema: read_columns(path, schema, empty=True),
    lambda path, schema: read_magnitudes(path, schema, ("x", "z"), empty=True),
]

PLAIN = ("", "1", "2.5", "-0.0", " 7 ", "+3", ".5", "99.99", "0.1", "-9", "4.9e-324")
STRANGE = (
    "nan", "inf", "-inf", "Infinity", "1e400", "-1e-400", "1e308", "0x10", "1_0", "1,5", "1e",
    "5.", "--1", "1 2", "1d5", "NA", "None", "-9.0", "5\uff10", "\u0663", "\u00a07", "\ufeff1",
    "\x00", "\x0b3", "\u20287", "1" * 40,
)  # fmt: skip
TEXTS = (
    "", "1", "1.0", " 1", "true", "True", "\u00e9", "e\u0301", "a b", "a  b", "\u00a0", "x" * 300,
    "\x00", "1\x00", "\u2028", "\x85", "\x1c", "#", "'", "\\",
)  # fmt: skip
QUOTED = ('say "x"', "a\nb", "a\r\nb", "a,b;c")


def drawn_schema(rng: Random, delimiter: str) -> Schema:
    number = {"kind": "number", "fill": 0}
    return parse_schema(
        {
            "label": "y",
            "positive": "1",
            "party": "p",
            "person": "who",
            "out_of_range": rng.choice(["clamp", "reject"]),
            "missing_values": rng.choice([[], ["-9", "NA"], ["0.1"], ["nan", "99.99"]]),
            "delimiter": delimiter,
            "test_column": "fold",
            "test_values": ["5", "a"],
            "columns": {
                "x": {**number, "min": -1, "max": 100},
                "z": {**number, "min": -1e-30, "max": 1e30, "out_of_range": "clamp"},
                "c": {
                    "kind": "category",
                    "values": ["1", "true", "\u00e9", "a b"],
                    "fill": "1",
                    "out_of_range": "clamp",
                },
                "y": {"kind": "category", "values": ["0", "1"]},
                "p": {"kind": "category", "values": ["n", "s"]},
            },
        }
    )


def read(path: Path, schema: Schema, reader: Callable[[Path, Schema], Dataset]) -> Any:
    """What every record became, of training and of test records; None of a refused file."""
    try:
        dataset = reader(path, schema)
    except DataError:
        return None
    told = []
    for part in (dataset.train, dataset.test):
        person, rows = part.person, range(len(part))
        whose = person.hashes[person.codes].tolist() if person is not None else [0] * len(rows)
        party = part.party.tolist() if part.party is not None else [0] * len(rows)
        told.append([(part.X[i].tobytes(), part.y[i], party[i], whose[i]) for i in rows])
    return told


def unlike(parts: Sequence[Path], whole: Path, schema: Schema) -> list[str]:
    """Where the whole is not the sum of its parts."""
    found = []
    for number, reader in enumerate(READERS):
        first, second = (read(path, schema, reader) for path in parts)
        together = read(whole, schema, reader)
        expected = None
        if first is not None and second is not None:
            expected = [one + other for one, other in zip(first, second, strict=True)]
        if together != expected:
            found.append(f"reader {number}: {together} for {expected}")
    return found


def csv_rows(rng: Random, count: int) -> list[list[str]]:
    rows = []
    for _ in range(count):
        good = rng.random() < 0.8
        numbers = PLAIN if good else (*PLAIN, *STRANGE)
        rows.append(
            [
                rng.choice(numbers),
                rng.choice(numbers),
                rng.choice((*TEXTS, *QUOTED)),
                rng.choice(("0", "1") if good else ("0", "1", "1.0", "2", "")),
                rng.choice(("n", "s")),
                rng.choice(("p1", "p2", "1", "\u00e9") if good else TEXTS),
                rng.choice(("5", "a", "b", "")),
                rng.choice(("free", "", 'q"t', "l\nm", "k" if good else "\udcff")),
            ]
        )
    return rows


def write_csv(path: Path, rows: list[list[str]], delimiter: str, end: str, rng: Random) -> None:
    def cell(value: str) -> str:
        needed = any(each in value for each in f'",\r\n{delimiter}')
        if needed or rng.random() < 0.2:
            return '"' + value.replace('"', '""') + '"'
        return value

    lines = [delimiter.join(NAMES), *(delimiter.join(map(cell, row)) for row in rows)]
    for place in range(len(lines), 0, -1):  # empty lines are no rows
        if rng.random() < 0.05:
            lines.insert(place, "")
    mark = b"\xef\xbb\xbf" if rng.random() < 0.2 else b""
    content = end.join(lines) + rng.choice(["", end])
    path.write_bytes(mark + content.encode("utf-8", "surrogateescape"))


def test_every_row_of_a_csv_file_is_read_by_itself(tmp_path: Path) -> None:
    for seed in range(FILES):
        rng = Random(seed)  # noqa: S311 - a study
        delimiter, end = rng.choice(",;\t|"), rng.choice(["\n", "\r\n", "\r"])
        schema = drawn_schema(rng, delimiter)
        first, second = (csv_rows(rng, rng.randint(0, 3)) for _ in range(2))
        paths = [tmp_path / f"{name}.csv" for name in ("first", "second", "whole")]
        for path, rows in zip(paths, (first, second, first + second), strict=True):
            write_csv(path, rows, delimiter, end, rng)
        assert unlike(paths[:2], paths[2], schema) == [], seed


NAN = float("nan")
NUMBERS: list[tuple[Any, list[Any]]] = [
    (pa.float64(), [None, 1.0, NAN, float("inf"), -0.0, 5e-324, 1e308, 99.99, 0.1, -9.0]),
    (pa.float32(), [None, 1.0, NAN, 0.1, 99.99, -9.0, 1e-45]),
    (pa.int64(), [None, 1, -9, 2**62, 99]),
    (pa.uint64(), [None, 1, 2**64 - 1]),
    (pa.int8(), [None, 1, -9]),
    (pa.decimal128(20, 3), [None, Decimal("99.990"), Decimal("0.100"), Decimal(-9)]),
    (pa.decimal256(50, 2), [None, Decimal(100), Decimal("1E+5")]),
    (pa.string(), [None, "", "1", " 7", "nan", "99.99", "x"]),
    (pa.large_string(), [None, "1", "NA"]),
    (pa.dictionary(pa.int8(), pa.string()), [None, "1", "0.1"]),
    (pa.dictionary(pa.int32(), pa.float64()), [None, 1.0, NAN]),
    (pa.null(), [None]),
    (pa.bool_(), [None, True, False]),
    (pa.binary(), [None, b"1"]),
]
CODED: list[tuple[Any, list[Any]]] = [
    (pa.string(), ["0", "1", " 1", None]),
    (pa.string(), ["0", "1"]),
    (pa.int64(), [0, 1]),
    (pa.float64(), [0.0, 1.0, -0.0]),
    (pa.bool_(), [True]),
    (pa.dictionary(pa.int8(), pa.string()), ["0", "1"]),
    (pa.uint8(), [0, 1, 2]),
]
WHOSE: list[tuple[Any, list[Any]]] = [
    (pa.string(), ["p1", "p2", "\u00e9", " p1"]),
    (pa.int64(), [1, 2, -1]),
    (pa.uint64(), [2**64 - 1, 2**64 - 2]),
    (pa.float64(), [1.0, 2.5, 2.0**53, 2.0**53 + 2, 1e300]),
    (pa.dictionary(pa.int8(), pa.string()), ["p1", "p2"]),
]
KINDS: dict[str, list[tuple[Any, list[Any]]]] = {
    "x": NUMBERS,
    "z": NUMBERS,
    "c": [*NUMBERS[7:], (pa.float64(), [1.0, 1.5, None, NAN, 2.0**53, 1e300])],
    "y": CODED,
    "p": [(pa.string(), ["n", "s"]), (pa.dictionary(pa.int8(), pa.large_string()), ["n", "s"])],
    "who": WHOSE,
    "fold": [(pa.string(), ["5", "a", "b", None]), (pa.float64(), [5.0, 5.5, None])],
}


@pytest.mark.filterwarnings("ignore")
def test_every_row_of_a_parquet_file_is_read_by_itself(tmp_path: Path) -> None:
    for seed in range(FILES):
        rng = Random(seed)  # noqa: S311 - a study
        schema = drawn_schema(rng, ",")
        kinds = {name: rng.choice(some) for name, some in KINDS.items()}
        counts = rng.randint(0, 3), rng.randint(0, 3)
        first, second = (
            {name: [rng.choice(values) for _ in range(n)] for name, (_, values) in kinds.items()}
            for n in counts
        )
        both = {name: first[name] + second[name] for name in kinds}
        paths = [tmp_path / f"{name}.parquet" for name in ("first", "second", "whole")]
        for path, columns in zip(paths, (first, second, both), strict=True):
            made = {name: pa.array(columns[name], kind) for name, (kind, _) in kinds.items()}
            parquet.write_table(pa.table(made), path, row_group_size=rng.choice([1, 2, 100]))
        assert unlike(paths[:2], paths[2], schema) == [], seed


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r", "\n\n"])
def test_a_header_is_a_table_without_rows_however_it_ends(end: str, tmp_path: Path) -> None:
    """A file whose last line has no end is one of its only record, and of nobody when that left."""
    schema = drawn_schema(Random(0), ",")  # noqa: S311 - a study
    (tmp_path / "table.csv").write_bytes(",".join(NAMES).encode() + end.encode())
    for reader in READERS:
        assert read(tmp_path / "table.csv", schema, reader) == [[], []]
    with pytest.raises(DataError, match="is empty: it has a header and no rows"):
        read_table(tmp_path / "table.csv", schema)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_missing_value_that_is_all_of_its_row_is_a_record(end: str, tmp_path: Path) -> None:
    """Of a table of one column: how many records there are would tell of it."""
    columns = {
        "x": {"kind": "number", "min": 0, "max": 9},
        "y": {"kind": "category", "values": ["a"]},
    }
    schema, path = parse_schema({"label": "y", "columns": columns}), tmp_path / "table.csv"
    rows = [["5", "6"], ["5", ""], ["", "5"], ["", ""], [""], []]
    for values in rows:
        path.write_bytes("".join(f"{each}{end}" for each in ["x", *values]).encode())
        counted = read_magnitudes(path, schema, ("x",), empty=True).train
        assert len(counted) == len(values)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("special", ["1,1,\u00e9", '1,1,"a\nb"', '1,1,"a\r\nb"', '1,1,"""q"""'])
def test_no_row_is_cut_where_a_reader_cuts_its_file(end: str, special: str, tmp_path: Path) -> None:
    """At the end of the first mebibyte, a few bytes before it, and after."""
    schema = parse_schema(
        {
            "label": "y",
            "positive": "1",
            "columns": {
                "x": {"kind": "number", "min": 0, "max": 1},
                "y": {"kind": "category", "values": ["0", "1"]},
            },
        }
    )
    length = len(special.encode())
    for place in (0, length // 2, length - 1, length, length + 1, length + len(end)):
        header, row = f"x,y,n{end}", f"0,0,{'f' * 1000}{end}"
        room = (1 << 20) - place - len(header)
        count = room // len(row) - 1
        last = f"0,0,{'g' * (room - count * len(row) - 4 - len(end))}{end}"
        content = f"{header}{row * count}{last}{special}{end}{end}1,0,t{end}"
        assert len((header + row * count + last).encode()) == (1 << 20) - place
        (tmp_path / "table.csv").write_bytes(content.encode())
        train = read_table(tmp_path / "table.csv", schema)[0].train
        assert train.X[:, 0].tolist() == [-1.0] * (count + 1) + [1.0, 1.0]
        assert train.y.tolist() == [-1.0] * (count + 1) + [1.0, -1.0]
