"""Words of findings: what an interval supports, and how numbers and budgets are said."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fedpriv.simulations.compare.intervals import Interval
    from fedpriv.simulations.compare.rows import Row

CLOSE = 0.01
"""Within one point of accuracy of a model without noise: close."""


def above(interval: Interval, bound: float) -> bool:
    """Whether the whole interval is above the bound."""
    return interval.low is not None and interval.low > bound


def below(interval: Interval, bound: float) -> bool:
    """Whether the whole interval is below the bound."""
    return interval.high is not None and interval.high < bound


def points(interval: Interval) -> str:
    """A difference of accuracies, with its interval unless no seed changes it."""
    if interval.half_width == 0:
        return f"{_hundredths(interval.mean)} points"
    low, high = _hundredths(interval.low or 0), _hundredths(interval.high or 0)
    return f"{_hundredths(interval.mean)} points, 95 % CI {low} to {high}"


def change(gap: Interval) -> str:
    """A difference as a loss, or as a gain where it is one in print."""
    return f"gains {points(gap)}" if round(gap.mean, 4) > 0 else f"loses {points(-gap)}"


def _hundredths(share: float) -> str:
    """A share in points, to two places; nothing is 0.00, whatever its sign was."""
    return f"{100 * share:z.2f}"


def percent(row: Row) -> str:
    """The accuracy of a row."""
    return f"{100 * row.interval.mean:.1f} %"


def budgets(chosen: Sequence[float], of: Collection[float]) -> str:
    """At which of the budgets something holds."""
    if len(chosen) == len(of) > 1:
        return "every ε"
    return "ε = " + ", ".join(f"{epsilon:g}" for epsilon in chosen)


def at(epsilon: float, chosen: Sequence[float]) -> str:
    """Which of several budgets a number is for."""
    return f"at ε = {epsilon:g} " if len(chosen) > 1 else ""
