"""Reader of a table's columns under the rules of a schema, which counts violations.

Values that break a rule are counted by column, and reported by count and row number, never by
value. No Python loop runs over records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.dataset import signs
from fedpriv.data.errors import DataError, import_optional
from fedpriv.data.persons import Persons
from fedpriv.data.tables.schema import CategoryColumn, NumberColumn, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fedpriv.data.tables.readers import Source

    Mask = NDArray[np.bool_]


class TableReader:
    """Reads columns under the rules of a schema, and counts missing and out-of-range values.

    Args:
        schema: The rules.
        source: The columns; of a whole file, or of a part of it.
        values: For a part: by column, the values in the whole file, where the schema declares none.
    """

    def __init__(
        self, schema: Schema, source: Source, *, values: Mapping[str, list[str]] | None = None
    ) -> None:
        self._schema = schema
        self._source = source
        self._values = values or {}
        self._problems: list[str] = []
        self.missing: dict[str, int] = {}
        self.clamped: dict[str, int] = {}
        self.dropped: Mask = np.zeros(source.rows, np.bool_)

    def raise_problems(self) -> None:
        """Refuse the table if a rule was broken."""
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
        """A column of numbers in [−1, 1]."""
        values = self._source.numbers(name)
        absent = np.isnan(values)
        self._meet_missing(name, absent, filled=column.fill is not None)
        # A missing value without a fill is dropped or refused; until then it must stay finite.
        values[absent] = column.min if column.fill is None else column.fill
        return self._scaled(name, column, values)

    def _scaled(
        self, name: str, column: NumberColumn, values: NDArray[np.float64]
    ) -> NDArray[np.float64]:
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

    def described(self, name: str, *, missing: float) -> NDArray[np.float64]:
        """A column for statistics, in which missing values are kept.

        A number in [−1, 1], or ``missing``. For a category, the index of its value; the last index
        plus one for a clamped value, plus two for a missing one.
        """
        column = self._schema.columns[name]
        if isinstance(column, NumberColumn):
            values = self._source.numbers(name)
            absent = np.isnan(values)
            self._missed(name, absent)
            values[absent] = column.min
            scaled = self._scaled(name, column, values)
            scaled[absent] = missing
            return scaled
        codes, absent = self._match(name, column)
        self._missed(name, absent)
        outside = (codes < 0) & ~absent
        self._meet_outside(name, column, outside, "none of the declared values")
        codes[outside] = len(column.values)
        codes[absent] = len(column.values) + 1
        return codes.astype(np.float64)

    def labels(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        """The labels, and the names of their classes."""
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
        """The party of each row, and the names of all parties; nothing without a column."""
        name = self._schema.party
        if name is None:
            return None, ()
        column = self._schema.columns.get(name)
        if isinstance(column, CategoryColumn):
            return self._declared_codes(name, column), column.values
        names = self.distinct(name)
        declared = CategoryColumn(kind="category", values=tuple(sorted(names)) or ("none",))
        return self._declared_codes(name, declared), declared.values

    def persons(self) -> Persons | None:
        """The person of each row; a row that names nobody has a missing value."""
        named = self.named_persons()
        return None if named is None else Persons.named(*named)

    def named_persons(self) -> tuple[NDArray[np.int64], list[str]] | None:
        """The persons of the rows: codes, and the identifiers they index, by first appearance."""
        name = self._schema.person
        if name is None:
            return None
        pc = import_optional("pyarrow.compute", extra="data")
        text = self._source.text(name)
        self._meet_missing(name, _to_mask(pc.is_null(text)), filled=False)
        encoded = pc.dictionary_encode(pc.fill_null(text, "")).combine_chunks()
        codes = encoded.indices.to_numpy().astype(np.int64)
        return codes, encoded.dictionary.to_pylist()

    def distinct(self, name: str) -> list[str]:
        """The distinct values of a column in the whole file, without missing ones."""
        if name in self._values:
            return self._values[name]
        pc = import_optional("pyarrow.compute", extra="data")
        values: list[str] = pc.unique(self._source.text(name).drop_null()).to_pylist()
        return values

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
        labels = self.distinct(name)
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

    def _missed(self, name: str, absent: Mask) -> bool:
        """Count missing values; return whether there are any."""
        if absent.any():
            self.missing[name] = int(absent.sum())
        return name in self.missing

    def _meet_missing(self, name: str, absent: Mask, *, filled: bool) -> None:
        if not self._missed(name, absent) or filled:
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
                f"Column {name!r}: {count} {are} {what}, first in row "
                f"{self._source.before + where.argmax() + 1}. "
                f"{remedy}"
            )


def _to_mask(booleans: Any) -> Mask:
    return np.asarray(booleans.to_numpy(zero_copy_only=False), np.bool_)
