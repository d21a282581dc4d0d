"""The spool of a table: `read_table` for one that does not fit the memory.

Features, labels, parties and persons are read some rows at a time and appended to files, which are
then mapped. The data set is that of `read_table`, to the bit.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.dataset import Dataset, Records
from fedpriv.data.errors import DataError
from fedpriv.data.persons import Persons
from fedpriv.data.tables.batches import read_batches, require_rows
from fedpriv.data.tables.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.data.tables.readers import Source
    from fedpriv.data.tables.schema import Schema

_PARTS = ("train", "test")


def spooled(path: str | Path, schema: Schema, folder: Path, *, empty: bool = False) -> Dataset:
    """All records of a table, mapped from files in ``folder``, which must outlive them.

    Args:
        path: A CSV or Parquet file.
        schema: Its rules.
        folder: For the files; empty.
        empty: Whether to accept a table without records.

    Raises:
        DataError: As `read_table`, but for the first rows that break a rule.
    """
    path = Path(path)
    values = _undeclared(path, schema)
    files = _Files(folder, width=len(schema.feature_names), integers=schema.task == "multiclass")
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    rows, kept_rows = 0, 0
    with files:
        for source in _sources(path, schema, schema.named):
            reader = TableReader(schema, source, values=values)
            X = reader.features()
            y, classes = reader.labels()
            party, names = reader.parties()
            person = reader.named_persons()
            reader.raise_problems()
            kept, in_test = ~reader.dropped, reader.tested()
            for part, chosen in zip(_PARTS, (kept & ~in_test, kept & in_test), strict=True):
                files.append(part, X, y, party, person, chosen)
            rows, kept_rows = rows + source.rows, kept_rows + int(kept.sum())
    require_rows(path, rows, empty=empty)
    if not kept_rows and not empty:
        raise DataError(f"{path.name}: every row has missing values; no record is left.")
    if not rows:  # nothing was read, and so no names either
        from fedpriv.data.tables.table import read_table

        return read_table(path, schema, empty=True)[0]
    return Dataset(
        name=path.stem,
        task=schema.task,
        train=files.records("train"),
        test=files.records("test"),
        feature_names=schema.feature_names,
        max_norm=sqrt(len(schema.features)),
        party_names=names,
        classes=classes,
        schema=schema,
    )


def _undeclared(path: Path, schema: Schema) -> dict[str, list[str]]:
    """By column, the values in the file of a label or a party of which the schema lists none."""
    wanted = {
        name: key
        for name, key in schema.named.items()
        if name in (schema.label, schema.party) and name not in schema.columns
    }
    found: dict[str, dict[str, None]] = {name: {} for name in wanted}
    if wanted:
        for source in _sources(path, schema, wanted):
            reader = TableReader(schema, source)
            for name, values in found.items():
                values.update(dict.fromkeys(reader.distinct(name)))
    return {name: list(values) for name, values in found.items()}


def _sources(path: Path, schema: Schema, wanted: dict[str, str]) -> Iterator[Source]:
    return read_batches(
        path, wanted, delimiter=schema.delimiter, missing_values=schema.missing_values
    )


class _Files:
    """Columns of records in files that grow, for training and for testing."""

    def __init__(self, folder: Path, *, width: int, integers: bool) -> None:
        self._folder, self._width = folder, width
        self._kinds: dict[str, type[np.generic]] = {
            "X": np.float32,
            "y": np.int64 if integers else np.float32,
            "party": np.int32,
            "person": np.int64,
        }
        self._rows = dict.fromkeys(_PARTS, 0)
        self._persons: dict[str, int] = {}
        self._open = ExitStack()
        self._files: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._open.__enter__()

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def append(
        self,
        part: str,
        X: NDArray[np.float32],
        y: NDArray[Any],
        party: NDArray[np.int64] | None,
        person: tuple[NDArray[np.int64], list[str]] | None,
        chosen: NDArray[np.bool_],
    ) -> None:
        """Append the chosen rows."""
        columns: dict[str, NDArray[Any]] = {"X": X, "y": y}
        if party is not None:
            columns["party"] = party
        if person is not None:
            columns["person"] = self._numbers(person[1])[person[0]]
        for name, column in columns.items():
            key = f"{part}-{name}"
            if key not in self._files:
                self._files[key] = self._open.enter_context((self._folder / key).open("wb"))
            with np.errstate(over="ignore"):  # becomes infinite, which is refused
                block = np.ascontiguousarray(column[chosen], self._kinds[name])
            if name in "Xy" and not np.isfinite(block).all():
                raise DataError("X and y must be finite; at least one entry is NaN or infinite.")
            self._files[key].write(block.data)
        self._rows[part] += int(chosen.sum())

    def records(self, part: str) -> Records:
        """All records that were appended, mapped."""
        person = self._column(part, "person", ())
        return Records.mapped(
            X=self._required(part, "X", (self._width,)),
            y=self._required(part, "y", ()),
            party=self._column(part, "party", ()),
            person=None if person is None else self._whose(person),
        )

    def _numbers(self, identifiers: list[str]) -> NDArray[np.int64]:
        """The number of each identifier among all, in the order of their first appearance."""
        known = self._persons
        return np.array([known.setdefault(text, len(known)) for text in identifiers], np.int64)

    def _whose(self, codes: NDArray[np.int64]) -> Persons:
        return Persons.named(codes, list(self._persons))

    def _required(self, part: str, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        column = self._column(part, name, shape)
        if column is None:
            raise DataError(f"{name} of the {part} records was never written.")
        return column

    def _column(self, part: str, name: str, shape: tuple[int, ...]) -> NDArray[Any] | None:
        key = f"{part}-{name}"
        if key not in self._files:
            return None
        kind, rows = self._kinds[name], self._rows[part]
        if not rows:
            return np.empty((0, *shape), kind)
        mapped = np.memmap(self._folder / key, kind, mode="r", shape=(rows, *shape))
        return np.asarray(mapped)
