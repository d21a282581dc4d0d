"""Writing TOML: the standard library only reads it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(values: Mapping[str, Any]) -> str:
    """A table of tables, lists, text, numbers and booleans as TOML; `tomllib` reads it back.

    >>> print(to_toml({"seed": 1, "data": {"name": "chem97", "alpha": 0.5}}), end="")
    seed = 1
    <BLANKLINE>
    [data]
    name = "chem97"
    alpha = 0.5
    """
    return "\n".join(_table(values, ())).lstrip("\n") + "\n"


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in values.items() if not isinstance(value, dict)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    if path and (lines or not values):
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _table(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)  # shortest text that reads back to the same number
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            pairs = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
            return f"{{ {pairs} }}"
    raise TypeError(f"TOML has no {type(value).__name__}.")


def _text(value: str) -> str:
    # A JSON string is a TOML string, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
