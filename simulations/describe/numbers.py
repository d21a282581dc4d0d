"""Mean, variance, histogram and quantiles of one column, from released sums."""

from __future__ import annotations

from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.simulations.describe.trees import Ranks, consistent_leaves, rank_stddev

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fedpriv.data.tables.columns import ColumnFacts
    from fedpriv.simulations.describe.released import Noisy, Released

    Numbers = NDArray[np.float64]

BARS = 16
VARIANCE_DEVIATIONS = 3.0
"""A variance below so many deviations of its noise is not told."""


def refusal(what: str, found: float, least: float) -> str:
    """Why a number is not told, and what would do."""
    times = least / found if found > 0 else float("inf")
    more = f"about {times:.1f} times" if times < 100 else "more than 100 times"
    return (
        f"{what} is hidden by the noise: it would have to be {least:.3g}, and {found:.3g} is left "
        f"of it. It takes {more} the epsilon, or as many times the records."
    )


def to_simplex(counts: Numbers, total: float) -> Numbers:
    """The nearest counts that are not negative and add up to ``total``, in L2."""
    total = max(total, 0.0)
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(falling > excess).max(initial=0))
    return np.asarray(np.maximum(counts - excess[last], 0.0))


def number_column(released: Released, column: int, chances: Sequence[float]) -> dict[str, Any]:
    """All that was released of a column of numbers; in the unit of the table."""
    facts = released.columns[column]
    missing, present = released.missing(column), released.present(column)
    found: dict[str, Any] = {"kind": "number", "min": facts.low, "max": facts.high}
    if released.find("missing", column) is not None:
        found["missing"] = counted(missing)
    sums = released.moments(column)
    if sums is not None:
        found |= mean_and_variance(facts, *sums, present)
    found |= _histogram(released, column)
    found |= _quantiles(released, column, chances)
    return found


def counted(count: Noisy) -> dict[str, float]:
    """A count that is not negative, and the deviation of its noise."""
    return {"count": max(count.value, 0.0), "noise": count.stddev}


def mean_and_variance(
    facts: ColumnFacts, first: Noisy, second: Noisy, present: Noisy
) -> dict[str, Any]:
    """Mean and variance with the standard errors of the noise, by the delta method.

    A mean lies in the range; a variance is told from `VARIANCE_DEVIATIONS` deviations on.
    """
    half, middle = (facts.high - facts.low) / 2, (facts.high + facts.low) / 2
    n = present.value
    if n <= 1 or n < VARIANCE_DEVIATIONS * present.stddev:
        why = refusal("the number of values", n, VARIANCE_DEVIATIONS * present.stddev)
        return {"refused": [why]}
    mean = min(max(first.value / n, -1.0), 1.0)
    mean_error = hypot(first.stddev, mean * present.stddev) / n
    found: dict[str, Any] = {"mean": middle + half * mean, "mean_error": half * mean_error}
    square = second.value / n
    spread = square - mean**2
    least = VARIANCE_DEVIATIONS * second.stddev / n
    if spread < least:
        unit = half**2
        return {**found, "refused": [refusal("the variance", unit * spread, unit * least)]}
    error = sqrt(
        second.stddev**2
        + (2 * mean * first.stddev) ** 2
        + ((square - 2 * mean**2) * present.stddev) ** 2
    )
    variance = half**2 * spread * n / (n - 1)
    return {
        **found,
        "variance": variance,
        "variance_error": half**2 * error / n,
        "stddev": sqrt(variance),
    }


def _histogram(released: Released, column: int) -> dict[str, Any]:
    """The histogram with edges of its own, if one was asked for."""
    found = released.find("histogram", column)
    if found is None:
        return {}
    block, counts, stddev = found
    facts = released.columns[column]
    half, middle = (facts.high - facts.low) / 2, (facts.high + facts.low) / 2
    inner = [middle + half * edge for edge in block.edges]
    return {
        "histogram": {
            "edges": [facts.low, *inner, facts.high],
            "counts": to_simplex(counts, released.present(column).value).tolist(),
            "noisy": counts.tolist(),
            "noise": stddev,
        }
    }


def _quantiles(released: Released, column: int, chances: Sequence[float]) -> dict[str, Any]:
    """Quantiles from the tree, and a histogram of it if there is no other."""
    found = released.find("tree", column)
    if found is None:
        return {}
    block, tree, stddev = found
    facts, present = released.columns[column], released.present(column)
    variance, apart = stddev**2, present.stddev**2
    leaves = consistent_leaves(tree, variance=variance, root=present.value, root_variance=apart)
    ranks = Ranks(
        leaves,
        total=float(leaves.sum()),
        stddev=rank_stddev(block.levels, variance=variance, root_variance=apart),
        low=facts.low,
        high=facts.high,
    )
    told = [dict(zip(("value", "low", "high"), ranks.quantile(q), strict=True)) for q in chances]
    values = {
        "quantiles": [{"chance": q, **one} for q, one in zip(chances, told, strict=True)],
        "rank_noise": float(ranks.stddev.max()),
    }
    if released.find("histogram", column) is None:
        edges, counts = ranks.histogram(BARS)
        values["histogram"] = {"edges": edges.tolist(), "counts": counts.tolist()}
    return values


def category_column(released: Released, column: int) -> dict[str, Any]:
    """All that was released of a column of categories."""
    found = released.find("histogram", column)
    if found is None:
        return {}
    _, counts, stddev = found
    fitted = to_simplex(counts, released.total.value)
    names = released.columns[column].values
    return {
        "kind": "category",
        "values": list(names),
        "counts": fitted[: len(names)].tolist(),
        "other": float(fitted[-2]),
        "missing": {"count": float(fitted[-1]), "noise": stddev},
        "noisy": counts.tolist(),
        "noise": stddev,
    }
