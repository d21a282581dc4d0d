"""CSV and Parquet readers: a file as columns of text or numbers.

The libraries underneath quote the offending cell in their errors. Here such errors are replaced:
a message names file, column and row, and never a value.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.errors import DataError, import_optional
from fedpriv.data.tables.csv_files import read_csv
from fedpriv.data.tables.headers import check_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_TABLE = "the table"  # in memory, for messages


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Source:
    """Columns read from a file; rows are counted from 1, without the header.

    Attributes:
        file: The name of the file, for messages.
        rows: The number of rows.
        ignored: The columns of the file that were not asked for.
        missing_values: Texts that mean a missing value, beside the empty one.
        before: How many rows of the file precede these, if they are a part of it.
    """

    file: str
    rows: int
    ignored: tuple[str, ...]
    missing_values: tuple[str, ...]
    _columns: dict[str, Any]
    before: int = 0

    def text(self, name: str) -> Any:
        """A column as Arrow strings without surrounding blanks; missing values are null."""
        pa = import_optional("pyarrow", extra="data")
        pc = import_optional("pyarrow.compute", extra="data")
        column = self._columns[name]
        if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
            column = pc.cast(column, pa.string())
        elif pa.types.is_floating(column.type):
            column = _codes(column)
        elif not _is_text(column):
            raise self._wrong_type(name, "text, numbers, or true and false")
        column = pc.utf8_trim_whitespace(column)
        absent = pc.is_in(column, value_set=pa.array(["", *self.missing_values], column.type))
        return pc.if_else(absent, pa.scalar(None, column.type), column)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as numbers; missing values are NaN."""
        pa = import_optional("pyarrow", extra="data")
        pc = import_optional("pyarrow.compute", extra="data")
        column = self._columns[name]
        if _is_text(column):
            column = self.text(name)
        elif pa.types.is_decimal(column.type):
            # Digit by digit: Arrow's own conversion rounds to a scale shared by all values, so one
            # record with more digits would change the numbers of all others.
            column = column.cast(pa.string())
        elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise self._wrong_type(name, "numbers")
        parsed = _parse(column)
        if parsed is None:
            row = self.before + _first_failure(column) + 1
            raise DataError(
                f"{self.file}, column {name!r}: row {row} does not hold a number. Write digits and "
                "a decimal point, without a comma or a unit; if a text of the file means that a "
                "value is missing, add it to missing_values of the schema."
            )
        values = np.array(pc.fill_null(parsed, np.nan).to_numpy())
        for text in self.missing_values:
            # A code such as -9 means "missing" however its digits are written.
            with suppress(ValueError):
                values[values == float(text)] = np.nan
        return values

    def _wrong_type(self, name: str, wanted: str) -> DataError:
        kind = self._columns[name].type
        return DataError(f"{self.file}, column {name!r}: holds {kind}, not {wanted}.")


def read_source(
    path: Path,
    wanted: Mapping[str, str],
    *,
    delimiter: str,
    missing_values: tuple[str, ...],
    empty: bool = False,
) -> Source:
    """Read the ``wanted`` columns of a ``.csv`` or ``.parquet`` file; ``empty`` admits no rows."""
    pa = import_optional("pyarrow", extra="data")
    require_table(path)
    content = None
    # Raised outside the handler, so that no library error, which may quote cells, is chained to it.
    with suppress(pa.ArrowException, UnicodeDecodeError, csv.Error), damaged():
        read = read_csv if path.suffix == ".csv" else _read_parquet
        content = read(path, wanted, delimiter)
    if content is None:
        raise unreadable(path)
    header, table = content
    if not table.num_rows and not empty:
        raise DataError(f"{path.name} is empty: it has a header and no rows.")
    return Source(
        file=path.name,
        rows=table.num_rows,
        ignored=tuple(name for name in header if name not in wanted),
        missing_values=missing_values,
        _columns={name: decoded(table[name]) for name in wanted},
    )


def require_table(path: Path) -> None:
    """Refuse a path that does not exist or is neither a ``.csv`` nor a ``.parquet`` file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: name the .csv or .parquet file in it.")
    if not path.is_file():
        raise DataError(f"{path} does not exist.")
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"{path.name}: the name of the file must end in .csv or .parquet.")


@contextmanager
def damaged() -> Iterator[None]:
    """Report damage that Arrow finds in a file as such, not as a disk error."""
    pa = import_optional("pyarrow", extra="data")
    try:
        yield
    except OSError as error:  # the library's own have no number
        if error.errno is not None:
            raise
        raise pa.ArrowInvalid("damaged") from None


def unreadable(path: Path) -> DataError:
    """The error about a file that a library cannot read; it quotes nothing of it."""
    why = "it is damaged, or in another format."
    if path.suffix == ".csv" and not _is_utf8(path):
        why = "it is not in UTF-8. Save it in that encoding, which spreadsheets call CSV UTF-8."
    return DataError(f"{path.name} cannot be read as {path.suffix[1:]}: {why}")


def _is_utf8(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return False
    return True


def table_source(
    table: Any,
    wanted: Mapping[str, str],
    *,
    delimiter: str = ",",
    missing_values: tuple[str, ...] = (),
) -> Source:
    """The ``wanted`` columns of a file, a DataFrame, an Arrow table or a mapping of columns."""
    if isinstance(table, str | Path):
        return read_source(Path(table), wanted, delimiter=delimiter, missing_values=missing_values)
    # An Arrow table has its columns' names elsewhere than a DataFrame.
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    header = list(table) if isinstance(table, Mapping) else None if names is None else list(names)
    if header is None:
        raise DataError(
            "a table must be a DataFrame, an Arrow table, a mapping of columns, or the path of a "
            f"CSV or Parquet file; got {type(table).__name__}."
        )
    check_header(_TABLE, header, wanted)
    columns = {name: decoded(_arrow(name, table[name])) for name in wanted}
    counts = {len(column) for column in columns.values()}
    if len(counts) > 1 or 0 in counts:
        raise DataError(f"{_TABLE}: columns must have the same number of rows, at least one.")
    return Source(
        file=_TABLE,
        rows=counts.pop(),
        ignored=tuple(str(name) for name in header if name not in wanted),
        missing_values=missing_values,
        _columns=columns,
    )


def _arrow(name: str, values: Any) -> Any:
    """A column in memory as Arrow has it; one without a type is missing throughout."""
    pa = import_optional("pyarrow", extra="data")
    column = None
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        if not isinstance(values, pa.ChunkedArray):
            values = pa.chunked_array([pa.array(values, from_pandas=True)])
        column = values.cast(pa.string()) if pa.types.is_null(values.type) else values
    if column is None:
        raise DataError(f"{_TABLE}, column {name!r}: must be a list of values of one type.")
    return column


def parquet_header(path: Path, wanted: Mapping[str, str]) -> list[str]:
    """The columns of a Parquet file that has the ``wanted`` ones."""
    parquet = import_optional("pyarrow.parquet", extra="data")
    header = list(parquet.read_schema(path).names)
    check_header(path.name, header, wanted)
    return header


def _read_parquet(path: Path, wanted: Mapping[str, str], _delimiter: str) -> tuple[list[str], Any]:
    parquet = import_optional("pyarrow.parquet", extra="data")
    header = parquet_header(path, wanted)
    table = parquet.read_table(path, columns=list(wanted))
    # Unlike the CSV reader, this one has not yet checked that texts are UTF-8: if any is not, the
    # whole file is refused, whatever the byte.
    table.validate(full=True)
    return header, table


def decoded(column: Any) -> Any:
    """The column without a dictionary; an entirely empty, untyped column becomes text."""
    pa = import_optional("pyarrow", extra="data")
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _codes(column: Any) -> Any:
    """Floating-point numbers as text, whole ones as integers, NaN as null.

    Parquet gives a column one type. A column of integers in which one is missing is often written
    as floating-point numbers: a single record would decide whether the table can be read.
    """
    pa = import_optional("pyarrow", extra="data")
    pc = import_optional("pyarrow.compute", extra="data")
    numbers = column.cast(pa.float64())
    whole = pc.and_(pc.equal(numbers, pc.trunc(numbers)), pc.less(pc.abs(numbers), 2.0**53))
    integers = pc.if_else(whole, numbers, 0.0).cast(pa.int64()).cast(pa.string())
    text = pc.if_else(whole, integers, numbers.cast(pa.string()))
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.string()), text)


def _is_text(column: Any) -> bool:
    pa = import_optional("pyarrow", extra="data")
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _parse(column: Any) -> Any | None:
    """The column as float64, or None if an entry is not a number."""
    pa = import_optional("pyarrow", extra="data")
    with suppress(pa.ArrowInvalid):
        # Not "safe": an integer beyond 2**53 may be rounded.
        return column.cast(pa.float64(), safe=False)
    return None


def _first_failure(column: Any) -> int:
    """The first entry that is not a number, by bisection: one pass over the column in total."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _parse(column.slice(low, middle - low)) is None:
            high = middle
        else:
            low = middle
    return low
