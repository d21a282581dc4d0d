"""One voice for every error about a parameter: its name, its value, the rule, and the remedy.

Everything here refuses NaN: each check states what is allowed, and NaN satisfies no comparison.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MANY = 2**63  # counts fit 64 bits, and so a float


def require_positive(**parameters: float) -> None:
    """Require a positive, finite number."""
    for name, value in parameters.items():
        if not (_is_number(value) and 0 < value < inf):
            raise ValueError(f"{name} must be positive and finite, got {value!r}.")


def require_non_negative(**parameters: float) -> None:
    """Require a finite number of at least 0."""
    for name, value in parameters.items():
        if not (_is_number(value) and 0 <= value < inf):
            raise ValueError(f"{name} must be finite and at least 0, got {value!r}.")


def require_above(bound: float, **parameters: float) -> None:
    """Require a finite number above ``bound``."""
    for name, value in parameters.items():
        if not (_is_number(value) and bound < value < inf):
            raise ValueError(f"{name} must be finite and above {bound:g}, got {value!r}.")


def require_count(**parameters: int) -> None:
    """Require an integer of at least 1."""
    for name, value in parameters.items():
        if not _is_integer(value) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
        if value >= _MANY:
            raise ValueError(f"{name} must be below 2^63, got an integer that is larger.")


def require_delta(**parameters: float) -> None:
    """Require a failure probability in [0, 1)."""
    for name, value in parameters.items():
        if not (_is_number(value) and 0 <= value < 1):
            raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")


def require_rate(**parameters: float) -> None:
    """Require a sampling rate in (0, 1]."""
    for name, value in parameters.items():
        if not (_is_number(value) and 0 < value <= 1):
            raise ValueError(f"{name} must lie in (0, 1], got {value!r}.")


def require_open_unit(**parameters: float) -> None:
    """Require a number in the open interval (0, 1)."""
    for name, value in parameters.items():
        if not (_is_number(value) and 0 < value < 1):
            raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")


def require_choice(choices: Iterable[str], **parameters: str) -> None:
    """Refuse an unknown name, and offer the nearest known one."""
    known = list(choices)
    for name, value in parameters.items():
        if value not in known:
            near = get_close_matches(str(value), known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Whether a float can hold it: Python's integers are unbounded."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max
