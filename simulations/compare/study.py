"""A study: the rows of one number of parties, sorted for the findings."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from fedpriv.simulations.compare.intervals import Interval, paired_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.simulations.compare.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of one strategy with noise.

    Attributes:
        label: What tables call it.
        rows: By budget, in ascending order.
    """

    label: str
    rows: dict[float, Row]

    @property
    def any(self) -> Row:
        """A row, for what all budgets share."""
        return next(iter(self.rows.values()))

    def minus(self, other: Setting | Row) -> dict[float, Interval]:
        """This accuracy minus the other, budget by budget."""
        if isinstance(other, Setting):
            pairs = {e: (row, other.rows[e]) for e, row in self.rows.items() if e in other.rows}
        else:
            pairs = {e: (row, other) for e, row in self.rows.items()}
        return {e: paired_difference(a.values, b.values) for e, (a, b) in pairs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The rows of one number of parties.

    Attributes:
        frame: By strategy, those that have no noise at any budget.
        settings: Those that have, each with its budgets.
        twins: By label, the same without their noise, where ε = ∞ is among the budgets: by the
            budget whose settings they have, or one for all budgets, under None.
    """

    frame: dict[str, Row]
    settings: tuple[Setting, ...]
    twins: dict[str, dict[float | None, Row]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Study:
        """Sort rows into those without noise and, by label and budget, those with it."""
        noisy: dict[str, dict[float, Row]] = {}
        twins: dict[str, dict[float | None, Row]] = {}
        for row in sorted(rows, key=lambda row: row.epsilon_budget or 0.0):
            if row.epsilon_budget == inf:
                twins.setdefault(row.label, {})[row.twin_of] = row
            elif row.epsilon_budget is not None:
                noisy.setdefault(row.label, {})[row.epsilon_budget] = row
        return cls(
            frame={row["strategy"]: row for row in rows if row.epsilon_budget is None},
            settings=tuple(Setting(label=label, rows=own) for label, own in noisy.items()),
            twins=twins,
        )
