"""Meanings of a strategy's options, read from docstrings: one text for code and reader."""

from __future__ import annotations

import re
from inspect import getdoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

_NAMED = re.compile(r"^(\w+): (.*)$")
_INDENT = 4


def meanings(options: type[BaseModel]) -> dict[str, str]:
    """The meaning of each option, by name; options that no docstring names are left out.

    Read from the ``Attributes:`` of the class and its base classes, the nearest first.
    """
    texts: dict[str, str] = {}
    for base in options.__mro__:
        if base.__doc__ is not None:
            texts = _attributes(getdoc(base) or "") | texts
    return {name: texts[name] for name in options.model_fields if name in texts}


def _attributes(docstring: str) -> dict[str, str]:
    """The entries of ``Attributes:``, each in one line."""
    _, _, section = docstring.partition("\nAttributes:\n")
    entries: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break  # the section is over
        named = _NAMED.match(line[_INDENT:])
        if named is not None:
            name = named[1]
            entries[name] = named[2]
        elif name and line.strip():
            entries[name] += f" {line.strip()}"
    return entries
