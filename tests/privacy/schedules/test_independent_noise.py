"""Full-batch rounds: no correlation between the noise of rounds beats independent noise.

The lemma of docs/schedules.md. Noise of T rounds has the covariance Σ; harm is tr(QΣ), Q ⪰ 0; a
record that is in every round moves the releases by D with rows of at most 1, and μ² is the largest
tr(KΣ⁻¹) over K = DDᵀ, the elliptope. Then harm·μ² ≥ (Σ√Q_tt)², with equality for independent noise.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.linalg import sqrtm, toeplitz
from scipy.optimize import minimize

from fedpriv.privacy.schedules import least_noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


def cost(covariance: Matrix) -> float:
    """max tr(KΣ⁻¹) over the elliptope, by ascent over its factors; certified by a dual point."""
    precision = np.linalg.inv(covariance)
    rows = np.eye(len(precision)) + 0.1 * np.random.default_rng(0).normal(size=precision.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for _ in range(3000):
        before = rows.copy()
        for t in range(len(rows)):
            pull = precision[t] @ rows - precision[t, t] * rows[t]
            if (length := np.linalg.norm(pull)) > 0:
                rows[t] = pull / length
        if np.abs(rows - before).max() < 1e-12:
            break
    kernel = rows @ rows.T
    value = float(np.sum(precision * kernel))
    # Weak duality: y with Diag(y) ⪰ Σ⁻¹ bounds the maximum by Σy; a shift repairs what is missing.
    dual = np.diag(np.sum(precision * kernel, axis=1))
    missing = max(0.0, -float(np.linalg.eigvalsh(dual - precision).min()))
    assert missing * len(rows) <= 1e-4 * value
    return value


def harm(influence: Matrix, covariance: Matrix) -> float:
    return float(np.sum(influence * covariance))


def least(influence: Matrix) -> float:
    return float(np.sum(np.sqrt(np.diag(influence))) ** 2)


def random_influence(rng: np.random.Generator, rounds: int) -> Matrix:
    factor = rng.normal(size=(rounds, rounds)) * rng.gamma(1.0, size=(rounds, 1))
    return np.asarray(factor @ factor.T + 1e-3 * np.eye(rounds))


@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_no_correlated_noise_is_better(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    for _ in range(20):
        influence, covariance = random_influence(rng, rounds), random_influence(rng, rounds)
        assert harm(influence, covariance) * cost(covariance) >= least(influence) * (1 - 1e-6)


@pytest.mark.parametrize("rounds", [2, 5, 9])
def test_independent_noise_of_the_lemma_reaches_the_bound(rounds: int) -> None:
    influence = random_influence(np.random.default_rng(rounds), rounds)
    covariance = np.diag(least_noise(np.log(np.diag(influence)), total=1.0) ** 2)
    assert cost(covariance) == pytest.approx(1.0)  # any K of unit diagonal
    assert harm(influence, covariance) == pytest.approx(least(influence))


def test_a_search_over_all_covariances_of_two_rounds_ends_at_the_bound() -> None:
    """There K has one free number in [−1, 1], and the cost is A₁₁ + A₂₂ + 2|A₁₂|, A = Σ⁻¹."""
    rng = np.random.default_rng(4)
    influence = random_influence(rng, 2)

    def objective(parameters: NDArray[np.float64]) -> float:
        first, mixed, second = parameters
        factor = np.array([[first, 0.0], [mixed, second]])
        covariance = factor @ factor.T + 1e-9 * np.eye(2)
        worst = float(np.trace(a := np.linalg.inv(covariance)) + 2 * abs(a[0, 1]))
        return float(np.log(harm(influence, covariance)) + np.log(worst))

    start = np.array([1.0, 0.8, 0.7])
    assert objective(start) == pytest.approx(
        np.log(harm(influence, C := np.array([[1, 0.8], [0.8, 1.13]]))) + np.log(cost(C)), abs=1e-6
    )
    options = {"maxiter": 2000, "xatol": 1e-9, "fatol": 1e-12}
    found = minimize(objective, start, method="Nelder-Mead", options=options)
    assert found.fun >= np.log(least(influence)) - 1e-6
    assert found.fun <= np.log(least(influence)) + 1e-3  # nothing below is to be found
    assert objective(start) > found.fun + 0.1


def test_one_dimension_is_enough_where_all_noise_reaches_one_number() -> None:
    """Q = aaᵀ: K = ssᵀ with the signs s of a, which a record of one coordinate can be."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        weights, covariance = rng.normal(size=5), random_influence(rng, 5)
        precision = np.linalg.inv(covariance)
        signs = [np.array(s) for s in product((-1.0, 1.0), repeat=5)]
        worst = max(float(s @ precision @ s) for s in signs)
        assert harm(np.outer(weights, weights), covariance) * worst >= np.abs(weights).sum() ** 2


def test_correlation_does_pay_where_a_record_is_in_one_round_alone() -> None:
    """Teeth: with μ² = max (Σ⁻¹)_tt prefix sums get half the harm from correlated noise."""
    rounds = 16
    sums = np.tril(np.ones((rounds, rounds)))
    influence = sums.T @ sums
    root = np.real(sqrtm(toeplitz(np.ones(rounds), np.eye(rounds)[0])))
    covariance = np.linalg.inv(root.T @ root)  # of noise root⁻¹·z, by the square-root factorisation
    once = float(np.diag(np.linalg.inv(covariance)).max())
    independent = float(np.trace(influence))  # the same noise in all rounds is the best of these
    assert harm(influence, covariance) * once < 0.6 * independent
    assert harm(influence, covariance) * cost(covariance) > 1.1 * least(influence)
