from functools import partial
from math import exp, inf, nan, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedpriv.privacy.means import binary_mean, clip_for_deviation, clipped_mean
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
