"""TOML files: one reader with one voice for what is wrong, and a writer."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The values of a TOML file; ``what`` it is for, such as "roster", is named in the error.

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
    """The values of a text in TOML; ``what`` it is, is named in the error.

    Raises:
        ValueError: It is not TOML.
    """
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not TOML: {error}.") from None


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
