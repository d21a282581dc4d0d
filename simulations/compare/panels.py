"""Panels of a comparison: which rows are drawn together, and against what.

Against ε, one curve for each strategy; or, in a comparison over a key, against the values of that
key, one curve for each strategy, budget and value of a second key.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.axes import swept_keys, text_of
from fedpriv.simulations.counted import parties_in_words
from fedpriv.simulations.experiment.budgets import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.experiment.file import Experiment

_WIDE = 8.0  # values that range over more than this factor are spaced logarithmically


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot: its rows, and what they are drawn against.

    Attributes:
        rows: In the order of the table.
        title: For a picture.
        name: For a file.
        words: For the heading of a plot on a terminal.
        key: The key that is drawn against; None for ε.
        names: What the legend calls each row; the rows of one name are a curve.
        ticks: Where each row stands, as text; None for one that is the same everywhere, a line.
        places: By tick, a number.
        logarithmic: Whether places are spaced by their logarithms.
    """

    rows: tuple[Row, ...]
    title: str
    name: str
    words: str
    key: str | None
    names: tuple[str, ...]
    ticks: tuple[str | None, ...]
    places: dict[str, float]
    logarithmic: bool

    @property
    def against(self) -> str:
        """What the horizontal axis is called."""
        return self.key or "ε"


def panels(rows: Sequence[Row], experiment: Experiment) -> list[Panel]:
    """One panel for each number of parties; one in all if that is what is compared over."""
    keys = swept_keys(experiment)
    delta = f"δ = {experiment.privacy.delta:g}"
    if "data.parties" in keys:
        title = f"{experiment.data.title}, {delta}"
        return [panel(rows, keys, title=title, name="all-parties")]
    made = []
    for parties in sorted({int(row["parties"]) for row in rows}):
        chosen = [row for row in rows if row["parties"] == parties]
        title = f"{experiment.data.title}, {parties_in_words(parties)}, {delta}"
        name, words = f"{parties}-parties", f", {parties_in_words(parties)}"
        made.append(panel(chosen, keys, title=title, name=name, words=words))
    return made


def panel(
    rows: Sequence[Row],
    keys: tuple[str, ...] = (),
    *,
    title: str = "",
    name: str = "",
    words: str = "",
) -> Panel:
    """All rows in one panel: against ε, or against the first of the ``keys``."""
    if not keys:
        # A twin stands where the run is whose settings it has, on a curve of its own.
        budgets = [row.twin_of or row.epsilon_budget for row in rows]
        places, logarithmic = _budget_places(budgets), True
        ticks = tuple(None if e is None else shown(e) for e in budgets)
        names = tuple(
            row.label if row.twin_of is None else f"{row.label}, no noise" for row in rows
        )
    else:
        values = [row.point[keys[0]] for row in rows if keys[0] in row.point]
        places, logarithmic = _value_places(values)
        ticks = tuple(text_of(row.point[keys[0]]) if keys[0] in row.point else None for row in rows)
        several = len({row.budget for row in rows} - {""}) > 1
        names = tuple(_name(row, keys[1:], several=several) for row in rows)
    return Panel(
        rows=tuple(rows),
        title=title,
        name=name,
        words=words,
        key=keys[0] if keys else None,
        names=names,
        ticks=ticks,
        places=places,
        logarithmic=logarithmic,
    )


def _name(row: Row, others: tuple[str, ...], *, several: bool) -> str:
    parts = [row.label]
    if several and row.epsilon_budget is not None:
        parts.append(f"ε = {row.budget}")
    parts += [f"{key} = {text_of(row.point[key])}" for key in others if key in row.point]
    return ", ".join(parts)


def _budget_places(budgets: Sequence[float | None]) -> dict[str, float]:
    """Where each budget stands on a logarithmic axis: ∞ half a decade after the last number."""
    known = sorted({epsilon for epsilon in budgets if epsilon is not None})
    largest = max((epsilon for epsilon in known if epsilon < inf), default=1.0)
    return {shown(epsilon): min(epsilon, largest * sqrt(10)) for epsilon in known}


def _value_places(values: Sequence[object]) -> tuple[dict[str, float], bool]:
    """By value, where it stands: numbers by their size, all else one after another."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        ticks = dict.fromkeys(map(text_of, values))
        return {tick: float(place) for place, tick in enumerate(ticks, start=1)}, False
    wide = min(numbers, default=0) > 0 and max(numbers) >= _WIDE * min(numbers)
    return {text_of(value): float(value) for value in sorted(set(numbers))}, wide
