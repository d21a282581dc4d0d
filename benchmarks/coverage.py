"""Coverage of private intervals: how often 95 % intervals hold the true coefficient.

    python -m benchmarks coverage

Repetitions run together, and exactly. A linear model needs its second moments only: with a fixed
design and normal errors they have a known law. A logistic model has finitely many distinct rows,
each with a binomial number of ones. Noise is that of the planners, the estimates are those of
`fedpriv.inference`. Status 1 if a mean coverage leaves 93 to 97 % wherever intervals are given.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import expit, ndtri

from fedpriv import strategies
from fedpriv.federation.task import Task
from fedpriv.inference.estimate import LINEAR_RULE, LOGISTIC_RULE, MOST_PULL, Curvature
from fedpriv.inference.linear import linear_estimate
from fedpriv.inference.logistic import logistic_estimate
from fedpriv.inference.noisy_matrix import NoisyMatrix
from fedpriv.learning.losses import Logistic
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.planning.objective.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.randomness import RandomStream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]

Design = Literal["clean", "skewed"]
Kind = Literal["linear", "logistic"]
DELTA, ROWS, BLOCKS = 1e-6, 500, 10
Z = float(ndtri(0.975))
HEAD = "ignoring the noise, width"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What one setting showed.

    Attributes:
        given: In how many repetitions intervals were given.
        refused: The share in which they were refused.
        mean: Coverage over all coefficients; NaN if none was given.
        worst: Of the coefficient with the least.
        unaware: Mean coverage of the intervals that ignore the noise.
        width: Mean width, in widths of the interval without privacy.
    """

    given: int
    refused: float
    mean: float
    worst: float
    unaware: float
    width: float


def rows_of(design: Design, dimension: int, rng: np.random.Generator) -> Array:
    """Distinct rows with an intercept last, in the unit ball: uniform, or skewed and binary."""
    shape = (ROWS, dimension - 1)
    X = rng.uniform(-1, 1, shape)
    if design == "skewed":
        X = np.clip(rng.exponential(0.5, shape) - 1, -1, 1)
        X[:, ::3] = rng.random(X[:, ::3].shape) < 0.2  # indicators
    return np.column_stack([X, np.ones(ROWS)]) / sqrt(dimension)


def coverage(
    kind: Kind,
    *,
    records: int,
    dimension: int,
    epsilon: float,
    design: Design,
    repetitions: int,
    rng: np.random.Generator,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    told: float = 1.0,
) -> Coverage:
    """Simulate one setting; ``told`` is the share of its noise that the estimate is told of."""
    one = linear_runs if kind == "linear" else logistic_runs
    blocks = [
        one(
            rows_of(design, dimension, rng),
            records,
            epsilon,
            adjacency,
            repetitions // BLOCKS,
            told,
            rng,
        )
        for _ in range(BLOCKS)
    ]
    held, unaware, width = (np.concatenate([b[i] for b in blocks]) for i in range(3))
    done = BLOCKS * (repetitions // BLOCKS)
    if not len(held):
        return Coverage(
            given=0, refused=1.0, mean=np.nan, worst=np.nan, unaware=np.nan, width=np.nan
        )
    return Coverage(
        given=len(held),
        refused=1 - len(held) / done,
        mean=float(held.mean()),
        worst=float(held.mean(axis=0).min()),
        unaware=float(unaware.mean()),
        width=float(width.mean()),
    )


Block = tuple["NDArray[np.bool_]", "NDArray[np.bool_]", "Array"]


def scaled(X: Array, theta: Array, *, most: float) -> Array:
    """Coefficients in this direction, with which no score is beyond ``most``."""
    found: Array = theta * (most / np.abs(X @ theta).max())
    return found


def linear_runs(
    X: Array,
    records: int,
    epsilon: float,
    adjacency: Adjacency,
    runs: int,
    told: float,
    rng: np.random.Generator,
    theta: Array | None = None,
) -> Block:
    """Blocks of Σ zzᵀ, z = (x, y): normal errors of variance 0.04, labels within ±1 but for 5σ."""
    d, spread = X.shape[1], 0.1
    inner = X.T @ X * (records / ROWS)
    if theta is None:
        theta = scaled(X, rng.uniform(-1, 1, (d,)), most=0.5)
    root = np.linalg.cholesky(inner)
    pull = spread * rng.standard_normal((runs, d)) @ root.T  # Xᵀe
    along = (np.linalg.solve(root, pull.T) ** 2).sum(0)
    errors = along + spread**2 * rng.chisquare(records - d, runs)
    mixed = inner @ theta + pull
    moments = np.empty((runs, d + 1, d + 1))
    moments[:, :d, :d] = inner
    moments[:, :d, d] = moments[:, d, :d] = mixed
    moments[:, d, d] = theta @ inner @ theta + 2 * pull @ theta + errors
    sensitivity = 2 * (sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0)
    stddev = sensitivity / gdp_mu(epsilon=epsilon, delta=DELTA)
    noisy = moments + _noise(d + 1, runs, stddev, rng)
    released = NoisyMatrix.released(noisy, stddev=told * stddev)
    noisy = noisy[Curvature.of(released.take(range(d)), rule=LINEAR_RULE).enough]
    if not len(noisy):
        return _none(d)
    estimate = linear_estimate(NoisyMatrix.released(noisy, stddev=told * stddev), records=records)
    plain = linear_estimate(NoisyMatrix.released(noisy, stddev=0.0), records=records)
    public = linear_estimate(NoisyMatrix.released(moments, stddev=0.0), records=records)
    return _held(estimate.values, estimate.stderr, plain.stderr, public.stderr, theta)


def logistic_runs(
    X: Array,
    records: int,
    epsilon: float,
    adjacency: Adjacency,
    runs: int,
    told: float,
    rng: np.random.Generator,
    theta: Array | None = None,
) -> Block:
    """Minimisers with b, by Newton's method, and their Hessians with noise."""
    d, each = X.shape[1], records // ROWS
    if theta is None:
        theta = scaled(X, rng.uniform(-1, 1, (d,)), most=2.0)
    ones = rng.binomial(each, expit(X @ theta), (runs, ROWS)).astype(float)
    task, mechanism = _planned(records, d, epsilon, adjacency)
    ridge = records * (task.regulariser + mechanism.extra_regulariser)
    stddev = mechanism.linear.noise_stddev
    b = stddev * rng.standard_normal((runs, d))
    found = _minimise(X, each, ones, ridge, b)
    found = found + mechanism.output.noise_stddev * rng.standard_normal((runs, d))
    exact = _hessian(X, each, found)
    noisy = exact + _noise(d, runs, mechanism.hessian.stddev, rng)
    hessian = NoisyMatrix.released(noisy, stddev=told * mechanism.hessian.stddev)
    given = Curvature.of(hessian, rule=LOGISTIC_RULE).enough
    if not given.any():
        return _none(d)
    released: dict[str, Any] = {
        "ridge": ridge,
        "linear_stddev": told * stddev,
        "output_stddev": told * mechanism.output.noise_stddev,
    }
    given[given] = (
        logistic_estimate(found[given], _taken(hessian, given), **released).pull < MOST_PULL
    )
    if not given.any():
        return _none(d)
    hessian = _taken(hessian, given)
    estimate = logistic_estimate(found[given], hessian, **released)
    plain = np.sqrt(np.diagonal(np.linalg.inv(hessian.value), axis1=1, axis2=2))
    best = _minimise(X, each, ones, 1e-6, np.zeros((runs, d)))
    public = np.sqrt(np.diagonal(np.linalg.inv(_hessian(X, each, best)), axis1=1, axis2=2))
    return _held(estimate.values, estimate.stderr, plain, public, theta)


def _taken(matrix: NoisyMatrix, kept: NDArray[np.bool_]) -> NoisyMatrix:
    """Some of the repetitions."""
    return NoisyMatrix.released(matrix.value[kept], stddev=matrix.stddev)


def _planned(
    records: int, dimension: int, epsilon: float, adjacency: Adjacency
) -> tuple[Task, ObjectiveFitMechanism]:
    """The regulariser and the noise that the strategy would take for five parties."""
    strategy = strategies.build(
        "inference",
        task=Task(
            model=LinearModel(width=dimension),
            loss=Logistic(),
            regulariser=1e-3,
            feature_bound=1.0,
            sizes=(records // 5,) * 5,
        ),
        budget=Budget(epsilon=epsilon, delta=DELTA),
        adjacency=adjacency,
        options={},
        noise=lambda _round: RandomStream.from_os(),
        run="coverage",
    )
    mechanism = None if strategy.plan is None else strategy.plan.mechanisms[0]
    if not isinstance(mechanism, ObjectiveFitMechanism):
        raise TypeError("the plan must be that of a logistic fit.")
    return strategy.task, mechanism


def _minimise(X: Array, each: int, ones: Array, ridge: float, b: Array) -> Array:
    """Newton's method from zero, for all repetitions at once; steps are halved while they grow."""
    theta = np.zeros_like(b)
    for _ in range(60):
        gradient = (each * expit(theta @ X.T) - ones) @ X + ridge * theta + b
        if np.abs(gradient).max() < 1e-9 * each * ROWS:
            break
        curved = _hessian(X, each, theta) + ridge * np.eye(X.shape[1])
        step = np.linalg.solve(curved, gradient[..., None])[..., 0]
        longest = np.abs(step @ X.T).max(axis=1, keepdims=True)
        theta = theta - step * np.minimum(1.0, 2.0 / np.maximum(longest, 1e-12))
    return theta


def _hessian(X: Array, each: int, theta: Array) -> Array:
    p, d = expit(theta @ X.T), X.shape[1]
    squares = (X[:, :, None] * X[:, None, :]).reshape(len(X), -1)
    found: Array = (each * (p * (1 - p)) @ squares).reshape(-1, d, d)
    return found


def _noise(size: int, runs: int, stddev: float, rng: np.random.Generator) -> Array:
    """Noise of a released triangle: variance σ² on the diagonal, σ²/2 beside it."""
    square = rng.standard_normal((runs, size, size))
    return stddev * (square + np.swapaxes(square, 1, 2)) / 2


def _none(dimension: int) -> Block:
    empty = np.empty((0, dimension))
    return empty.astype(bool), empty.astype(bool), empty


def _held(
    values: Array, stderr: Array | None, plain: Array | None, public: Array | None, truth: Array
) -> Block:
    if stderr is None or plain is None or public is None:
        raise RuntimeError("intervals must be given here.")
    away = np.abs(values - truth)
    return away <= Z * stderr, away <= Z * plain, stderr / public.mean(axis=0)


def main() -> int:
    """Print the table of docs/inference.md; 1 if a mean coverage is outside of 93 to 97 %."""
    rng, missed = np.random.default_rng(20240607), 0
    for kind in ("linear", "logistic"):
        for design in ("clean", "skewed"):
            print(f"\n{kind}, {design}\n| N, ε | d = 5 | {HEAD} | d = 15 | {HEAD} |")
            print("|---|---|---|---|---|")
            for records in (2_000, 10_000, 50_000):
                for epsilon in (0.3, 1.0, 3.0):
                    cells = []
                    for d in (5, 15):
                        seen = coverage(
                            kind,
                            records=records,
                            dimension=d,
                            epsilon=epsilon,
                            design=design,
                            repetitions=2000,
                            rng=rng,
                        )
                        missed += seen.given >= 500 and not 0.93 <= seen.mean <= 0.97
                        cells.append(_cell(seen))
                    print(f"| {records:,}, {epsilon:g} | {' | '.join(cells)} |", flush=True)
    return int(bool(missed))


def _cell(seen: Coverage) -> str:
    if seen.given < 500:
        return f"refused {100 * seen.refused:.1f} % | "
    refused = f", refused {100 * seen.refused:.1f} %" if seen.refused else ""
    return f"{seen.mean:.3f} ({seen.worst:.3f}){refused} | {seen.unaware:.3f}, ×{seen.width:.2f}"


if __name__ == "__main__":
    sys.exit(main())
