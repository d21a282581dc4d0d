"""JSON that others wrote: one reader, whose only error is that it is no JSON."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: str | bytes) -> Any:
    """The values of a text in JSON.

    Raises:
        ValueError: It is no JSON, or is nested too deeply to be read.

    >>> parse_json('{"seed": 1}')
    {'seed': 1}
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
