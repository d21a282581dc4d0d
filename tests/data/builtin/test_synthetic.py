"""What a synthetic problem claims to know, recomputed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedpriv.data import Bounds, SyntheticProblem, enforce
from fedpriv.data.builtin.synthetic import LOSSES, Loss, synthetic


def draw(loss: Loss, seed: int = 0, **changes: Any) -> SyntheticProblem:
    values: dict[str, Any] = {"parties": 8, "records": 60, "features": 6}
    return synthetic(loss=loss, rng=np.random.default_rng(seed), **(values | changes))


def gradient(problem: SyntheticProblem, theta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """∇J in extended precision, one record's term at a time in the formula."""
    X = problem.dataset.train.X.astype(np.longdouble)
    y = problem.dataset.train.y.astype(np.longdouble)
    scores = X @ theta
    squared = problem.dataset.task == "regression"
    weights = scores - y if squared else -y / (1 + np.exp(y * scores))
    mean: np.ndarray[Any, Any] = (X * weights[:, None]).mean(axis=0)
    return mean + problem.regularisation * theta


def hessian(problem: SyntheticProblem, theta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    X = problem.dataset.train.X.astype(np.float64)
    weights = np.ones(len(X))
    if problem.dataset.task == "binary":
        probability = 1 / (1 + np.exp(-X @ theta))
        weights = probability * (1 - probability)
    product: np.ndarray[Any, Any] = (X.T * weights) @ X / len(X)
    return product + problem.regularisation * np.eye(len(theta))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("regularisation", [1e-4, 1e-2, 1.0])
def test_the_gradient_vanishes_at_the_optimum_and_not_beside_it(
    loss: Loss, regularisation: float
) -> None:
    problem = draw(loss, regularisation=regularisation, heterogeneity=0.5)
    assert np.linalg.norm(gradient(problem, problem.optimum)) < 1e-13
    assert np.linalg.norm(gradient(problem, problem.optimum + 1e-6)) > 1e-11


def test_the_curvature_of_the_squared_loss_is_exact() -> None:
    problem = draw("squared")
    eigenvalues = np.linalg.eigvalsh(hessian(problem, problem.optimum))
    np.testing.assert_allclose(
        [problem.strong_convexity, problem.smoothness], eigenvalues[[0, -1]], rtol=1e-12
    )


def test_the_curvature_of_the_logistic_loss_is_bounded_and_the_bound_is_met_at_zero() -> None:
    problem = draw("logistic")
    for theta in (np.zeros(6), problem.optimum, 10 * problem.truth):
        eigenvalues = np.linalg.eigvalsh(hessian(problem, theta))
        assert problem.strong_convexity <= eigenvalues[0]
        assert eigenvalues[-1] <= problem.smoothness * (1 + 1e-12)
    at_zero = np.linalg.eigvalsh(hessian(problem, np.zeros(6)))
    assert at_zero[-1] == pytest.approx(problem.smoothness, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_records_lie_on_the_unit_sphere_and_already_satisfy_the_bound(loss: Loss) -> None:
    X = draw(loss).dataset.train.X
    np.testing.assert_allclose(np.linalg.norm(X.astype(np.float64), axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(enforce(X, Bounds(intercept=0.0)), X)


@pytest.mark.parametrize("condition", [1.0, 20.0])
def test_the_spectrum_has_the_stated_condition(condition: float) -> None:
    """At a fixed seed; with 80,000 records the sampling error is far below the tolerance."""
    problem = draw("squared", records=10_000, condition=condition, regularisation=1e-9)
    assert problem.smoothness / problem.strong_convexity == pytest.approx(condition, rel=0.1)


def test_without_noise_and_heterogeneity_ridge_finds_the_truth() -> None:
    problem = draw("squared", noise=0.0, regularisation=1e-9)
    np.testing.assert_allclose(problem.optimum, problem.truth, atol=1e-5)
    assert np.linalg.norm(problem.truth) == pytest.approx(5.0)


def test_heterogeneity_is_the_distance_of_each_partys_own_optimum() -> None:
    for heterogeneity in (0.0, 0.5):
        problem = draw("squared", noise=0.0, records=200, heterogeneity=heterogeneity)
        train = problem.dataset.train
        for j in range(8):
            mine = train.party == j
            own, *_ = np.linalg.lstsq(train.X[mine].astype(float), train.y[mine].astype(float))
            distance = np.linalg.norm(own - problem.truth)
            assert distance == pytest.approx(heterogeneity * 5.0, abs=1e-4)


def test_a_problem_is_fixed_by_its_seed() -> None:
    first, same, other = (draw("logistic", seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.dataset.train.X, same.dataset.train.X)
    np.testing.assert_array_equal(first.optimum, same.optimum)
    assert not np.array_equal(first.dataset.train.X, other.dataset.train.X)


def test_one_feature_and_one_record_are_enough() -> None:
    problem = draw("logistic", parties=1, records=1, features=1)
    assert len(problem.dataset.train) == 1
    assert np.linalg.norm(gradient(problem, problem.optimum)) < 1e-13


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "logistc"}, "Did you mean 'logistic'"),
        ({"parties": 0}, "parties must be an integer"),
        ({"condition": 0.5}, "condition must be finite and at least 1, got 0.5"),
        ({"regularisation": 0.0}, "regularisation must be positive"),
        ({"heterogeneity": -1.0}, "heterogeneity must be finite"),
    ],
)
def test_bad_arguments_of_a_problem_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(**({"loss": "squared"} | changes))
