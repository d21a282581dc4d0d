"""Whom a model serves: better than predicting the majority class, and all parties alike?"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.intervals import paired_difference
from fedpriv.simulations.compare.words import above, below, budgets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.simulations.compare.intervals import Interval
    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.compare.study import Study

_WORST, _GAP, _MAJORITY = "worst_party", "fairness_gap", "majority_accuracy"


def against_guessing(study: Study) -> Iterator[str]:
    """Which settings are worse, or no better, than always predicting the majority class."""
    guess = next((setting.any.mean(_MAJORITY) for setting in study.settings), None)
    if guess is None:
        return
    gains = {
        setting.label: {
            e: paired_difference(row.values, row.column(_MAJORITY))
            for e, row in setting.rows.items()
        }
        for setting in study.settings
    }
    majority = f"than always predicting the majority class ({100 * guess:.1f} %)"
    worse = _where(gains, below)
    if worse:
        yield f"Worse {majority}: {worse}."
    same = _where(gains, _undecided)
    if same:
        yield f"No better {majority}, as far as the seeds can tell: {same}."


def fairness(study: Study) -> Iterator[str]:
    """How the worst-served party fares, how far from the best-served, and what noise adds to that.

    A gap that shrinks is not mentioned: a model that is bad for everybody has a small one.
    """
    reference = study.frame.get("non-private")
    if reference is None:
        yield from _without_reference(study)
        return
    worst, gap = reference.mean(_WORST), reference.mean(_GAP)
    if worst is None or gap is None:
        return
    text = (
        f"With non-private averaging the worst-served party has {100 * worst:.1f} %, "
        f"{100 * gap:.1f} points less than the best-served one"
    )
    less = _where(_differences(study, reference, _WORST), below)
    wider = _where(_differences(study, reference, _GAP), above)
    text += f"; the worst-served has less with: {less}" if less else ""
    text += f"; the gap is wider with: {wider}" if wider else ""
    yield f"{text}."


def _differences(study: Study, reference: Row, key: str) -> dict[str, dict[float, Interval]]:
    """Of every setting, seed by seed, how far a number is from that of the reference."""
    known = reference.column(key)
    return {
        setting.label: {
            e: paired_difference(row.column(key), known)
            for e, row in setting.rows.items()
            if len(row.column(key)) == len(known)
        }
        for setting in study.settings
    }


def _without_reference(study: Study) -> Iterator[str]:
    """Where nothing is without noise: the numbers themselves, at the largest budget or without."""
    largest = (list(setting.rows.values())[-1] for setting in study.settings)
    twins = (row for own in study.twins.values() for row in own.values())
    told = [text for row in (*largest, *twins) if (text := _served(row))]
    if told:
        yield f"The worst-served party has {'; '.join(told)}."


def _served(row: Row) -> str:
    worst, gap = row.mean(_WORST), row.mean(_GAP)
    if worst is None or gap is None:
        return ""
    where = "without noise" if row.epsilon_budget == inf else f"ε = {row.epsilon_budget:g}"
    where += "" if row.twin_of is None else f", as at ε = {row.twin_of:g}"
    less = f"{100 * gap:.1f} points less than the best-served"
    return f"{100 * worst:.1f} % with {row.label} ({where}; {less})"


def _where(
    intervals: dict[str, dict[float, Interval]], decided: Callable[[Interval, float], bool]
) -> str:
    """The settings, and their budgets, for which something is decided."""
    found = {
        label: [e for e, i in own.items() if decided(i, 0)] for label, own in intervals.items()
    }
    named = (f"{label} ({budgets(e, intervals[label])})" for label, e in found.items() if e)
    return "; ".join(named)


def _undecided(interval: Interval, bound: float) -> bool:
    return not above(interval, bound) and not below(interval, bound)
