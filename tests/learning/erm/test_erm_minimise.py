"""Joint minimisation by gradient queries alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.learning.erm.batch import ErmBatch
from fedpriv.learning.erm.certificate import (
    ToleranceNotReachedError,
)
from fedpriv.learning.erm.minimise import Minimum, minimise
from fedpriv.learning.erm.problem import ErmProblem
from fedpriv.learning.erm.solver import solve
from fedpriv.learning.losses import (
    Logistic,
    Loss,
)
from tests.learning.erm.erm_problems import every_loss, make_problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

# ---------------------------------------------------------------------------- gradient queries


@every_loss
def test_gradient_queries_alone_find_the_joint_minimiser(loss: Loss) -> None:
    problem = make_problem(loss, [20, 5, 60], 4)
    parties = ErmBatch.of(problem)
    lam, n, shape = problem.regulariser, 85, (loss.outputs, 4)

    def gradient(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        total = parties.gradient_sum(torch.from_numpy(theta).view(shape)).sum(0)
        mean: NDArray[np.float64] = total.flatten().numpy() / n + lam * theta
        return mean

    minimum = minimise(
        gradient,
        np.zeros(4 * loss.outputs),
        strong_convexity=lam,
        smoothness=loss.smoothness + lam,
        tolerance=1e-7,
        max_queries=5000,
    )
    assert minimum.gradient_norm <= 1e-7
    assert np.linalg.norm(gradient(minimum.theta)) <= minimum.gradient_norm
    pooled = ErmProblem(
        features=problem.features,
        labels=problem.labels,
        offsets=torch.tensor([0, n]),
        loss=loss,
        regulariser=lam,
    )
    ours = solve(pooled, tolerance=1e-7).theta.flatten().numpy()
    assert np.linalg.norm(ours - minimum.theta) <= 2e-7 / lam


@given(seed=st.integers(0, 2**32 - 1), condition=st.sampled_from([1.0, 10.0, 1e3, 1e5]))
@settings(max_examples=30)
def test_minimise_solves_any_quadratic(seed: int, condition: float) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    A = (basis * np.geomspace(1 / condition, 1, 8)) @ basis.T
    target = rng.normal(size=8)
    minimum = minimise(
        lambda theta: A @ (theta - target),
        rng.normal(size=8),
        strong_convexity=1 / condition,
        smoothness=1.0,
        tolerance=1e-9,
    )
    assert np.linalg.norm(minimum.theta - target) <= 1e-9 * condition


def test_minimise_takes_few_queries_on_a_well_conditioned_problem() -> None:
    problem = make_problem(Logistic(), [300], 10)
    batch = ErmBatch.of(problem)
    count = 0

    def gradient(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal count
        count += 1
        answer: NDArray[np.float64] = batch.gradient(torch.from_numpy(theta)).numpy().ravel()
        return answer

    minimum = minimise(
        gradient, np.zeros(10), strong_convexity=0.01, smoothness=0.26, tolerance=1e-8
    )
    assert minimum.queries == count <= 30


def test_minimise_counts_the_oracles_error_against_the_tolerance() -> None:
    def gradient(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.round(theta - 1 / 3, 6)

    def run(tolerance: float, max_queries: int = 50) -> Minimum:
        return minimise(
            gradient,
            np.zeros(3),
            strong_convexity=1.0,
            smoothness=1.0,
            tolerance=tolerance,
            oracle_error=1e-6,
            max_queries=max_queries,
        )

    minimum = run(3e-6)
    assert np.linalg.norm(minimum.theta - 1 / 3) <= minimum.gradient_norm <= 3e-6
    with pytest.raises(ToleranceNotReachedError):
        run(3e-6, max_queries=1)
    with pytest.raises(ValueError, match="oracle_error must be below tolerance"):
        run(1e-6)


@pytest.mark.parametrize("step", [1e-12, 1e-10, 1e-9])
@every_loss
def test_minimise_reaches_a_tolerance_just_above_the_oracles_fixed_point_error(
    loss: Loss, step: float
) -> None:
    problem = make_problem(loss, [60], 4)
    batch = ErmBatch.of(problem)
    d = 4 * loss.outputs
    error = step / 2 * d**0.5

    def gradient(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        exact = batch.gradient(torch.from_numpy(theta).view(batch.shape)).flatten().numpy()
        rounded: NDArray[np.float64] = np.round(exact / step) * step
        return rounded

    minimum = minimise(
        gradient,
        np.zeros(d),
        strong_convexity=problem.regulariser,
        smoothness=loss.smoothness + problem.regulariser,
        tolerance=20 * error,
        oracle_error=error,
        max_queries=5000,
    )
    exact = batch.gradient(torch.from_numpy(minimum.theta).view(batch.shape)).norm()
    assert exact <= minimum.gradient_norm <= 20 * error


@pytest.mark.parametrize("answer", [[1.0, np.nan], [1.0], [np.inf, 0.0]])
def test_minimise_refuses_an_oracle_that_gives_no_gradient(answer: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite vector of shape \(2,\)"):
        minimise(
            lambda _: np.array(answer),
            np.ones(2),
            strong_convexity=1.0,
            smoothness=1.0,
            tolerance=1e-3,
        )


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"strong_convexity": 0.0}, "strong_convexity"),
        ({"smoothness": 0.5}, "smoothness"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"oracle_error": -1.0}, "oracle_error"),
        ({"max_queries": 0}, "max_queries"),
    ],
)
def test_minimise_refuses_meaningless_settings_by_name(change: dict[str, float], name: str) -> None:
    valid = {"strong_convexity": 1.0, "smoothness": 1.0, "tolerance": 1e-3}
    with pytest.raises(ValueError, match=name):
        minimise(lambda theta: theta, np.ones(2), **(valid | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("excess", [1.05, 1.2, 1.45])
def test_an_oracle_that_flatters_is_not_believed_beyond_its_error(excess: float) -> None:
    """J = ‖θ‖²/2, whose gradient is θ, told shorter by e = τ/2 wherever it is longer than that.

    At a start of norm between τ and τ + e, what is told is below τ and the truth above: whoever
    forgets e stops there, and the model is further from the minimum than noise was planned for.
    """
    tolerance, error = 1e-3, 0.5e-3

    def told(theta: NDArray[np.float64]) -> NDArray[np.float64]:
        length = float(np.linalg.norm(theta))
        return theta * max(0.0, 1 - error / length) if length else theta

    start = np.array([excess * tolerance, 0.0, 0.0])
    assert np.linalg.norm(told(start)) < tolerance < np.linalg.norm(start)
    minimum = minimise(
        told, start, strong_convexity=1.0, smoothness=1.0, tolerance=tolerance, oracle_error=error
    )
    assert np.linalg.norm(minimum.theta) <= minimum.gradient_norm <= tolerance
    assert minimum.queries > 1
