"""Two-way tables with odds ratios, covariances and correlations, from released sums."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.simulations.describe.numbers import VARIANCE_DEVIATIONS, counted, refusal
from fedpriv.simulations.describe.released import products_of
from fedpriv.simulations.describe.trees import NORMAL_95

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.privacy.planning.statistics.statistics_blocks import Block
    from fedpriv.simulations.describe.released import Products, Released

    Numbers = NDArray[np.float64]

CELL_DEVIATIONS = 5.0
"""An odds ratio is told if no cell is below so many deviations of the noise."""

_DRAWS = 400  # of noise, for standard errors


def two_way(released: Released, block: Block, counts: Numbers, stddev: float) -> dict[str, Any]:
    """A two-way table; of two by two cells the log odds ratio, too.

    Its standard error is that of sampling and of the noise together: s.e.² = Σ 1/ñ + σ²·Σ 1/ñ².
    """
    rows, columns = (released.columns[index] for index in block.columns)
    found: dict[str, Any] = {
        "rows": rows.name,
        "row_values": list(rows.values),
        "columns": columns.name,
        "column_values": list(columns.values),
        "counts": np.maximum(counts, 0.0).reshape(block.cells).tolist(),
        "noisy": counts.reshape(block.cells).tolist(),
        "noise": stddev,
    }
    if block.cells != (2, 2):
        return found
    smallest = float(counts.min())
    if smallest < CELL_DEVIATIONS * stddev or smallest <= 0:
        why = refusal("the odds ratio (a cell)", smallest, CELL_DEVIATIONS * stddev)
        return {**found, "refused": [why]}
    a, b, c, d = map(float, counts)
    ratio = log(a * d / (b * c))
    error = sqrt(float((1 / counts).sum() + stddev**2 * (1 / counts**2).sum()))
    ends = [exp(ratio + sign * NORMAL_95 * error) for sign in (-1, 1)]
    return {
        **found,
        "log_odds_ratio": ratio,
        "log_odds_ratio_error": error,
        "odds_ratio": exp(ratio),
        "odds_ratio_low": ends[0],
        "odds_ratio_high": ends[1],
    }


def correlations(released: Released) -> dict[str, Any] | None:
    """Means, covariances and correlations of complete records; None if they were not asked for."""
    found = released.find("covariance")
    if found is None:
        return None
    block, numbers, stddev = found
    products = products_of(block, numbers, stddev)
    facts = [released.columns[index] for index in block.columns]
    half = np.array([(each.high - each.low) / 2 for each in facts])
    middle = np.array([(each.high + each.low) / 2 for each in facts])
    told: dict[str, Any] = {
        "columns": [each.name for each in facts],
        "complete": counted(products.count),
    }
    n = products.count.value
    least = VARIANCE_DEVIATIONS * products.count.stddev
    if n <= 1 or n < least:
        return {**told, "refused": [refusal("the number of complete records", n, least)]}
    means, covariance = _covariance(products)
    told["mean"] = (middle + half * means).tolist()
    errors = np.hypot(products.sum_stddev, means * products.count.stddev)
    told["mean_error"] = (half * errors / n).tolist()
    threshold = VARIANCE_DEVIATIONS * products.stddev / n
    hidden = np.diag(products.products) / n - means**2 < threshold
    refused = [
        refusal(f"the variance of {each.name}", float(h**2 * v), float(h**2 * threshold))
        for each, h, v, no in zip(facts, half, np.diag(covariance), hidden, strict=True)
        if no
    ]
    if refused:
        return {**told, "refused": refused}
    scale = np.outer(half, half)
    covariance_error, correlation_error = _errors(products)
    told |= {
        "covariance": (covariance * scale).tolist(),
        "covariance_error": (covariance_error * scale).tolist(),
        "correlation": _correlation(covariance).tolist(),
        "correlation_error": correlation_error.tolist(),
    }
    return told


def _covariance(products: Products) -> tuple[Numbers, Numbers]:
    """Means in [−1, 1], and the covariance with its eigenvalues clamped at 0."""
    n = products.count.value
    means = np.clip(products.sums / n, -1.0, 1.0)
    raw = (products.products - n * np.outer(means, means)) / (n - 1)
    values, vectors = np.linalg.eigh(raw)
    return means, (vectors * np.maximum(values, 0.0)) @ vectors.T


def _correlation(covariance: Numbers) -> Numbers:
    spread = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.nan_to_num(covariance / np.outer(spread, spread))
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def _errors(products: Products) -> tuple[Numbers, Numbers]:
    """Deviations of covariances and correlations, by drawing noise again on what was released."""
    from dataclasses import replace

    d = len(products.sums)
    rng = np.random.default_rng(0)  # no secret: it is added to what is public already
    covariances, drawn = [], []
    for _ in range(_DRAWS):
        noise = np.triu(rng.normal(scale=products.stddev / sqrt(2.0), size=(d, d)), 1)
        noise += noise.T + np.diag(rng.normal(scale=products.stddev, size=d))
        count = products.count.value + rng.normal(scale=products.count.stddev)
        again = replace(
            products,
            count=replace(products.count, value=max(count, 2.0)),
            sums=products.sums + rng.normal(scale=products.sum_stddev, size=d),
            products=products.products + noise,
        )
        covariances.append(_covariance(again)[1])
        drawn.append(_correlation(covariances[-1]))
    return np.std(covariances, axis=0), np.std(drawn, axis=0)
