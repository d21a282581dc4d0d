"""`LoadReport`: what the rules of a schema did to a table when it was read, for its owner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.data.tables.schema import CategoryColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.data.tables.schema import Schema

_SHOWN = 5  # names of columns in a line


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

    def in_words(self, schema: Schema) -> list[str]:
        """Possible surprises for the owner, one per line: dropped rows, filled and moved values.

        Column names may be shown: a file with all columns that ``schema`` names has a header.
        """
        lines = []
        moved = {name: n for name, n in self.clamped.items() if not _category(schema, name)}
        zeros = {name: n for name, n in self.clamped.items() if _category(schema, name)}
        if self.rows_kept < self.rows_read:
            dropped = self.rows_read - self.rows_kept
            lines.append(f"{dropped} of {self.rows_read} rows were dropped: values are missing")
        elif self.missing:
            lines.append(f"missing values were filled: {_by_column(self.missing)}")
        if moved:
            lines.append(f"values were moved to the bounds: {_by_column(moved)}")
        if zeros:
            lines.append(f"values that the schema does not list became zeros: {_by_column(zeros)}")
        if self.ignored_columns:
            lines.append(f"columns that the schema does not name: {_few(self.ignored_columns)}")
        lines += [
            f"warning: in column {name!r} {self._share(name)} values are not what the schema says: "
            f"is [columns.{name}] right?"
            for name, count in self.clamped.items()
            if 2 * count > self.rows_read - self.missing.get(name, 0)
        ]
        return lines

    def _share(self, name: str) -> str:
        """How many of the values in a column were clamped."""
        there = self.rows_read - self.missing.get(name, 0)
        count = self.clamped[name]
        return f"all {there}" if count == there else f"{count} of {there}"


def _category(schema: Schema, name: str) -> bool:
    return isinstance(schema.columns.get(name), CategoryColumn)


def _few(names: tuple[str, ...]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(map(repr, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _by_column(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} in {name!r}" for name, count in counts.items())
