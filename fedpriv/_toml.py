"""TOML files: one reader with consistent errors, and a writer."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The values of a TOML file; errors call it ``what``, such as "roster".

    Raises:
        ValueError: It cannot be read, or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{what} {str(path)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} {str(path)!r} is not TOML: {error}.") from None
    return parse_toml(text, f"{what} {str(path)!r}")


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The values of a text in TOML; errors call it ``what``.

    Raises:
        ValueError: It is not TOML.
    """
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not TOML: {error}.") from None
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply.") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """A table of tables, lists, text, numbers and booleans as TOML; `parse_toml` reads it back.

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
    lines = [
        f"{_key(key)} = {to_toml_value(value, key='.'.join((*path, str(key))))}"
        for key, value in plain.items()
    ]
    if path and (lines or not values):
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _table(value, (*path, str(key)))
    return lines


def _key(key: object) -> str:
    name = str(key)  # a budget may be a number in Python
    return name if _BARE.fullmatch(name) else _text(name)


def to_toml_value(value: Any, *, key: str = "value") -> str:
    """A value on the right of ``key``; what TOML cannot express is refused.

    >>> print(to_toml_value({"seed": 1, "grid": [0.1, 1]}))
    { seed = 1, grid = [0.1, 1] }
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value)  # shortest text that reads back to the same number
        case str() | PurePath():
            return _text(str(value))
        case list() | tuple():
            return f"[{', '.join(to_toml_value(item, key=key) for item in value)}]"
        case dict():
            pairs = [f"{_key(name)} = {to_toml_value(v, key=key)}" for name, v in value.items()]
            return f"{{ {', '.join(pairs)} }}"
    raise ValueError(
        f"{key} must be text, a number, true or false, a list or a table, got {value!r}."
    )


def _text(value: str) -> str:
    # A JSON string is a TOML string, except for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
