"""Bounds that a noisy histogram of magnitudes speaks for, as lines of a schema.

Cells below `CELL_DEVIATIONS` deviations of the noise are taken for empty: of all cells together one
that is empty is taken for more with a probability of 0.4 %. What lies outside is clamped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._toml import to_toml
from fedpriv.data.tables.magnitudes import EDGES
from fedpriv.simulations.describe.numbers import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.simulations.describe.released import Released

CELL_DEVIATIONS = 4.0
_NEAR_ZERO = 32  # a bound that is so many times smaller than the other is zero for all that is seen


def bounds_column(released: Released, column: int) -> dict[str, Any]:
    """Suggested bounds of a column, and the noisy histogram that they come from."""
    found = released.find("histogram", column)
    if found is None:
        raise ValueError("a histogram of magnitudes must be asked for.")
    _, counts, stddev = found
    cells = counts[: len(EDGES) + 1]
    told: dict[str, Any] = {
        "kind": "bounds",
        "edges": list(EDGES),
        "noisy": counts.tolist(),
        "noise": stddev,
        "missing": {"count": max(float(counts[-1]), 0.0), "noise": stddev},
    }
    least = CELL_DEVIATIONS * stddev
    filled = np.flatnonzero((cells > least) & (cells > 0))
    if not len(filled):
        return {**told, "refused": [refusal("every cell", float(cells.max()), least)]}
    ends = (-np.inf, *EDGES, np.inf)
    low, high = float(ends[filled[0]]), float(ends[filled[-1] + 1])
    middle = len(EDGES) // 2  # the cell of zero
    if filled[0] == middle or 0 < low < high / _NEAR_ZERO:
        low = 0.0
    if (filled[-1] == middle and low < 0) or 0 > high > low / _NEAR_ZERO:
        high = 0.0
    if not np.isfinite(low) or not np.isfinite(high):
        return {
            **told,
            "refused": [f"numbers beyond {EDGES[-1]:g} have no bounds here: change their unit."],
        }
    return {**told, "min": low, "max": high}


def schema_lines(name: str, column: Mapping[str, Any]) -> str:
    """The table of a schema for a column whose bounds were suggested."""
    values = {
        "kind": "number",
        "min": column["min"],
        "max": column["max"],
        "out_of_range": "clamp",
    }
    return to_toml({"columns": {name: values}}).strip()
