"""Numbers for people, rounded towards caution."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10


def rounded_up(value: float, digits: int = 4) -> str:
    """``value`` with so many significant digits, never below itself: for ε, δ and noise.

    >>> rounded_up(0.83411754)
    '0.8342'
    """
    if not isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = digits - 1 - floor(log10(abs(value)))
    # A double just above a short decimal, such as 0.1 + 0.2, is that decimal to a reader.
    shifted = value * 10.0**decimals
    steps = round(shifted) if abs(shifted - round(shifted)) < 1e-9 * abs(shifted) else ceil(shifted)
    return f"{steps / 10.0**decimals:.{digits}g}"
