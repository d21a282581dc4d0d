from functools import partial
from math import exp, inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import laplace, norm

from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.means import (
    binary_mean,
    clip_for_deviation,
    clip_for_norm,
    clipped_mean,
    clipped_variance,
    vector_mean,
)
from fedpriv.privacy.randomness import RandomStream
from tests.statistical import assert_distribution_follows


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(4, request.node.name)


def _discrete_laplace_cdf(k: NDArray[np.float64], *, scale: float) -> NDArray[np.float64]:
    tail = exp(-1 / scale) / (1 + exp(-1 / scale)) * np.exp(-np.abs(k) / scale)
    low = tail * exp(1 / scale)  # P(X ≤ k) for k < 0
    return np.where(k < 0, low, 1 - tail)


def test_a_binary_mean_carries_laplace_noise_of_scale_one_over_n_epsilon(
    stream: RandomStream,
) -> None:
    """False failure 1e-9; noise for twice the ε is caught."""
    bits = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    noise = np.array([binary_mean(bits, epsilon=0.5, stream=stream) for _ in range(5000)])
    steps = np.rint(noise * 10 - 2)
    assert_distribution_follows(steps, partial(_discrete_laplace_cdf, scale=2.0))
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(steps, partial(_discrete_laplace_cdf, scale=1.0))


def test_a_clipped_mean_carries_laplace_noise_of_scale_two_clips_over_n_epsilon(
    stream: RandomStream,
) -> None:
    """False failure 1e-9; noise for an add-remove neighbour, half as large, is caught."""
    values = np.array([0.5, -0.5, 100.0, -7.0])  # clipped to 0.5, -0.5, 2, -2: mean 0
    means = np.array(
        [clipped_mean(values, clip=2.0, epsilon=0.8, stream=stream) for _ in range(5000)]
    )
    noise = means * 4 * 0.8 / 4.0  # in units of the scale 2·clip/(n·ε)
    law = partial(_discrete_laplace_cdf, scale=2.0**20)
    assert_distribution_follows(np.rint(noise * 2**20), law)
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(np.rint(noise / 2 * 2**20), law)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20), st.floats(1e-300, 1e300))
def test_without_noise_a_clipped_mean_is_the_mean_of_clipped_values(
    values: list[float], clip: float
) -> None:
    """An ε so large that the noise is zero, up to one step of the grid."""
    mean = clipped_mean(values, clip=clip, epsilon=1e9, stream=RandomStream.seeded(0))
    expected = np.mean(np.clip(values, -clip, clip) / clip)
    assert mean / clip == pytest.approx(expected, abs=2.0**-19)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=10),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_replacing_a_value_moves_the_integer_sum_by_two_clips_at_most(
    values: list[float], other: float
) -> None:
    """The same seed adds the same noise, so the difference is that of the sums on the grid."""
    neighbour = [other, *values[1:]]
    first, second = (
        clipped_mean(v, clip=1.5, epsilon=0.3, stream=RandomStream.seeded(1))
        for v in (values, neighbour)
    )
    assert abs(first - second) * len(values) <= 3.0 * (1 + 1e-9)


def test_the_clip_balances_bias_and_noise() -> None:
    n, epsilon, deviation = 400, 0.25, 3.0
    clip = clip_for_deviation(deviation=deviation, count=n, epsilon=epsilon)
    assert clip == deviation * sqrt(n * epsilon) / 2
    bias, noise = deviation**2 / (4 * clip), 2 * clip / (n * epsilon)
    assert noise == pytest.approx(2 * bias) == pytest.approx(deviation / sqrt(n * epsilon))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_the_inequality_behind_the_bias_holds(x: float, clip: float) -> None:
    assert max(0.0, abs(x) - clip) <= x**2 / (4 * clip) * (1 + 1e-12)


@pytest.mark.parametrize("values", [[], [[1.0]], [nan], [1.0, inf], 3.0])
def test_values_that_are_not_finite_numbers_are_refused(values: Any, stream: RandomStream) -> None:
    with pytest.raises(ValueError, match="values must be"):
        clipped_mean(values, clip=1.0, epsilon=1.0, stream=stream)
    with pytest.raises(ValueError, match="bits must be"):
        binary_mean(values, epsilon=1.0, stream=stream)


def test_what_is_not_a_bit_is_refused_without_being_shown(stream: RandomStream) -> None:
    with pytest.raises(ValueError, match="bits must all be 0 or 1") as caught:
        binary_mean([0, 1, 31337], epsilon=1.0, stream=stream)
    assert "31337" not in str(caught.value)


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
def test_parameters_that_are_not_positive_are_refused(bad: float, stream: RandomStream) -> None:
    with pytest.raises(ValueError, match="clip must be positive"):
        clipped_mean([1.0], clip=bad, epsilon=1.0, stream=stream)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        clipped_mean([1.0], clip=1.0, epsilon=bad, stream=stream)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        binary_mean([1.0], epsilon=bad, stream=stream)
    with pytest.raises(ValueError, match="deviation must be positive"):
        clip_for_deviation(deviation=bad, count=1, epsilon=1.0)
    with pytest.raises(ValueError, match="count must be"):
        clip_for_deviation(deviation=1.0, count=0, epsilon=1.0)


def test_a_variance_carries_the_noise_of_both_its_releases(stream: RandomStream) -> None:
    """Mean 0, so that its noise enters squared: 1/n of the other's. Half the noise is caught.

    False failure 1e-9 for the noise on the mean of squares, Laplace of scale 2·clip²/(n·ε); what
    the squared noise of the mean adds moves the distribution by less than 0.01 of the band's 0.046.
    """
    values = np.tile([1.0, -1.0], 5000)
    found = [clipped_variance(values, clip=2.0, epsilon=1.0, stream=stream) for _ in range(5000)]
    noise = (np.array(found) - 1.0) / (2 * 4.0 / 10_000)
    law = partial(laplace.cdf, scale=1.0)
    assert_distribution_follows(noise, law)
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(noise / 2, law)


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=20), st.floats(1e-6, 1e6))
def test_without_noise_a_variance_is_that_of_clipped_values(
    values: list[float], clip: float
) -> None:
    found = clipped_variance(values, clip=clip, epsilon=1e9, stream=RandomStream.seeded(0))
    assert found / clip**2 == pytest.approx(np.var(np.clip(values, -clip, clip) / clip), abs=1e-5)


def test_a_vector_mean_carries_the_gaussian_noise_of_its_sensitivity(stream: RandomStream) -> None:
    """False failure 1e-9; the noise of an add-remove neighbour, half as large, is caught."""
    rows = np.array([[3.0, 4.0, 0.0], [-30.0, -40.0, 0.0]])  # clipped to ±(0.6, 0.8, 0): mean 0
    mu = gdp_mu(epsilon=1.0, delta=1e-5)
    how: dict[str, Any] = {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5, "stream": stream}
    noise = np.concatenate([vector_mean(rows, **how) for _ in range(3000)]) * 2 * mu / 2
    assert_distribution_follows(noise, norm.cdf)
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(noise / 2, norm.cdf)


@given(st.lists(st.lists(st.floats(-1e200, 1e200), min_size=3, max_size=3), min_size=1, max_size=9))
def test_no_vector_moves_a_mean_by_more_than_its_clip(rows: list[list[float]]) -> None:
    """Almost without noise: the first vector against its opposite, and how far the mean goes."""
    other = [[-x for x in rows[0]], *rows[1:]]
    how: dict[str, Any] = {"clip": 0.5, "epsilon": 1e9, "delta": 0.5}
    one, two = (vector_mean(r, **how, stream=RandomStream.seeded(0)) for r in (rows, other))
    assert np.linalg.norm(one - two) * len(rows) <= 2 * 0.5 + 1e-3


@pytest.mark.parametrize("length", [1e-190, 1e-170, 1e-100, 1.0, 1e300])
def test_no_vector_moves_a_mean_by_more_than_a_tiny_clip(length: float) -> None:
    """Their squares vanish, as that of the clip does: nothing was clipped."""
    how: dict[str, Any] = {"clip": 1e-200, "epsilon": 1e9, "delta": 0.5}
    one, two = (
        vector_mean([[sign * length, 0.0], [0.0, 0.0]], **how, stream=RandomStream.seeded(0))
        for sign in (1, -1)
    )
    assert np.linalg.norm((one - two) / 1e-200) * 2 <= 2 + 1e-3


def test_the_clip_of_a_norm_balances_bias_and_noise_and_falls_with_the_dimension() -> None:
    how: dict[str, Any] = {"deviation": 3.0, "count": 500, "epsilon": 1.0, "delta": 1e-6}
    one, many = (clip_for_norm(dimension=d, **how) for d in (1, 16))
    assert one == pytest.approx(2 * many)
    mu = gdp_mu(epsilon=1.0, delta=1e-6)
    assert 9.0 / (4 * many) == pytest.approx(4.0 * 2 * many / (500 * mu))


def test_what_is_no_matrix_of_numbers_is_refused(stream: RandomStream) -> None:
    for rows in ([], [1.0, 2.0], [[nan, 1.0]]):
        with pytest.raises(ValueError, match="rows must be"):
            vector_mean(rows, clip=1.0, epsilon=1.0, delta=1e-6, stream=stream)
