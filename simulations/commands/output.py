"""How commands print: JSON for machines, rounded towards caution for people."""

from __future__ import annotations

import json
from math import ceil, floor, isfinite, log10
from typing import Any

import typer


def print_json(values: Any) -> None:
    """Print ``values`` as JSON; what is not a finite number must have become null before."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def rounded_up(value: float, digits: int = 4) -> str:
    """``value`` with so many significant digits, never below itself: for ε, δ and noise."""
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = digits - 1 - floor(log10(abs(value)))
    # A double just above a short decimal, such as 0.1 + 0.2, is that decimal to a reader.
    shifted = value * 10.0**decimals
    steps = round(shifted) if abs(shifted - round(shifted)) < 1e-9 * abs(shifted) else ceil(shifted)
    return f"{steps / 10.0**decimals:.{digits}g}"
