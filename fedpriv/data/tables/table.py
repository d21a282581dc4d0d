"""`read_table`: a user's own table, with its schema, as a data set.

All scales come from the schema, which is public. Values that break its rules are counted by column,
and reported by count and row number, never by value. No Python loop runs over records.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.data.dataset import Dataset, Records
from fedpriv.data.errors import DataError
from fedpriv.data.tables.load_report import LoadReport
from fedpriv.data.tables.readers import read_source, table_source
from fedpriv.data.tables.table_reader import TableReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.data.tables.schema import Schema


def read_table(
    path: str | Path, schema: Schema, *, empty: bool = False
) -> tuple[Dataset, LoadReport]:
    """Read a CSV or Parquet file of one's own, under the rules of its schema.

    All records are for training (see `hold_out`), except those that the schema's public
    ``test_column`` sets apart.

    Numbers are scaled from their public bounds to [−1, 1], categories become columns of 0 and 1.
    Missing is what is empty, null, NaN, or one of the schema's ``missing_values``. An infinite
    number, a label or a party outside its declared values is refused under every rule.

    Args:
        path: The file.
        schema: Its rules.
        empty: Whether to accept a table without records, as a deployed party does: a refusal must
            not reveal that the last person, or all records of a party, have left.

    Raises:
        DataError: If the file cannot be read or breaks a rule; the message lists every broken rule
            with its column, the count and the first row, and quotes no value of the file.
    """
    path = Path(path)
    features = schema.features
    source = read_source(
        path,
        schema.named,
        delimiter=schema.delimiter,
        missing_values=schema.missing_values,
        empty=empty,
    )
    reader = TableReader(schema, source)
    X = reader.features()
    y, classes = reader.labels()
    party, party_names = reader.parties()
    person = reader.persons()
    reader.raise_problems()

    kept = ~reader.dropped
    if not kept.any() and not empty:
        raise DataError(f"{source.file}: every row has missing values; no record is left.")
    everything = Records(X=X, y=y, party=party, person=person)
    records, in_test = everything.take(kept), reader.tested()[kept]
    dataset = Dataset(
        name=path.stem,
        task=schema.task,
        train=records.take(~in_test),
        test=records.take(in_test),
        feature_names=schema.feature_names,
        # Each column of the table adds at most 1 to ‖x‖²: a number in [−1, 1], or a single 1.
        max_norm=sqrt(len(features)),
        party_names=party_names,
        classes=classes,
        schema=schema,
    )
    report = LoadReport(
        rows_read=source.rows,
        rows_kept=len(records),
        missing=reader.missing,
        clamped=reader.clamped,
        ignored_columns=source.ignored,
    )
    return replace(dataset, loading=report), report


def encode_features(table: Any, schema: Schema) -> NDArray[np.float32]:
    """The scaled features of a raw table that need not have labels, as `read_table` makes them.

    Every row is kept: a missing value without a fill is refused, whatever the schema does with it
    in training.
    """
    source = table_source(
        table,
        {name: key for name, key in schema.named.items() if name in schema.features},
        delimiter=schema.delimiter,
        missing_values=schema.missing_values,
    )
    reader = TableReader(schema.model_copy(update={"missing": "drop"}), source)
    X = reader.features()
    reader.raise_problems()
    if reader.dropped.any():
        raise DataError(
            f"{source.file}: rows with a missing value that the schema has no fill for: "
            f"{int(reader.dropped.sum())}, first row {reader.dropped.argmax() + 1}. Fill or remove "
            "them before predicting."
        )
    return X
