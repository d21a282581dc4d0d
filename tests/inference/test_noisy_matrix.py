"""The noise of a released matrix: covariances against its entries, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from fedpriv.inference.noisy_matrix import NoisyMatrix


def released(seed: int = 0, size: int = 4, stddev: float = 2.0) -> NoisyMatrix:
    value = np.random.default_rng(seed).normal(size=(size, size))
    return NoisyMatrix.released(value + value.T, stddev=stddev)


def by_entries(matrix: NoisyMatrix, vector: np.ndarray) -> np.ndarray:
    """Cov(E·a) as a sum over the independent entries of the triangle."""
    d = matrix.size
    total = np.zeros((d, d))
    for i in range(d):
        for j in range(i, d):
            unit = np.zeros((d, d))
            unit[i, j] = unit[j, i] = 1.0
            moved = unit @ vector
            total += matrix.variance[i, j] * np.outer(moved, moved)
    return total


def test_an_entry_beside_the_diagonal_has_half_the_variance() -> None:
    matrix = released(stddev=3.0)
    assert np.diag(matrix.variance).tolist() == [9.0] * 4
    assert matrix.variance[0, 1] == matrix.variance[1, 0] == 4.5


def test_the_covariance_of_noise_times_a_vector_is_that_of_its_entries() -> None:
    a = np.array([1.0, -2.0, 0.5, 3.0])
    matrix = released()
    whole = 4.0 / 2 * (a @ a * np.eye(4) + np.outer(a, a))
    assert matrix.covariance_times(a) == pytest.approx(whole)
    known = matrix.with_known(0, 0, 5.0).with_known(1, 3, 0.0)
    assert known.covariance_times(a) == pytest.approx(by_entries(known, a))
    assert known.covariance_times(a)[0, 0] < whole[0, 0]


def test_what_is_known_replaces_what_was_released() -> None:
    known = released().with_known(1, 2, 7.0)
    assert known.value[1, 2] == known.value[2, 1] == 7.0
    part = known.take([2, 1])
    assert part.value[0, 1] == 7.0
    assert part.variance[0, 1] == 0.0


def test_a_matrix_must_be_square() -> None:
    with pytest.raises(ValueError, match="square"):
        NoisyMatrix.released(np.zeros((2, 3)), stddev=1.0)
