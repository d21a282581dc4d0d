"""`LoadReport`: what the rules of a schema did to a table when it was read, for its owner."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    def in_words(self) -> list[str]:
        """What an owner would not expect, in a line each: dropped rows, filled and moved values."""
        lines = []
        if self.rows_kept < self.rows_read:
            dropped = self.rows_read - self.rows_kept
            lines.append(f"{dropped} of {self.rows_read} rows were dropped: values are missing")
        elif self.missing:
            lines.append(f"missing values were filled: {_by_column(self.missing)}")
        if self.clamped:
            lines.append(f"values were moved to the bounds: {_by_column(self.clamped)}")
        if self.ignored_columns:
            lines.append(f"columns that the schema does not name: {len(self.ignored_columns)}")
        return lines


def _by_column(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} in {name!r}" for name, count in counts.items())
