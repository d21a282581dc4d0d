"""Second moments are exact sums: of integers, in any order, at any place, on any threads."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.learning import moments
from fedpriv.learning.moments import UNITS, moment_sums, symmetric, triangle, width


def rows(count: int, size: int, *, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, size))
    X *= (1 - 1e-6) / np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32)


def by_integers(X: np.ndarray, radius: float) -> np.ndarray:
    """The same in Python's integers, one record at a time."""
    scale = UNITS / radius
    total = [[0] * X.shape[1] for _ in range(X.shape[1])]
    for x in X.astype(np.float64):
        cut = [int(value * scale) for value in x]  # towards zero
        for i, a in enumerate(cut):
            for j, b in enumerate(cut):
                total[i][j] += a * b
    return np.array([[float(value) for value in row] for row in total]) * (radius / UNITS) ** 2


@pytest.mark.parametrize("radius", [1.0, 1.7])
def test_the_sums_are_those_of_pythons_integers(radius: float) -> None:
    X = rows(300, 5)
    found = moment_sums(X, np.array([0, 7, 7, 300]), radius=radius)
    for party, part in enumerate((X[:7], X[7:7], X[7:])):
        exact = triangle(by_integers(part, radius))
        assert found[party] == pytest.approx(exact, rel=moments.ROUNDING, abs=0)
    plain = triangle(X.astype(np.float64).T @ X.astype(np.float64))
    assert found.sum(0) == pytest.approx(plain, abs=300 * 2 * radius / UNITS)


def test_order_pieces_and_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, ends = rows(9000, 40), np.array([0, 9000])
    whole = moment_sums(X, ends, radius=1.0)
    shuffled = X[np.random.default_rng(1).permutation(len(X))]
    assert moment_sums(shuffled, ends, radius=1.0).tobytes() == whole.tobytes()
    for name, value in (("_SHORTEST_PIECE", 7), ("_STRETCH", 333), ("_LONGEST_PIECE", 11)):
        monkeypatch.setattr(moments, name, value)
        assert moment_sums(X, ends, radius=1.0).tobytes() == whole.tobytes()


def test_the_longest_pieces_and_stretches_stay_exact() -> None:
    """4096 records of one unit vector of length R: the products add up to 2⁵², and no further."""
    assert moments._LONGEST_PIECE * int(UNITS) ** 2 == 2**52
    assert moments._STRETCH * int(UNITS) ** 2 == 2**62
    X = np.zeros((3 * 4096 + 1, 2), np.float32)
    X[:, 0] = 1.0
    X[-1] = (0.0, 2.0**-20)  # one unit: lost in a float64 sum of squares, and not here
    (found,) = moment_sums(X, np.array([0, len(X)]), radius=1.0)
    assert found.tolist() == [3 * 4096.0, 0.0, 2.0**-40]


def test_labels_factors_and_float64_enter_as_columns_and_rows() -> None:
    X, rng = rows(50, 3), np.random.default_rng(2)
    last, factors = rng.uniform(-1, 1, 50), rng.uniform(0, 1, 50)
    z = np.column_stack([X.astype(np.float64), last]) * factors[:, None]
    found = moment_sums(X, np.array([0, 50]), radius=1.5, last=last, factors=factors)
    assert found[0] == pytest.approx(triangle(z.T @ z), abs=50 * 4 / UNITS)
    wide = moment_sums(X.astype(np.float64), np.array([0, 50]), radius=1.5)
    assert wide.tobytes() == moment_sums(X, np.array([0, 50]), radius=1.5).tobytes()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_triangle_is_an_isometry_of_the_frobenius_norm_and_is_undone(
    size: int, seed: int
) -> None:
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    matrix = matrix + matrix.T
    numbers = triangle(matrix)
    assert len(numbers) == width(size)
    assert np.linalg.norm(numbers) == pytest.approx(np.linalg.norm(matrix), rel=1e-12)
    assert symmetric(numbers) == pytest.approx(matrix, rel=1e-15)


def test_what_is_no_triangle_is_refused() -> None:
    with pytest.raises(ValueError, match="those of a triangle"):
        symmetric(np.zeros(4))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=9), st.floats(0.1, 30))
def test_a_record_adds_no_more_than_its_bound_in_exact_arithmetic(
    values: list[float], radius: float
) -> None:
    """‖z·zᵀ‖_F² of what is added up, as a fraction: never above R⁴, with the slack that is stated.

    The record is put onto the bound itself, as closely as float32 can.
    """
    x = np.array(values, np.float64)
    length = np.linalg.norm(x)
    if length < 1e-6:
        return
    x32 = (x / length * radius * (1 - 2.0**-22)).astype(np.float32)
    exact = sum(Fraction(float(value)) ** 2 for value in x32)
    assert exact <= Fraction(radius) ** 2
    cut = [int(value * (UNITS / radius)) for value in x32.astype(np.float64)]
    norm_squared = sum(value**2 for value in cut)  # of z, in units
    assert norm_squared <= int(UNITS) ** 2 * Fraction(moments.SLACK)
    assert isqrt(norm_squared) <= UNITS
