"""Kaplan-Meier curves from noisy counts of exits: by interval and group, events and censored.

Ŝ(t_k) = Π_{i ≤ k} (1 − clip(d̃_i/(r_i − c̃_i/2), 0, 1)), falling by construction; half of those who
are censored in an interval count as at risk in it (the actuarial estimate). r_k, how many are at
risk, is N less all exits before, where N is public and there are no groups; else the sum of all
later exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.simulations.describe.numbers import counted, refusal
from fedpriv.simulations.describe.released import Noisy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.simulations.describe.released import Released
    from fedpriv.strategies.common.describing import SurvivalOptions

    Numbers = NDArray[np.float64]

RISK_DEVIATIONS = 5.0
"""A curve ends where fewer are at risk than so many deviations, σ√(2k), of their noise."""

_DRAWS = 400


def survival(released: Released, options: SurvivalOptions | None) -> dict[str, Any] | None:
    """A curve per group; None if none was asked for."""
    found = released.find("survival")
    if found is None or options is None:
        return None
    block, numbers, stddev = found
    intervals, groups = block.cells
    cells = numbers[:-1].reshape(groups, intervals, 2)  # censored, event
    facts = released.columns[block.columns[0]]
    names = released.columns[block.columns[2]].values if groups > 1 else ("all",)
    incomplete = Noisy(value=float(numbers[-1]), stddev=stddev)
    known = released.records - incomplete.value if groups == 1 and released.records else None
    return {
        "time": facts.name,
        "by": options.by,
        "edges": [facts.low, *options.edges, facts.high],
        "incomplete": counted(incomplete),
        "noise": stddev,
        "curves": {
            name: _curve(exits, stddev, known) for name, exits in zip(names, cells, strict=True)
        },
    }


def at_risk(exits: Numbers, known: float | None) -> Numbers:
    """How many are at risk as each interval begins."""
    each = exits.sum(axis=-1)
    if known is not None:
        return np.asarray(known - np.concatenate([[0.0], np.cumsum(each)[:-1]]))
    return np.asarray(np.cumsum(each[::-1])[::-1])


def risk_stddev(intervals: int, stddev: float, *, known: bool) -> Numbers:
    """The deviation that `at_risk` is held against: σ√(2k), of the 2k cells it rests on."""
    cells = np.arange(1, intervals + 1)
    return np.asarray(stddev * np.sqrt(2.0 * (cells if known else cells[::-1])))


def product_limit(exits: Numbers, known: float | None) -> Numbers:
    """Ŝ at the end of each interval."""
    censored, events = exits[:, 0], exits[:, 1]
    exposed = at_risk(exits, known) - censored / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        hazard = np.where(exposed > 0, np.clip(events / exposed, 0.0, 1.0), 1.0)
    return np.asarray(np.cumprod(1 - np.nan_to_num(hazard, nan=1.0)))


def _curve(exits: Numbers, stddev: float, known: float | None) -> dict[str, Any]:
    risk = at_risk(exits, known)
    least = RISK_DEVIATIONS * risk_stddev(len(exits), stddev, known=known is not None)
    short = np.flatnonzero((risk < least) | (risk <= 0))
    told = int(short[0]) if len(short) else len(exits)
    found: dict[str, Any] = {
        "at_risk": np.maximum(risk[:told], 0.0).tolist(),
        "events": np.maximum(exits[:told, 1], 0.0).tolist(),
        "censored": np.maximum(exits[:told, 0], 0.0).tolist(),
        "survival": product_limit(exits, known)[:told].tolist(),
        "survival_error": _errors(exits, stddev, known)[:told].tolist(),
    }
    if told < len(exits):
        what = f"the curve from interval {told + 1} on (who is at risk)"
        found["refused"] = [refusal(what, float(risk[told]), float(least[told]))]
    return found


def _errors(exits: Numbers, stddev: float, known: float | None) -> Numbers:
    """The deviation of the curve over the noise, by drawing it again on what was released."""
    rng = np.random.default_rng(0)  # no secret: it is added to what is public already
    drawn = [
        product_limit(
            exits + rng.normal(scale=stddev, size=exits.shape),
            None if known is None else known + rng.normal(scale=stddev),
        )
        for _ in range(_DRAWS)
    ]
    return np.asarray(np.std(drawn, axis=0))
