"""CSV files by Arrow: all as text, every quotation mark in its place, and rows of one width."""

from __future__ import annotations

import csv
import mmap
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedpriv.data.errors import DataError, import_optional
from fedpriv.data.tables.headers import check_header

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BLOCK = 1 << 20  # bytes that are parsed at a time


def csv_header(path: Path, wanted: Mapping[str, str], delimiter: str) -> list[str]:
    """The columns of a CSV file that has the ``wanted`` ones, and all quotes in their places."""
    # Python decodes some rows with the header. Invalid UTF-8 in them is found by column, below:
    # otherwise the position of a byte in an unused column would decide whether the file is
    # accepted.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        first = next(csv.reader(file, delimiter=delimiter), None)
    if not first:
        raise DataError(f"{path.name} is empty: the first line must name the columns.")
    # The header itself must be UTF-8.
    decoded = [name.encode(errors="surrogateescape").decode() for name in first]
    header = [name.strip() for name in decoded]
    check_header(path.name, header, wanted)
    _check_quotes(path, delimiter)
    return header


def read_csv(path: Path, wanted: Mapping[str, str], delimiter: str) -> tuple[list[str], Any]:
    """The columns of a CSV file, and a table of the ``wanted`` ones."""
    pa = import_optional("pyarrow", extra="data")
    header = csv_header(path, wanted, delimiter)
    try:
        return header, _parse_csv(path, header, wanted, delimiter, block=_BLOCK)
    except pa.ArrowInvalid:
        if not has_rows(path, delimiter):  # nor a line end, without which Arrow finds no header
            return header, pa.table({name: pa.array([], pa.string()) for name in wanted})
        # Whether a row across several blocks is found depends on its start, hence on the rows
        # before it.
        whole = min(path.stat().st_size + 1, 2**31 - 1)
        return header, _parse_csv(path, header, wanted, delimiter, block=whole)


def has_rows(path: Path, delimiter: str) -> bool:
    """Whether anything but empty lines follows the header of a CSV file."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter)
        next(rows, None)
        try:
            return any(rows)
        except csv.Error:  # a line that cannot be split is not empty
            return True


def _parse_csv(
    path: Path, header: list[str], wanted: Mapping[str, str], delimiter: str, *, block: int
) -> Any:
    pa_csv = import_optional("pyarrow.csv", extra="data")
    widths: list[int] = []
    options = csv_options(header, wanted, delimiter, block=block, widths=widths)
    table = pa_csv.read_csv(path, **options)
    require_even(path, header, widths, delimiter)
    return table


def csv_options(
    header: list[str],
    wanted: Mapping[str, str],
    delimiter: str,
    *,
    block: int,
    widths: list[int],
) -> dict[str, Any]:
    """How Arrow reads a CSV file; ``widths`` collects the widths of uneven rows."""
    pa = import_optional("pyarrow", extra="data")
    pa_csv = import_optional("pyarrow.csv", extra="data")

    def skip(row: Any) -> str:
        widths.append(row.actual_columns)
        return "skip"

    # All as text: the errors of the reader's own conversion quote values and name no row.
    return {
        "read_options": pa_csv.ReadOptions(column_names=header, skip_rows=1, block_size=block),
        "parse_options": pa_csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            # In a file of one column this is a row with a missing value, and counts as a row.
            ignore_empty_lines=len(header) > 1,
            invalid_row_handler=skip,
        ),
        "convert_options": pa_csv.ConvertOptions(
            include_columns=list(wanted), column_types=dict.fromkeys(header, pa.string())
        ),
    }


def require_even(path: Path, header: list[str], widths: list[int], delimiter: str) -> None:
    """Refuse rows that are not as wide as the header."""
    if widths:
        line = _first_uneven(path, len(header), delimiter)
        raise DataError(
            f"{path.name}: rows that do not have the {len(header)} columns of the header: "
            f"{len(widths)}; the first{'' if line is None else f', in line {line},'} has "
            f"{widths[0]}. A value that holds a {delimiter!r} must be quoted."
        )


def _first_uneven(path: Path, width: int, delimiter: str) -> int | None:
    """The last line of the first uneven row; Arrow, which reads in parallel, does not know it.

    None if Python's reader, which parses by slightly different rules, finds none.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(file, delimiter=delimiter)
        with suppress(csv.Error):
            return next((rows.line_num for row in rows if row and len(row) != width), None)
    return None


def _check_quotes(path: Path, delimiter: str) -> None:
    """Refuse a file unless every quotation mark is where RFC 4180 has it.

    An opening mark that is never closed, in any column, would merge all rows up to the next mark
    into one value: the records after it would be lost silently.
    """
    apart = re.escape(delimiter.encode())
    value = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n%s]*+)' % apart
    row = rb"%s(?:%s%s)*+" % (value, apart, value)
    rows = re.compile(rb"(?:\xef\xbb\xbf)?%s(?:(?:\r\n|\r|\n)%s)*+" % (row, row))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b'"') < 0:
            return
        well_formed = rows.match(content)
        end = 0 if well_formed is None else well_formed.end()
        if end == len(content):
            return
        line = content[:end].count(b"\n") + 1
    raise DataError(
        f"{path.name}, line {line}: a quotation mark is out of place. A value that holds one must "
        "be quoted as a whole, with the mark doubled, and every quote must be closed: the rows "
        "after it would be lost."
    )
