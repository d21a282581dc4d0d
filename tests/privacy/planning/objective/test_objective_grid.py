"""Objective perturbation needs a density: where b was rounded must not show in what is released."""

from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.objective.objective import (
    ObjectiveMechanism,
    ObjectiveNoise,
    linear_step,
)
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
from fedpriv.privacy.randomness import RandomStream

Matrix = NDArray[np.float64]
RECORDS, DIMENSION, REGULARISER, EPSILON, RUNS = 20, 2, 0.1, 1.0, 200
STEP = 2.0**-44


def planned(tolerance: float) -> ObjectiveMechanism:
    noise = ObjectiveNoise(
        law="l2-laplace", epsilon=EPSILON, delta=0.0, adjacency=Adjacency.REPLACE_ONE
    )
    problem = ObjectiveProblem(
        lipschitz=1.0,
        lipschitz_everywhere=True,
        curvature=0.25,
        curvature_rank=1,
        records=RECORDS,
        regulariser=REGULARISER,
        dimension=DIMENSION,
        tolerance=tolerance,
    )
    return noise.mechanism(problem, step=STEP)


def neighbours() -> tuple[Matrix, Matrix, Matrix]:
    random = np.random.default_rng(0)
    x = random.normal(size=(RECORDS, DIMENSION))
    x /= 1.01 * np.linalg.norm(x, axis=1, keepdims=True)
    other = x.copy()
    other[0] = -x[0, ::-1]
    return x, other, random.choice([-1.0, 1.0], RECORDS)


def gradient(theta: Matrix, x: Matrix, y: Matrix) -> Matrix:
    """Of the sum of logistic losses and its regulariser, without b."""
    slopes = -y / (1 + np.exp(y * (x @ theta)))
    return np.asarray(x.T @ slopes + RECORDS * REGULARISER * theta)


def minimiser(b: Matrix, x: Matrix, y: Matrix) -> Matrix:
    theta = np.zeros(DIMENSION)
    for _ in range(60):
        p = 1 / (1 + np.exp(-(x @ theta)))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + RECORDS * REGULARISER * np.eye(DIMENSION)
        theta = theta - np.linalg.solve(hessian, gradient(theta, x, y) + b)
    return theta


def guesses_right(mechanism: ObjectiveMechanism, *, output_noise: bool) -> int:
    """How often the data on which b lands on its grid are the data that were used."""
    x, other, y = neighbours()
    step, stream, right = linear_step(mechanism.linear), RandomStream.seeded(5), 0
    for _ in range(RUNS):
        theta = minimiser(mechanism.draw_linear((DIMENSION,), stream), x, y)
        if output_noise:
            total = np.rint(theta / STEP).astype(np.int64)
            theta = mechanism.release(total, step=STEP, stream=stream)
        off = [gradient(theta, data, y) / step for data in (x, other)]
        first, second = (float(np.abs(u - np.rint(u)).max()) for u in off)
        right += first < second
    return right


def test_the_grid_of_the_linear_term_does_not_show_in_the_release() -> None:
    """ε = 1 lets nobody be right in more than e/(1 + e) of all cases. False failure 1e-9.

    The solver is so exact that noise for its tolerance alone would hide nothing.
    """
    allowed = binom.isf(1e-9, RUNS, 1 / (1 + np.exp(-EPSILON)))
    assert guesses_right(planned(1e-13), output_noise=True) <= allowed
    assert guesses_right(planned(1e-13), output_noise=False) > allowed


@pytest.mark.parametrize("tolerance", [1e-12, 1e-6])
def test_output_noise_pays_for_the_rounding_of_the_linear_term(tolerance: float) -> None:
    mechanism = planned(tolerance)
    rounding = sqrt(DIMENSION) * linear_step(mechanism.linear) / RECORDS
    strong = REGULARISER + mechanism.extra_regulariser
    needed = (2 * tolerance + rounding) / strong + sqrt(DIMENSION) * STEP
    assert mechanism.output.sensitivity >= needed * (1 - 1e-12)  # type: ignore[attr-defined]


def test_a_statement_claims_no_more_precision_than_the_linear_term_has() -> None:
    """It said 2^-80, which no radius in double precision has."""
    mechanism = planned(1e-9)
    assert mechanism.precision == mechanism.linear.precision == mechanism.output.precision
    assert "2^-48" in mechanism.precision
