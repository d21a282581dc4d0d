"""Scales of figures: from values to places on a picture, with ticks at round numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.report.parts import Axis

_MOST_TICKS = 7
_MARGIN = 0.04  # of an axis, beyond the outermost value


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear or logarithmic scale from [low, high] to [start, end].

    >>> scale = Scale(low=1.0, high=100.0, start=0.0, end=200.0, logarithmic=True)
    >>> scale(10.0), scale.ticks()
    (100.0, [1.0, 10.0, 100.0])
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    whole: bool = False

    def __call__(self, value: float) -> float:
        """Where ``value`` is drawn."""
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = log10(low), log10(high), log10(value)
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within the scale."""
        if not self.logarithmic:
            return _round_numbers(self.low, self.high, whole=self.whole)
        whole = [10.0**e for e in range(ceil(log10(self.low)), floor(log10(self.high)) + 1)]
        if len(whole) > _MOST_TICKS:
            return whole[:: ceil(len(whole) / _MOST_TICKS)]
        if len(whole) > 2:
            return whole
        between = [
            m * 10.0**e
            for e in range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            for m in (1, 2, 5)
        ]
        inside = [value for value in between if self.low <= value <= self.high]
        return inside if len(inside) > 1 else _round_numbers(self.low, self.high)


def _round_numbers(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Multiples of a round step; ``whole`` ones, where that is what is counted."""
    if high <= low:
        return [low]
    rough = (high - low) / _MOST_TICKS
    if whole:
        rough = max(1.0, rough)
    power, steps = 10.0 ** floor(log10(rough)), (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(m * power for m in steps if m * power >= rough * (1 - 1e-9))
    first = ceil(low / step - 1e-9)
    last = floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def scale_of(
    axis: Axis, values: Sequence[float], *, start: float, end: float, logarithmic: bool
) -> Scale:
    """A scale with room for all values and named ticks, and a little more on both sides."""
    known = [*values, *(place for _, place in axis.ticks)]
    if logarithmic:
        known = [value for value in known if value > 0]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if logarithmic:
        span = (log10(high) - log10(low)) or 1.0
        grown = 10 ** (_MARGIN * span)
        return Scale(low=low / grown, high=high * grown, start=start, end=end, logarithmic=True)
    span = (high - low) or abs(high) or 1.0
    low, high = low - _MARGIN * span, high + _MARGIN * span
    return Scale(low=low, high=high, start=start, end=end, whole=axis.whole)


def tick_text(value: float, *, percent: bool) -> str:
    """A round number as an axis prints it.

    >>> tick_text(0.75, percent=True), tick_text(1e-5, percent=False)
    ('75 %', '1e-05')
    """
    return f"{100 * value:.4g} %" if percent else f"{value:.4g}"
