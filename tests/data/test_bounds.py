"""The norm bound holds exactly, on the float32 numbers, for every finite input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.data import Bounds, DataError, Dataset, Records, bound, enforce
from fedpriv.data.bounds import to_unit_interval
from fedpriv.data.dataset import no_records

FLOAT32 = np.finfo(np.float32)
MATRICES = arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 8)),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)
NORMS = st.floats(1e-15, 1e15)
HUGE_AND_TINY = np.array(
    [
        [FLOAT32.max, -FLOAT32.max],
        [FLOAT32.tiny, FLOAT32.smallest_subnormal],
        [FLOAT32.max, FLOAT32.smallest_subnormal],
        [0, 0],
        [1, 0],
        [np.nextafter(np.float32(1), np.float32(2)), 0],
        [0.6, 0.8],
    ],
    np.float32,
)


def exceeds(row: np.ndarray[Any, Any], norm: float) -> bool:
    """Whether ‖row‖₂ > norm, in exact arithmetic."""
    return sum((Fraction(float(v)) ** 2 for v in row), Fraction()) > Fraction(norm) ** 2


@given(
    X=MATRICES,
    norm=NORMS,
    intercept=st.floats(-1e3, 1e3),
    scaling=st.sampled_from(["clip", "divide"]),
)
@example(X=HUGE_AND_TINY, norm=1.0, intercept=1.0, scaling="clip")
@example(X=HUGE_AND_TINY, norm=1.0, intercept=0.0, scaling="clip")
@example(X=HUGE_AND_TINY, norm=1.0, intercept=1.0, scaling="divide")
@settings(max_examples=300)
def test_no_row_exceeds_the_norm(
    X: np.ndarray[Any, Any], norm: float, intercept: float, scaling: Any
) -> None:
    bounds = Bounds(norm=norm, intercept=intercept, scaling=scaling)
    bounded = enforce(X, bounds, max_norm=2.0)
    assert bounded.dtype == np.float32
    assert bounded.flags.c_contiguous
    assert not any(exceeds(row, norm) for row in bounded)
    assert (np.linalg.norm(bounded.astype(np.float64), axis=1) <= norm).all()


def test_the_exact_check_has_teeth() -> None:
    """Scaling in float32 without care leaves about half of the rows beyond the bound."""
    X = np.random.default_rng(0).normal(size=(200, 20)).astype(np.float32)
    careless = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert sum(exceeds(row, 1.0) for row in careless) > 50
    assert not any(exceeds(row, 1.0) for row in enforce(X, Bounds()))


@given(X=MATRICES, norm=NORMS)
@example(X=HUGE_AND_TINY, norm=1.0)
def test_enforcing_twice_is_enforcing_once(X: np.ndarray[Any, Any], norm: float) -> None:
    bounds = Bounds(norm=norm, intercept=0.0)
    once = enforce(X, bounds)
    np.testing.assert_array_equal(enforce(once, bounds), once)


def test_clipping_keeps_short_rows_and_the_direction_of_long_ones() -> None:
    X = np.array([[0.3, 0.4], [30, 40], [0, 0]], np.float32)
    bounded = enforce(X, Bounds(intercept=0.0))
    np.testing.assert_array_equal(bounded[[0, 2]], X[[0, 2]])
    np.testing.assert_allclose(bounded[1], [0.6, 0.8], rtol=1e-6)


def test_the_intercept_counts_in_the_norm() -> None:
    bounded = enforce(np.array([[1.0, 0.0]], np.float32), Bounds(intercept=1.0))
    np.testing.assert_allclose(bounded, [[np.sqrt(0.5), 0, np.sqrt(0.5)]], rtol=1e-6)


def test_dividing_scales_all_rows_by_one_public_constant() -> None:
    X = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]], np.float32)
    bounded = enforce(X, Bounds(norm=2.0, intercept=4.0, scaling="divide"), max_norm=3.0)
    np.testing.assert_allclose(bounded[:, :2], X * 2 / 5, rtol=1e-6)
    np.testing.assert_allclose(bounded[:, 2], 4 * 2 / 5, rtol=1e-6)


def test_the_bound_holds_even_if_the_stated_largest_norm_was_false() -> None:
    X = np.full((1, 4), 100, np.float32)
    assert not exceeds(enforce(X, Bounds(scaling="divide"), max_norm=1.0)[0], 1.0)


def test_a_row_that_is_not_finite_is_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="finite"):
            enforce(np.array([[bad]], np.float32), Bounds())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"norm": 0.0}, "norm must lie in"),
        ({"norm": float("nan")}, "norm must lie in"),
        ({"norm": 1e20}, "norm must lie in"),
        ({"intercept": float("inf")}, "intercept must be a number"),
        ({"intercept": float("nan")}, "intercept must be a number"),
        ({"scaling": "clamp"}, "Did you mean 'clip'"),
    ],
)
def test_bad_bounds_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bounds(**values)


def test_dividing_needs_the_largest_norm() -> None:
    with pytest.raises(ValueError, match="max_norm must be given"):
        enforce(np.ones((1, 1), np.float32), Bounds(scaling="divide"))


def test_a_bounded_data_set_names_its_intercept_and_its_norm() -> None:
    dataset = Dataset(
        name="toy",
        task="regression",
        train=Records(X=np.full((3, 2), 5.0), y=np.zeros(3, np.float32), party=np.array([0, 1, 1])),
        test=no_records(2, "regression"),
        feature_names=("a", "b"),
        max_norm=10.0,
        party_names=("p", "q"),
    )
    bounded = bound(dataset, Bounds(norm=0.5))
    assert bounded.feature_names == ("a", "b", "intercept")
    assert bounded.max_norm == 0.5
    assert bounded.train.X.shape == (3, 3)
    assert bounded.test.X.shape == (0, 3)
    assert bounded.train.party is not None
    assert bound(dataset, Bounds(intercept=0.0)).feature_names == ("a", "b")


def test_public_ranges_map_to_the_unit_interval_and_clamp() -> None:
    values = np.array([-1e300, 17.0, 53.5, 90.0, 1e300])
    np.testing.assert_array_equal(to_unit_interval(values, 17.0, 90.0), [-1, -1, 0, 1, 1])
