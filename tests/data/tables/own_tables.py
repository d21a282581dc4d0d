"""A user's own table, written and read, or refused without a value in the message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.data import DataError, Dataset, LoadReport, parse_schema, read_table

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "Zq7Secret"  # noqa: S105 (a marker, to be found in no message)
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "min": 0, "max": 10},
    "job": {"kind": "category", "values": ["clerk", "nurse"]},
}
HEADER = "age,job,pay\n"
GOOD = HEADER + "0,clerk,high\n5,nurse,low\n10,clerk,low\n"


def read(folder: Path, content: str | bytes, **changes: Any) -> tuple[Dataset, LoadReport]:
    path = folder / "mine.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    values = {"label": "pay", "positive": "high", "columns": COLUMNS} | changes
    return read_table(path, parse_schema(values))


def refusal(folder: Path, content: str | bytes, **changes: Any) -> str:
    """The message of the refusal, after checking that no value rides along."""
    with pytest.raises(DataError) as caught:
        read(folder, content, **changes)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__
    return str(caught.value)
