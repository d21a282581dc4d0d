"""Exact second moments against numpy's XᵀX, in float64 and in float32, on one thread.

Run with ``python -m benchmarks.moments [--json]``. Times are the best of several, alternating, all
in this process. The goal is a ratio to numpy in float64, the precision that comes nearest to exact
integers; float32 is shown beside it. numpy's copies of the records are made before the clock runs.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedpriv.learning.moments import moment_sums

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((1_000_000, 100, 1), (1_000_000, 100, 1000), (100_000, 785, 10))
GOAL = 1.5
REPEATS = 5


def timed(call: Callable[[], object]) -> float:
    """Seconds."""
    start = perf_counter()
    call()
    return perf_counter() - start


def measure(records: int, size: int, parties: int) -> dict[str, float]:
    """Seconds of each, and the ratios."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((records, size), dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True) * np.float32(1.000001)
    wide, offsets = X.astype(np.float64), np.linspace(0, records, parties + 1).astype(np.int64)
    calls: dict[str, Callable[[], object]] = {
        "fedpriv": lambda: moment_sums(X, offsets, radius=1.0),
        "numpy_float64": lambda: wide.T @ wide,
        "numpy_float32": lambda: X.T @ X,
    }
    best = dict.fromkeys(calls, np.inf)
    for _ in range(REPEATS):
        for name, call in calls.items():
            best[name] = min(best[name], timed(call))
    return {
        "records": records,
        "coordinates": size,
        "parties": parties,
        **best,
        "ratio": best["fedpriv"] / best["numpy_float64"],
        "ratio_float32": best["fedpriv"] / best["numpy_float32"],
    }


def main(arguments: list[str]) -> int:
    """Measure, print, and tell whether the goal was reached."""
    with threadpool_limits(limits=1):
        rows = [measure(*shape) for shape in SHAPES]
    if "--json" in arguments:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(
                f"{row['records']:,} × {row['coordinates']}, {row['parties']:,} parties: "
                f"{row['fedpriv'] * 1e3:.0f} ms, {row['ratio']:.2f} × numpy in float64, "
                f"{row['ratio_float32']:.2f} × in float32"
            )
    return int(rows[0]["ratio"] > GOAL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
