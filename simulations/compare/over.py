"""Findings of a comparison over a key: at which value each curve is highest, and by how much.

The highest value is chosen on the same seeds that measure the differences, which favours it; and
choosing a setting on private records is a release. The report says both.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.axes import in_words
from fedpriv.simulations.compare.intervals import paired_difference
from fedpriv.simulations.compare.words import below, percent, points
from fedpriv.simulations.counted import parties_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.compare.rows import Row

_WARNING = (
    "The highest point of a curve was chosen by the seeds that it is measured on, and on private "
    "records such a choice would be a release: choose settings on public data, as [tuning] does."
)


def best_points(rows: Sequence[Row]) -> list[str]:
    """One sentence for each curve of more than one point, and what the choice of a point is."""
    found = []
    curves = sorted((row for row in rows if row.point), key=_curve)
    several = len({row["parties"] for row in curves if "data.parties" not in row.point}) > 1
    for _, group in groupby(curves, key=_curve):
        curve = list(group)
        if len(curve) > 1:
            found.append(_best(curve, several=several))
    return [*found, _WARNING] if found else []


def _curve(row: Row) -> tuple[str, str, int]:
    """Rows of one curve differ in their point alone."""
    parties = 0 if "data.parties" in row.point else int(row["parties"])
    return row.label, row.budget, parties


def _best(curve: Sequence[Row], *, several: bool) -> str:
    label, epsilon, parties = _curve(curve[0])
    where = [f"ε = {epsilon}"] if epsilon else []
    where += [parties_in_words(parties)] if several and parties else []
    best = max(curve, key=lambda row: row.interval.mean)
    others = [(row, paired_difference(row.values, best.values)) for row in curve if row is not best]
    lower = [(row, gap) for row, gap in others if below(gap, 0)]
    undecided = [row for row, gap in others if not below(gap, 0)]
    parts = [f"is highest at {in_words(best.point)} ({percent(best)})"]
    if lower:
        row, gap = min(lower, key=lambda pair: pair[1].mean)
        which = "all others" if not undecided else _named([row for row, _ in lower])
        parts.append(f"above {which} (most, {in_words(row.point)}, by {points(-gap)})")
    if undecided:
        which = "the others" if not lower and len(undecided) > 1 else _named(undecided)
        parts.append(f"undecided against {which}")
    at = f" at {', '.join(where)}" if where else ""
    return f"{label}{at} {', '.join(parts)}."


def _named(rows: Sequence[Row]) -> str:
    return "; ".join(in_words(row.point) for row in rows)
