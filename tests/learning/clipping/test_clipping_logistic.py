"""The compiled kernel of logistic regression: how much a record's place in a batch matters."""

from __future__ import annotations

import itertools
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.learning.clipping.logistic import clipped_logistic_sums
from fedpriv.learning.segments import BLOCK

WIDTHS = [1, 3, 8, 31, 784]


def _sums(
    X: np.ndarray, y: np.ndarray, theta: np.ndarray, offsets: list[int], cap: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    sums = np.full((len(offsets) - 1, X.shape[1]), nan)
    slopes = np.full(len(X), nan, X.dtype)
    caps = np.full(len(X), cap, X.dtype)
    clipped_logistic_sums(X, y, theta, caps, np.array(offsets), sums, slopes)
    return sums, slopes


def _records(n: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width)).astype(np.float32)
    return X, rng.choice(np.array([-1, 1], np.float32), n), rng.normal(size=width).astype("f4")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_slope_of_a_record_does_not_depend_on_its_place(width: int) -> None:
    """Neighbouring data sets share the gradients of all other records, to the bit."""
    X, y, theta = _records(BLOCK + 9, width)
    _, whole = _sums(X, y, theta, [0, len(X)])
    for removed in (0, 1, 2, 3, 5, BLOCK - 1, BLOCK, len(X) - 1):
        rest = np.delete(np.arange(len(X)), removed)
        _, slopes = _sums(X[rest], y[rest], theta, [0, len(rest)])
        assert (slopes == whole[rest]).all()


@given(sizes=st.lists(st.integers(0, 2 * BLOCK + 3), max_size=5), seed=st.integers(0, 99))
def test_sums_of_parties_of_any_size_are_those_of_exact_arithmetic(
    sizes: list[int], seed: int
) -> None:
    X, y, theta = _records(sum(sizes), 17, seed)
    offsets = [0, *np.cumsum(sizes).tolist()]
    sums, slopes = _sums(X, y, theta, offsets)
    exact = -y / (1 + np.exp(y * (X.astype(np.float64) @ theta)))
    np.testing.assert_allclose(slopes, exact, rtol=1e-4, atol=1e-6)
    weighted = np.clip(slopes.astype(np.float64), -0.3, 0.3)[:, None] * X
    parts = [weighted[a:b].sum(axis=0) for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(sums, np.reshape(parts, sums.shape), atol=1e-4)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_slope_that_is_not_finite_counts_as_zero(bad: float) -> None:
    X, y, theta = _records(7, 5)
    y[3] = nan
    sums, slopes = _sums(X, y, theta, [0, 7])
    rest = np.delete(np.arange(7), 3)
    assert np.isnan(slopes[3])
    np.testing.assert_allclose(sums, _sums(X[rest], y[rest], theta, [0, 6])[0], rtol=1e-5)
    theta[:] = bad  # every score is lost, none reaches the sum
    X[:, 0] = 0
    assert (_sums(X, y, theta, [0, 7])[0] == 0).all()
