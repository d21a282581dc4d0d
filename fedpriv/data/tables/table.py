"""`read_table`: a user's own table, with its schema, as a data set.

All scales come from the schema, which is public. Values that break its rules are counted by column,
and reported by count and row number, never by value. No Python loop runs over records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.dataset import Dataset, Records, signs
from fedpriv.data.errors import DataError, import_optional
from fedpriv.data.persons import Persons
from fedpriv.data.tables.readers import Source, read_source, table_source
from fedpriv.data.tables.schema import CategoryColumn, NumberColumn, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Report on a loaded table: what the schema's rules did. Exact counts, for its owner only.

    Attributes:
        rows_read: Rows of the file.
        rows_kept: Records of the data set; the others had missing values.
        missing: Missing values by column, filled or dropped; columns without any are left out.
        clamped: Out-of-range values by column, moved to the range; likewise.
        ignored_columns: Columns of the file that the schema does not mention.
    """

    rows_read: int
    rows_kept: int
    missing: Mapping[str, int]
    clamped: Mapping[str, int]
    ignored_columns: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return asdict(self)


def read_table(
    path: str | Path, schema: Schema, *, empty: bool = False
) -> tuple[Dataset, LoadReport]:
    """Read a CSV or Parquet file of one's own, under the rules of its schema.

    All records are for training (see `hold_out`), but those that the schema's public
    ``test_column`` sets apart.

    Numbers are scaled from their public bounds to [−1, 1], categories become columns of 0 and 1.
    Missing is what is empty, null, NaN, or one of the schema's ``missing_values``. An infinite
    number, a label or a party outside its declared values is refused under every rule.

    Args:
        path: The file.
        schema: Its rules.
        empty: Whether a table without records is one, as it is to a deployed party: where the last
            person, or all records of a party, may have left, whether it refuses must not show it.

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
    reader = _Reader(schema, source)
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
    return dataset, report


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
    reader = _Reader(schema.model_copy(update={"missing": "drop"}), source)
    X = reader.features()
    reader.raise_problems()
    if reader.dropped.any():
        raise DataError(
            f"{source.file}: rows with a missing value that the schema has no fill for: "
            f"{int(reader.dropped.sum())}, first row {reader.dropped.argmax() + 1}. Fill or remove "
            "them before predicting."
        )
    return X


class _Reader:
    """Reads columns under the rules of a schema, and keeps count of what they met."""

    def __init__(self, schema: Schema, source: Source) -> None:
        self._schema = schema
        self._source = source
        self._problems: list[str] = []
        self.missing: dict[str, int] = {}
        self.clamped: dict[str, int] = {}
        self.dropped: Mask = np.zeros(source.rows, np.bool_)

    def raise_problems(self) -> None:
        if self._problems:
            raise DataError(f"{self._source.file}: " + " ".join(self._problems))

    def features(self) -> NDArray[np.float32]:
        """All features, scaled and encoded, in the order of the schema."""
        X = np.zeros((self._source.rows, len(self._schema.feature_names)), np.float32)
        first = 0
        for name, column in self._schema.features.items():
            if isinstance(column, NumberColumn):
                X[:, first] = self.numbers(name, column)
                first += 1
            else:
                codes = self.codes(name, column)
                rows = np.flatnonzero(codes >= 0)
                X[rows, first + codes[rows]] = 1
                first += len(column.values)
        return X

    def numbers(self, name: str, column: NumberColumn) -> NDArray[np.float64]:
        values = self._source.numbers(name)
        absent = np.isnan(values)
        self._meet_missing(name, absent, filled=column.fill is not None)
        # A missing value without a fill is dropped or refused; until then it must stay finite.
        values[absent] = column.min if column.fill is None else column.fill
        infinite = np.isinf(values)
        self._meet_forbidden(name, infinite, "infinite", "Correct the file.")
        outside = ((values < column.min) | (values > column.max)) & ~infinite
        bounds = f"outside [{column.min:g}, {column.max:g}]"
        self._meet_outside(name, column, outside, bounds)
        return to_unit_interval(values, column.min, column.max)

    def codes(self, name: str, column: CategoryColumn) -> NDArray[np.int64]:
        """The index of each value among the declared ones; −1 for none of them."""
        codes, absent = self._match(name, column)
        self._meet_missing(name, absent, filled=column.fill is not None)
        if column.fill is not None:
            codes[absent] = column.values.index(column.fill)
        outside = (codes < 0) & ~absent
        self._meet_outside(name, column, outside, "none of the declared values")
        return codes

    def labels(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        name, positive = self._schema.label, self._schema.positive
        column = self._schema.columns.get(name)
        if isinstance(column, NumberColumn):
            return self.numbers(name, column), ()
        if column is not None:
            codes = self._declared_codes(name, column)
            if positive is None:
                return codes, column.values
            is_positive = codes == column.values.index(positive)
        else:
            is_positive = self._two_labels(name)
        return signs(is_positive), (f"not {positive}", str(positive))

    def parties(self) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
        name = self._schema.party
        if name is None:
            return None, ()
        column = self._schema.columns.get(name)
        if isinstance(column, CategoryColumn):
            return self._declared_codes(name, column), column.values
        pc = import_optional("pyarrow.compute", extra="data")
        names = pc.unique(self._source.text(name).drop_null()).to_pylist()
        declared = CategoryColumn(kind="category", values=tuple(sorted(names)) or ("none",))
        return self._declared_codes(name, declared), declared.values

    def persons(self) -> Persons | None:
        """Whose rows these are; a row that names nobody is missing a value."""
        name = self._schema.person
        if name is None:
            return None
        pc = import_optional("pyarrow.compute", extra="data")
        text = self._source.text(name)
        self._meet_missing(name, _to_mask(pc.is_null(text)), filled=False)
        encoded = pc.dictionary_encode(pc.fill_null(text, "")).combine_chunks()
        codes = encoded.indices.to_numpy().astype(np.int64)
        return Persons.named(codes, encoded.dictionary.to_pylist())

    def tested(self) -> Mask:
        """Which rows the public column sets apart for testing; none without one."""
        name = self._schema.test_column
        if name is None:
            return np.zeros(self._source.rows, np.bool_)
        pa = import_optional("pyarrow", extra="data")
        pc = import_optional("pyarrow.compute", extra="data")
        text = self._source.text(name)
        chosen = pc.is_in(text, value_set=pa.array(self._schema.test_values, text.type))
        return _to_mask(chosen)

    def _two_labels(self, name: str) -> Mask:
        pa = import_optional("pyarrow", extra="data")
        pc = import_optional("pyarrow.compute", extra="data")
        text = self._source.text(name)
        self._meet_missing(name, _to_mask(pc.is_null(text)), filled=False)
        labels = pc.unique(text.drop_null()).to_pylist()
        remedy = f"List the labels in [columns.{name}] with kind = 'category'."
        if len(labels) > 2:
            self._problems.append(
                f"Label {name!r} has {len(labels)} different values, not 2. {remedy}"
            )
        elif self._schema.positive not in labels:
            self._problems.append(f"Label {name!r} is never equal to positive. {remedy}")
        return _to_mask(
            pc.fill_null(pc.equal(text, pa.scalar(self._schema.positive, text.type)), False)
        )

    def _declared_codes(self, name: str, column: CategoryColumn) -> NDArray[np.int64]:
        """Codes of a label or a party, for which there is no clamping."""
        codes, absent = self._match(name, column)
        self._meet_missing(name, absent, filled=False)
        outside = (codes < 0) & ~absent
        remedy = f"Correct the file, or list them in [columns.{name}]."
        self._meet_forbidden(name, outside, "none of the declared values", remedy)
        codes[codes < 0] = 0
        return codes

    def _match(self, name: str, column: CategoryColumn) -> tuple[NDArray[np.int64], Mask]:
        pa = import_optional("pyarrow", extra="data")
        pc = import_optional("pyarrow.compute", extra="data")
        text = self._source.text(name)
        codes = pc.index_in(text, value_set=pa.array(column.values, text.type))
        return pc.fill_null(codes, -1).to_numpy().astype(np.int64), _to_mask(pc.is_null(text))

    def _meet_missing(self, name: str, absent: Mask, *, filled: bool) -> None:
        if not absent.any():
            return
        self.missing[name] = int(absent.sum())
        if filled:
            return
        if self._schema.missing == "drop":
            self.dropped |= absent
        else:
            fill = f", or give [columns.{name}] a fill" if name in self._schema.features else ""
            remedy = (
                f"Correct the file{fill}. Outside of a release, missing = 'drop' leaves such "
                "records out."
            )
            self._meet_forbidden(name, absent, "missing", remedy)

    def _meet_outside(
        self, name: str, column: NumberColumn | CategoryColumn, outside: Mask, what: str
    ) -> None:
        if not outside.any():
            return
        if (column.out_of_range or self._schema.out_of_range) == "clamp":
            self.clamped[name] = int(outside.sum())
        else:
            remedy = "Correct the file or the public bounds, or set out_of_range = 'clamp'."
            self._meet_forbidden(name, outside, what, remedy)

    def _meet_forbidden(self, name: str, where: Mask, what: str, remedy: str) -> None:
        count = int(where.sum())
        if count:
            are = "value is" if count == 1 else "values are"
            self._problems.append(
                f"Column {name!r}: {count} {are} {what}, first in row {where.argmax() + 1}. "
                f"{remedy}"
            )


def _to_mask(booleans: Any) -> Mask:
    return np.asarray(booleans.to_numpy(zero_copy_only=False), np.bool_)
