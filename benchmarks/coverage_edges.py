"""Coverage at the edge: how often a private interval is given *and* wrong, in designs made for it.

    python -m benchmarks coverage_edges

Where `benchmarks.coverage` draws coefficients in any direction, here the whole effect lies along
the direction that the records say least about, so that the noise of the released matrix moves the
estimate most, and the number of records runs through those at which the rules of
`fedpriv.inference.estimate` begin to let intervals through. *Plain* features are uniform; a
*narrow* one fills a tenth of its range; *alike* are two with a correlation of 0.97; *rare* is an
indicator of two records in a hundred. Status 1 if an interval is given and wrong in more than 8 %
of the repetitions anywhere: one coefficient's share has a standard error of 0.6 % at 2,000
repetitions, and the table shows the largest of many.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks.coverage import ROWS, Kind, linear_runs, logistic_runs, scaled
from fedpriv.privacy.adjacency import Adjacency

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

Shape = Literal["plain", "narrow", "alike", "rare"]
SHAPES: tuple[Shape, ...] = ("plain", "narrow", "alike", "rare")
DIMENSIONS = (2, 3, 5, 15)
RECORDS = tuple(round(500 * 1.5**k) // ROWS * ROWS for k in range(17))  # 500 to 328,000
MOST_WRONG, _INTERCEPT = 0.08, -2.0


def rows_of(shape: Shape, dimension: int, rng: np.random.Generator) -> Array:
    """Distinct rows in the unit ball, with an intercept last."""
    X = rng.uniform(-1, 1, (ROWS, dimension - 1))
    if shape == "narrow":
        X[:, 0] *= 0.1
    elif shape == "rare":
        X[:, 0] = rng.permutation(ROWS) < ROWS // 50
    elif shape == "alike" and dimension > 2:
        X[:, 1] = np.clip(X[:, 0] + 0.15 * rng.standard_normal(ROWS), -1, 1)
    found: Array = np.column_stack([X, np.ones(ROWS)]) / np.sqrt(dimension)
    return found


def weakest(kind: Kind, X: Array) -> Array:
    """An effect along the direction of least curvature; log-odds from below, too."""
    _, vectors = np.linalg.eigh(X.T @ X)
    theta = scaled(X, vectors[:, 0], most=0.5 if kind == "linear" else 3.0)
    if kind == "logistic":
        theta[-1] += _INTERCEPT / X[0, -1]
    return theta


def wrong(
    kind: Kind,
    shape: Shape,
    *,
    records: int,
    dimension: int,
    epsilon: float,
    repetitions: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """The share of repetitions in which the worst interval is given and wrong, or just given."""
    X = rows_of(shape, dimension, rng)
    run = linear_runs if kind == "linear" else logistic_runs
    held, _, _ = run(
        X, records, epsilon, Adjacency.ADD_REMOVE, repetitions, 1.0, rng, weakest(kind, X)
    )
    if not len(held):
        return 0.0, 0.0
    return float((~held).sum(axis=0).max()) / repetitions, len(held) / repetitions


def main() -> int:
    """Print the table of docs/inference.md: the largest share over the numbers of records."""
    rng, missed = np.random.default_rng(20261119), 0
    print("| | " + " | ".join(f"d = {d}" for d in DIMENSIONS) + " |")
    print("|---|" + "---|" * len(DIMENSIONS))
    for kind in ("linear", "logistic"):
        for shape in SHAPES:
            cells = []
            for d in DIMENSIONS:
                seen = [
                    (
                        *wrong(
                            kind,
                            shape,
                            records=records,
                            dimension=d,
                            epsilon=1.0,
                            repetitions=2000,
                            rng=rng,
                        ),
                        records,
                    )
                    for records in RECORDS
                ]
                most, given, records = max(seen)
                missed += most > MOST_WRONG
                text = f"{100 * most:.1f} % of {100 * given:.0f} % given, N = {records:,}"
                cells.append(text if given else "refused throughout")
            print(f"| {kind}, {shape} | {' | '.join(cells)} |", flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
