"""JSON from others: one strict reader, whose only error is that the text is not JSON.

A key that occurs twice in one object is refused: readers differ in which of the two they take, so
a person or another program could read another value than the one checked here. NaN and infinities
are not JSON either.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn


def parse_json(data: str | bytes) -> Any:
    """The values of a text in JSON.

    Raises:
        ValueError: It is not JSON, has a key twice, or is nested too deeply to be read.

    >>> parse_json('{"seed": 1}')
    {'seed': 1}
    """
    try:
        return json.loads(data, object_pairs_hook=_each_once, parse_constant=_no_number)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise json.JSONDecodeError("a key comes twice", "", 0)
    return values


def _no_number(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is no number", "", 0)
