"""The headline of a comparison: the least budget at which somebody loses next to nothing.

It is the finding chosen to come first: which strategy the seeds show to be within a point of the
model without noise, at the smallest ε. Rows without the privacy of the experiment never appear in
it.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fedpriv.privacy.budget import within
from fedpriv.simulations.compare.study import Study
from fedpriv.simulations.compare.words import CLOSE, above, change, percent, points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.compare.intervals import Interval
    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.experiment.file import Experiment


def headline(rows: Sequence[Row], experiment: Experiment, findings: Sequence[str]) -> str:
    """One sentence that a page can begin with; the first finding where there is no better one."""
    several = len(rows[0].results) > 1
    accuracy = all(row.metric == "accuracy" for row in rows)
    if several and accuracy and not any(row.point for row in rows):
        told = [_of_group(tuple(group), experiment) for _, group in _by_parties(rows)]
        if told and told[-1]:
            counts = {int(row["parties"]) for row in rows}
            return f"With {max(counts)} parties: {told[-1]}" if len(counts) > 1 else told[-1]
    if findings:
        return findings[0]
    return "The seeds decide nothing that could be said in one sentence: see the table."


def _by_parties(rows: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    def parties(row: Row) -> int:
        return int(row["parties"])

    return [(m, list(group)) for m, group in groupby(sorted(rows, key=parties), key=parties)]


def _of_group(rows: tuple[Row, ...], experiment: Experiment) -> str:
    study = Study.of(rows)
    reference = study.frame.get("non-private")
    if reference is None:
        return ""
    gaps: dict[float, dict[str, Interval]] = {}
    for setting in study.settings:
        for epsilon, gap in setting.minus(reference).items():
            if _equally_private(setting.rows[epsilon], experiment):
                gaps.setdefault(epsilon, {})[setting.label] = gap
    if not gaps:
        return ""
    whom = f"non-private averaging ({percent(reference)})"
    for epsilon in sorted(gaps):
        near = {label: gap for label, gap in gaps[epsilon].items() if above(gap, -CLOSE)}
        if near:
            best = max(near, key=lambda label: near[label].mean)
            more = len(near) - 1
            others = f"; so {'does' if more == 1 else 'do'} {more} more" if more else ""
            return (
                f"The smallest budget at which a strategy is shown to stay within 1 point of "
                f"{whom} is ε = {epsilon:g}: {best} does, and {change(near[best])}{others}."
            )
    most = max(gaps)
    best = max(gaps[most], key=lambda label: gaps[most][label].mean)
    return (
        f"No strategy is shown to stay within 1 point of {whom} at any ε up to {most:g}; there "
        f"{best} comes nearest (it loses {points(-gaps[most][best])})."
    )


def _equally_private(row: Row, experiment: Experiment) -> bool:
    """Whether a row keeps the budget, for the unit and adjacency of the experiment."""
    spent, privacy = row["epsilon"], experiment.privacy
    return (
        spent is not None
        and row.epsilon_budget is not None
        and within(spent, row.epsilon_budget)
        and (row["unit"], row["adjacency"]) == (privacy.unit, privacy.adjacency)
    )
