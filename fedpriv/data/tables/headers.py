"""The header of a table: which columns there are, checked against those that a schema names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from fedpriv.data.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def check_header(file: str, header: list[Any], wanted: Mapping[str, str]) -> None:
    """Refuse a header that lacks a column; ``wanted`` says which key of the schema names each.

    Quotes no name that is not in the schema: if the header is missing, "names" may be cells.
    """
    for place, name in enumerate(header):
        if name in header[:place]:
            raise DataError(
                f"{file}: columns {header.index(name) + 1} and {place + 1} have the same name."
            )
    folded = {str(name).casefold() for name in header}
    for name, key in wanted.items():
        if name not in header:
            hint = " Upper and lower case differ." if name.casefold() in folded else ""
            if file.endswith(".csv") and len(header) > 1 and not set(wanted).intersection(header):
                hint = hint or " The first line must name the columns, and names none of them."
            raise DataError(
                f"{file}: the header lacks column {name!r} of the schema ({key})."
                f"{hint or _other_delimiter(header, wanted) or _nearest(name, key, header, wanted)}"
            )


def _other_delimiter(header: list[Any], wanted: Collection[str]) -> str:
    """The delimiter that a CSV file uses instead of the schema's, if its header shows it."""
    if len(header) > 1:
        return ""
    for delimiter, name in ((";", ";"), ("\t", "\\t"), ("|", "|"), (",", ",")):
        if set(wanted) <= set(str(header[0]).split(delimiter)):
            return f' Its columns are separated otherwise: set delimiter = "{name}" in the schema.'
    return ""


def _nearest(name: str, key: str, header: list[Any], wanted: Collection[str]) -> str:
    """The nearest other column, if most of the schema's columns prove that this is a header."""
    if 2 * len(set(wanted).intersection(header)) < len(wanted):
        return ""
    # A misspelt label often has a description under its right name, which then counts as a feature.
    whole = not key.startswith("[columns.")
    near = get_close_matches(name, [str(h) for h in header if whole or h not in wanted], n=1)
    return f" Is {near[0]!r} meant?" if near else ""
