"""Tables that do not fit the memory: CSV and Parquet files, read some rows at a time.

The result is that of `read_source`, to the bit: the same rules, row by row, and the same errors.
But the first row that breaks a rule ends the reading here; `read_source` counts all such rows.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedpriv.data.errors import DataError, import_optional
from fedpriv.data.tables.csv_files import csv_header, csv_options, has_rows, require_even
from fedpriv.data.tables.readers import (
    Source,
    damaged,
    decoded,
    parquet_header,
    require_table,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CSV_BYTES = 1 << 23
"""Bytes of a CSV file that are read at a time; no row may be longer."""

PARQUET_ROWS = 1 << 16
"""Of a Parquet file, read at a time."""


def read_batches(
    path: Path, wanted: Mapping[str, str], *, delimiter: str, missing_values: tuple[str, ...]
) -> Iterator[Source]:
    """The ``wanted`` columns of a ``.csv`` or ``.parquet`` file, in consecutive parts."""
    require_table(path)
    rows = 0
    for header, batch in _batches(path, wanted, delimiter):
        yield Source(
            file=path.name,
            rows=batch.num_rows,
            ignored=tuple(name for name in header if name not in wanted),
            missing_values=missing_values,
            _columns={name: decoded(batch[name]) for name in wanted},
            before=rows,
        )
        rows += batch.num_rows


def _batches(
    path: Path, wanted: Mapping[str, str], delimiter: str
) -> Iterator[tuple[list[str], Any]]:
    """Tables of a few rows. No library error, which may quote cells, escapes from here."""
    pa = import_optional("pyarrow", extra="data")
    reading = (_csv if path.suffix == ".csv" else _parquet)(path, wanted, delimiter)
    while True:
        found, ended = None, False
        with suppress(pa.ArrowException, UnicodeDecodeError, csv.Error), damaged():
            found = next(reading, None)
            ended = found is None
        if found is None and not ended:
            raise unreadable(path)
        if found is None:
            return
        yield found


def _csv(path: Path, wanted: Mapping[str, str], delimiter: str) -> Iterator[tuple[list[str], Any]]:
    pa = import_optional("pyarrow", extra="data")
    pa_csv = import_optional("pyarrow.csv", extra="data")
    header, widths = csv_header(path, wanted, delimiter), list[int]()
    options = csv_options(header, wanted, delimiter, block=CSV_BYTES, widths=widths)
    try:
        reader = pa_csv.open_csv(path, **options)
    except pa.ArrowInvalid:
        if has_rows(path, delimiter):
            raise
        return  # a header and no rows
    with reader:
        for batch in reader:
            require_even(path, header, widths, delimiter)
            yield header, pa.Table.from_batches([batch])
    require_even(path, header, widths, delimiter)


def _parquet(
    path: Path, wanted: Mapping[str, str], _delimiter: str
) -> Iterator[tuple[list[str], Any]]:
    pa = import_optional("pyarrow", extra="data")
    parquet = import_optional("pyarrow.parquet", extra="data")
    header = parquet_header(path, wanted)
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=list(wanted)):
            batch.validate(full=True)  # of texts that are not UTF-8 the library says nothing else
            yield header, pa.Table.from_batches([batch])


def require_rows(path: Path, rows: int, *, empty: bool) -> None:
    """Refuse a table without rows, unless it may be ``empty``."""
    if not rows and not empty:
        raise DataError(f"{path.name} is empty: it has a header and no rows.")
