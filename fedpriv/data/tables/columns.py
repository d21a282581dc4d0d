"""`read_columns`: the columns of a table as statistics need them, missing values included.

For training, a missing value is filled, or its record dropped, or the file refused. To describe a
table, missing values are counted, so here they are kept. Every column becomes one column of codes:

- a number in [−1, 1], scaled from its public range; `MISSING` if there is none;
- of a category the index of its value, K for a value that is none of the K declared ones, where the
  schema clamps, and K + 1 if it is missing.

Everything else that the schema refuses is refused as in training. No Python loop runs over records.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.dataset import Dataset, Records, no_records
from fedpriv.data.errors import DataError
from fedpriv.data.tables.readers import read_source
from fedpriv.data.tables.schema import NumberColumn
from fedpriv.data.tables.table_reader import TableReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data.tables.schema import Schema

MISSING = 2.0
"""The code of a number that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """What is publicly known of a column.

    Attributes:
        name: Its name.
        low: The least value of a number.
        high: The largest.
        values: The values of a category; empty for a number.
    """

    name: str
    low: float = -1.0
    high: float = 1.0
    values: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        return not self.values

    @property
    def codes(self) -> int:
        """The number of codes of a category: its values, one for any other, one for missing."""
        return len(self.values) + 2

    @property
    def largest(self) -> float:
        """The largest code."""
        return MISSING if self.is_number else float(self.codes - 1)


def described_columns(schema: Schema) -> tuple[ColumnFacts, ...]:
    """The columns that a schema describes, except the party: features and label."""
    return tuple(
        ColumnFacts(name=name, low=column.min, high=column.max)
        if isinstance(column, NumberColumn)
        else ColumnFacts(name=name, values=column.values)
        for name, column in schema.columns.items()
        if name != schema.party
    )


def codes_norm(columns: tuple[ColumnFacts, ...]) -> float:
    """A public bound on the norm of a row of codes."""
    return hypot(*(column.largest for column in columns))


def read_columns(
    path: str | Path, schema: Schema, *, empty: bool = False, tested: bool = True
) -> Dataset:
    """Read a CSV or Parquet file as columns of codes, for `described_columns`, with no labels.

    Reads all records. With ``tested=False`` it leaves out those that the schema's public
    ``test_column`` sets apart, as a deployed party does, whose roster does not count them.

    Raises:
        DataError: If the file cannot be read or breaks a rule of the schema, as in `read_table`; a
            missing value breaks none, unless it should name a person or a party.
    """
    path, columns = Path(path), described_columns(schema)
    if not columns:
        raise DataError("schema: columns must describe at least one that is not the party.")
    wanted = {column.name: f"[columns.{column.name}]" for column in columns}
    others = {
        name: key for name, key in schema.named.items() if key in ("party", "person", "test_column")
    }
    source = read_source(
        path,
        {**wanted, **others},
        delimiter=schema.delimiter,
        missing_values=schema.missing_values,
        empty=empty,
    )
    reader = TableReader(schema, source)
    X = np.empty((source.rows, len(columns)), np.float32)
    for place, facts in enumerate(columns):
        X[:, place] = reader.described(facts.name, missing=MISSING)
    return coded(path, schema, reader, columns, X, tested=tested)


def coded(
    path: Path,
    schema: Schema,
    reader: TableReader,
    columns: tuple[ColumnFacts, ...],
    X: NDArray[np.float32],
    *,
    tested: bool = True,
) -> Dataset:
    """A data set of codes, (n, c), with the parties and persons of a table; nothing to test on."""
    party, party_names = reader.parties()
    person = reader.persons()
    reader.raise_problems()
    records = Records(X=X, y=np.zeros(len(X), np.float32), party=party, person=person)
    left_out = reader.dropped if tested else reader.dropped | reader.tested()
    return Dataset(
        name=path.stem,
        task="regression",
        train=records.take(~left_out),
        test=no_records(len(columns), "regression"),
        feature_names=tuple(column.name for column in columns),
        max_norm=codes_norm(columns),
        party_names=party_names,
        schema=schema,
    )
