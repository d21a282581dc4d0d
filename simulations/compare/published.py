"""Findings against published numbers: is the order of a paper ours, are we above its accuracies?"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.words import above, below, budgets, points

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.compare.study import Study


def against_paper(study: Study, published: Mapping[str, float]) -> Iterator[str]:
    """Whether strategies stand in the order that a paper reports."""
    known = [setting for setting in study.settings if setting.label in published]
    agreed = opposed = pairs = 0
    for worse, better in product(known, known):
        if published[worse.label] > published[better.label]:
            gains = better.minus(worse).values()
            pairs += len(gains)
            agreed += sum(above(gain, 0) for gain in gains)
            opposed += sum(below(gain, 0) for gain in gains)
    if pairs:
        yield (
            f"Of {pairs} pairs with different published losses, {agreed} are in the published "
            f"order, {opposed} in the opposite one, {pairs - agreed - opposed} are "
            "undecided."
        )


def against_curves(study: Study, curves: Mapping[str, Mapping[float, float]]) -> Iterator[str]:
    """Whether accuracies are above published ones: a setting's own, and the best of all."""
    own = {setting.label: setting.rows for setting in study.settings}
    for label, curve in curves.items():
        rows = own.get(label) or _best(study)
        who = label if label in own else "the best strategy at each ε"
        gaps = {
            e: replace(row.interval, mean=row.interval.mean - curve[e])
            for e, row in rows.items()
            if e in curve
        }
        higher = [e for e, gap in gaps.items() if above(gap, 0)]
        lower = [e for e, gap in gaps.items() if below(gap, 0)]
        parts = [
            f"{side} at {budgets(chosen, gaps)}"
            for side, chosen in (("above", higher), ("below", lower))
            if chosen
        ]
        if gaps:
            mean = 100 * sum(gap.mean for gap in gaps.values()) / len(gaps)
            least = min(gaps, key=lambda e: gaps[e].mean)
            yield (
                f"Against the published accuracy of {label}, {who} is "
                f"{' and '.join(parts) or 'undecided at every ε'}; on average over ε by "
                f"{mean:+.1f} points, least at ε = {least:g} ({points(gaps[least])})."
            )


def _best(study: Study) -> dict[float, Row]:
    """The row of the highest mean, budget by budget."""
    best: dict[float, Row] = {}
    for setting in study.settings:
        for epsilon, row in setting.rows.items():
            if epsilon not in best or row.interval.mean > best[epsilon].interval.mean:
                best[epsilon] = row
    return best
