"""Estimates without noise are the textbook's, from the records; with noise they know of it.

The oracle is statsmodels on the records: ordinary least squares with its classical covariance, and
the maximum of the likelihood with the inverse of the information.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, ndtr
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.inference.estimate import LINEAR_RULE, Curvature
from fedpriv.inference.linear import adassp, linear_estimate
from fedpriv.inference.logistic import logistic_estimate
from fedpriv.inference.noisy_matrix import NoisyMatrix

RNG = np.random.default_rng(5)
X = np.column_stack([RNG.uniform(-1, 1, (400, 3)), np.ones(400)])
TRUTH = np.array([1.0, -0.5, 0.2, 0.3])


def moments_of(features: np.ndarray, labels: np.ndarray, stddev: float = 0.0) -> NoisyMatrix:
    z = np.column_stack([features, labels])
    return NoisyMatrix.released(z.T @ z, stddev=stddev)


def fitted(features: np.ndarray, labels: np.ndarray, ridge: float, b: np.ndarray) -> np.ndarray:
    def objective(theta: np.ndarray) -> float:
        losses = np.logaddexp(0, -labels * (features @ theta))
        return float(losses.sum() + ridge / 2 * theta @ theta + b @ theta)

    def gradient(theta: np.ndarray) -> np.ndarray:
        found = -(labels * expit(-labels * (features @ theta))) @ features + ridge * theta + b
        return np.asarray(found)

    start = np.zeros(features.shape[1])
    return np.asarray(minimize(objective, start, jac=gradient, method="BFGS", tol=1e-10).x)


def information(features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    p = expit(features @ theta)
    return np.asarray((features * (p * (1 - p))[:, None]).T @ features)


def test_linear_without_noise_is_ordinary_least_squares() -> None:
    y = X @ TRUTH + RNG.normal(0, 0.3, len(X))
    peer = OLS(y, X).fit()
    found = linear_estimate(moments_of(X, y), records=len(X))
    assert found.values == pytest.approx(peer.params)
    assert found.covariance == pytest.approx(peer.cov_params())


def test_linear_noise_enters_by_its_own_covariance() -> None:
    y = X @ TRUTH + RNG.normal(0, 0.3, len(X))
    plain = linear_estimate(moments_of(X, y), records=len(X))
    aware = linear_estimate(moments_of(X, y, stddev=2.0), records=len(X))
    assert plain.covariance is not None
    assert aware.covariance is not None
    inverse = np.linalg.inv(X.T @ X)
    theta = plain.values
    # (σ²/2)((1 + ‖θ‖²)I + θθᵀ), between two inverses
    middle = 2.0 * ((1 + theta @ theta) * np.eye(4) + np.outer(theta, theta))
    assert aware.covariance - plain.covariance == pytest.approx(inverse @ middle @ inverse)


def test_logistic_without_noise_is_maximum_likelihood() -> None:
    y = np.where(RNG.random(len(X)) < expit(X @ TRUTH), 1.0, -1.0)
    peer = Logit(y > 0, X).fit(disp=False, tol=1e-12)
    theta = fitted(X, y, 1e-9, np.zeros(4))
    hessian = NoisyMatrix.released(information(X, theta), stddev=0.0)
    found = logistic_estimate(theta, hessian, ridge=1e-9, linear_stddev=0.0)
    assert found.values == pytest.approx(peer.params, abs=1e-6)
    assert found.covariance == pytest.approx(peer.cov_params(), rel=1e-5)


def test_the_pull_of_the_ridge_is_taken_back() -> None:
    y = np.where(RNG.random(len(X)) < expit(X @ TRUTH), 1.0, -1.0)
    best, pulled = fitted(X, y, 1e-9, np.zeros(4)), fitted(X, y, 5.0, np.zeros(4))
    hessian = NoisyMatrix.released(information(X, pulled), stddev=0.0)
    found = logistic_estimate(pulled, hessian, ridge=5.0, linear_stddev=0.0)
    before, after = np.linalg.norm(pulled - best), np.linalg.norm(found.values - best)
    assert after < 0.15 * before


def test_a_fit_with_all_levels_is_the_fit_without_the_reference() -> None:
    """One category of three levels and an intercept: the same estimate and errors, recoded."""
    level = RNG.integers(0, 3, 600)
    full = np.column_stack([np.eye(3)[level], np.ones(600)])  # all levels, intercept
    kept = full[:, 1:]
    W = np.array([[-1.0, -1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])  # full = kept·Wᵀ
    assert full == pytest.approx(kept @ W.T)
    y = np.where(RNG.random(600) < expit(kept @ np.array([0.8, -0.4, 0.2])), 1.0, -1.0)
    ridge = 1e-4
    theta = fitted(full, y, ridge, np.zeros(4))
    best = fitted(kept, y, 1e-9, np.zeros(3))
    hessian = NoisyMatrix.released(information(kept, best), stddev=0.0)
    found = logistic_estimate(theta, hessian, ridge=ridge, linear_stddev=0.0, coding=W)
    assert found.values == pytest.approx(best, abs=1e-5)
    assert found.covariance == pytest.approx(np.linalg.inv(information(kept, best)), rel=1e-4)


def test_noise_of_a_fit_with_all_levels_is_that_of_many_draws() -> None:
    """The covariance of β̃ over b, against 4000 draws of the first-order answer.

    A sample variance of so many normal draws is off by 13 % with a probability below 1e-8.
    """
    full = np.column_stack([np.eye(3)[RNG.integers(0, 3, 600)], np.ones(600)])
    W = np.array([[-1.0, -1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    exact = full.T @ full / 4  # Hessian at zero, where gradients of balanced labels vanish
    ridge, spread, b = 3.0, 2.0, RNG.normal(0, 2.0, (4000, 4))
    thetas = -np.linalg.solve(exact + ridge * np.eye(4), b.T).T
    kept = NoisyMatrix.released(full[:, 1:].T @ full[:, 1:] / 4, stddev=0.0)
    found = logistic_estimate(thetas, kept, ridge=ridge, linear_stddev=spread, coding=W)
    sampling = np.linalg.inv(kept.value)
    assert found.covariance is not None
    expected = np.diag(found.covariance[0] - sampling)
    assert found.values.var(axis=0) == pytest.approx(expected, rel=0.13)
    halved = logistic_estimate(thetas, kept, ridge=ridge, linear_stddev=spread / 2, coding=W)
    assert halved.covariance is not None
    assert found.values.var(axis=0) != pytest.approx(
        np.diag(halved.covariance[0] - sampling), rel=0.13
    )


def test_intervals_are_refused_where_noise_is_half_of_the_curvature() -> None:
    y = X @ TRUTH
    least = float(np.linalg.eigvalsh(X.T @ X)[0])
    limit = least / 6  # of four coefficients: 2√8 is less
    assert linear_estimate(moments_of(X, y, 0.99 * limit), records=400).covariance is not None
    refused = linear_estimate(moments_of(X, y, 1.01 * limit), records=400)
    assert refused.covariance is None
    assert refused.curvature.missing_factor == pytest.approx(1.01)
    hidden = linear_estimate(moments_of(X, y, 3 * limit), records=400)
    assert hidden.curvature.missing_factor == inf
    assert np.isfinite(hidden.values).all()


def test_a_ridge_makes_the_estimate_of_an_indefinite_matrix_finite() -> None:
    noisy = NoisyMatrix.released(np.diag([-5.0, 1.0, 2.0]) + 1.0, stddev=1.0)
    assert Curvature.of(noisy.take([0, 1]), rule=LINEAR_RULE).least < 0
    assert np.abs(adassp(noisy)).max() < 1


def test_a_table_has_intervals_or_a_reason() -> None:
    y = X @ TRUTH + RNG.normal(0, 0.3, len(X))
    found = linear_estimate(moments_of(X, y), records=len(X))
    table = CoefficientTable.of(found, list("abcd"))
    first = table.rows[0]
    assert first.stderr is not None
    assert first.low == pytest.approx(first.estimate - 1.959963984540054 * first.stderr)
    assert first.p_value == pytest.approx(2 * ndtr(-abs(first.estimate) / first.stderr))
    with pytest.raises(ValueError, match="refusal"):
        CoefficientTable.of(found, list("abcd"), refusal="too noisy")
    refused = linear_estimate(moments_of(X, y, 1e6), records=len(X))
    with pytest.raises(ValueError, match="refusal"):
        CoefficientTable.of(refused, list("abcd"))
    assert CoefficientTable.of(refused, list("abcd"), refusal="too noisy").rows[0].low is None


def test_units_change_estimates_and_errors_alike() -> None:
    y = X @ TRUTH + RNG.normal(0, 0.3, len(X))
    scale = np.diag([2.0, 0.5, 1.0, 4.0])
    one = linear_estimate(moments_of(X, y), records=400).mapped(np.linalg.inv(scale), np.zeros(4))
    other = linear_estimate(moments_of(X @ scale, y), records=400)
    assert one.values == pytest.approx(other.values)
    assert one.stderr == pytest.approx(other.stderr)
