"""Rounding of printed numbers: ε, δ and noise are rounded up, what an audit found of them down."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import isfinite


def rounded_up(value: float, digits: int = 4) -> str:
    """``value`` rounded up to ``digits`` significant digits: for ε, δ and noise.

    >>> rounded_up(0.83411754)
    '0.8342'
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """``value`` rounded down to ``digits`` significant digits: for lower bounds on ε.

    >>> rounded_down(0.83419754)
    '0.8341'
    """
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, towards: str) -> str:
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(value)
    nearest = Context(prec=digits).create_decimal(exact)
    # A double just above a short decimal, such as 0.1 + 0.2, is that decimal to a reader.
    if abs(nearest - exact) < Decimal("1e-9") * abs(exact):
        return f"{float(nearest):.{digits}g}"
    return f"{float(Context(prec=digits, rounding=towards).create_decimal(exact)):.{digits}g}"
