"""The samplers' draws against independent forms of their laws.

Independent: a Skellam draw is compared with the convolution of two Poisson laws, rounded draws with
differences of distribution functions; the sampler itself uses Bessel functions and densities.
"""

from dataclasses import FrozenInstanceError
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import laplace, norm

from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    Skellam,
    bernoulli_exp,
    rounded_normals,
)
from tests.privacy.samplers.laws import LAWS, every_law
from tests.statistical import assert_counts_follow, assert_distribution_follows, assert_mean_is

DRAWS = 1_000_000


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(1, request.node.name)


def _cells(draws: NDArray[np.int64], law: str, scale: float) -> tuple[Any, Any]:
    """Counts and probabilities of every value expected at least 25 times, and of both tails."""
    support = np.arange(-int(60 * scale + 60), int(60 * scale + 60) + 1)
    pmf = LAWS[law][1](support, scale)
    common = support[pmf * draws.size >= 25]
    low, high = int(common[0]), int(common[-1])
    clipped = np.clip(draws, low - 1, high + 1) - (low - 1)
    inner = pmf[(support >= low) & (support <= high)]
    tail = (1 - inner.sum()) / 2
    return np.bincount(clipped, minlength=inner.size + 2), np.array([tail, *inner, tail])


@every_law
@pytest.mark.parametrize("scale", [0.3, 1.0, 7.3, 50.0, 90.0])
def test_draws_have_the_probabilities_of_their_law(
    law: str, scale: float, stream: RandomStream
) -> None:
    """False failure 1e-9. Scale 50 is the last one-integer bin, at 90 bins are wider."""
    draws = LAWS[law][0](scale).draw(DRAWS, stream)
    assert draws.dtype == np.int64
    assert_counts_follow(*_cells(draws, law, scale))


@every_law
@pytest.mark.parametrize("scale", [0.6, 7.3, 90.0])
def test_draws_of_half_the_scale_are_caught(law: str, scale: float, stream: RandomStream) -> None:
    draws = LAWS[law][0](scale / 2).draw(DRAWS, stream)
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(*_cells(draws, law, scale))


@every_law
@pytest.mark.parametrize("scale", [1e4, 1e9, 3.7e12])
def test_large_scales_follow_the_continuous_law(
    law: str, scale: float, stream: RandomStream
) -> None:
    """False failure 1e-9: from 1e4 on, all laws are within 1e-8 of the continuous one."""
    cdf = laplace.cdf if law.endswith("laplace") else norm.cdf
    draws = LAWS[law][0](scale).draw(DRAWS, stream)
    assert_distribution_follows(draws, lambda k: cdf((k + 0.5) / scale))
    with pytest.raises(AssertionError, match="outside the band"):
        assert_distribution_follows(draws, lambda k: cdf((k + 0.5) / (scale * 1.02)))


@every_law
def test_low_bits_of_wide_noise_are_uniform(law: str, stream: RandomStream) -> None:
    """False failure 1e-9: a coarse grid inside the noise would reveal the sum's low bits."""
    draws = LAWS[law][0](1e9).draw(DRAWS, stream)
    assert_counts_follow(np.bincount(draws & 255, minlength=256), np.full(256, 1 / 256))
    with pytest.raises(AssertionError, match="outside"):
        assert_counts_follow(
            np.bincount(draws // 4 * 4 & 255, minlength=256), np.full(256, 1 / 256)
        )


@every_law
@pytest.mark.parametrize("scale", [0.3, 2.5, 1e6])
def test_first_four_moments_are_those_of_the_law(
    law: str, scale: float, stream: RandomStream
) -> None:
    """Seven standard errors each: 3e-12 a moment, by the central limit theorem."""
    draws = LAWS[law][0](scale).draw(DRAWS, stream).astype(float)
    if scale < 1e3:
        support = np.arange(-400, 401)
        pmf = LAWS[law][1](support, scale)
        moment = [float((pmf * support.astype(float) ** order).sum()) for order in range(9)]
    else:
        even = [1, 2, 24, 720, 40320] if law.endswith("laplace") else [1, 1, 3, 15, 105]
        moment = [even[n // 2] * scale**n if n % 2 == 0 else 0.0 for n in range(9)]
    for order in (1, 2, 3, 4):
        variance = moment[2 * order] - moment[order] ** 2
        assert_mean_is(draws**order, moment[order], variance)
        if order in (2, 4):
            with pytest.raises(AssertionError, match="outside"):
                assert_mean_is((0.9 * draws) ** order, moment[order], variance)


@every_law
def test_no_draws_is_an_empty_array(law: str, stream: RandomStream) -> None:
    draws = LAWS[law][0](3.0).draw(0, stream)
    assert draws.shape == (0,)
    assert draws.dtype == np.int64


@every_law
def test_equal_streams_draw_equal_noise(law: str) -> None:
    sampler = LAWS[law][0](123.4)
    first = sampler.draw(70_000, RandomStream.seeded(5))
    assert (first == sampler.draw(70_000, RandomStream.seeded(5))).all()


def test_a_sampler_is_a_value() -> None:
    sampler = DiscreteGaussian(stddev=2.0)
    assert sampler == DiscreteGaussian(stddev=2.0)
    assert sampler != DiscreteGaussian(stddev=3.0)
    assert repr(sampler) == "DiscreteGaussian(stddev=2.0)"
    with pytest.raises(FrozenInstanceError):
        sampler.stddev = 3.0  # type: ignore[misc]


@pytest.mark.parametrize("stddev", [0.4, 1.0, 13.7, 3e6])
def test_normals_of_many_scales_round_like_a_gaussian_of_each(
    stddev: float, stream: RandomStream
) -> None:
    """False failure 1e-9; half the scale is caught. Two scales, interleaved."""
    stddevs = np.tile([stddev, 7.5 * stddev], DRAWS // 4)
    drawn = rounded_normals(stddevs, stream)
    for draws, scale in ((drawn[::2], stddev), (drawn[1::2], 7.5 * stddev)):
        assert_distribution_follows(draws, partial(rounded_normal_cdf, scale=scale))
        with pytest.raises(AssertionError, match="outside"):
            assert_distribution_follows(draws, partial(rounded_normal_cdf, scale=2 * scale))


def rounded_normal_cdf(k: NDArray[np.float64], *, scale: float) -> NDArray[np.float64]:
    cdf: NDArray[np.float64] = norm.cdf((k + 0.5) / scale)
    return cdf


def test_coins_show_the_stated_probability(stream: RandomStream) -> None:
    """False failure 1e-9; twice the exponent is caught."""
    for exponent in (0.0, 0.1, 1.0, 6.0):
        heads = int(bernoulli_exp(np.full(DRAWS, exponent), stream).sum())
        chance = np.exp(-exponent)
        counts = np.array([heads, DRAWS - heads])
        assert_counts_follow(counts, np.array([chance, 1 - chance]))
        if exponent:
            with pytest.raises(AssertionError, match="outside"):
                assert_counts_follow(counts, np.array([chance**2, 1 - chance**2]))


def test_standard_deviation_parameters_mean_what_they_say(stream: RandomStream) -> None:
    """False failure 3e-12: second moments against closed forms, not the pmf of this file."""
    t = 4.0
    laplace_variance = 2 * np.exp(-1 / t) / (1 - np.exp(-1 / t)) ** 2
    for sampler, variance in (
        (DiscreteGaussian(stddev=6.0), 36.0),
        (RoundedGaussian(stddev=6.0), 36.0 + 1 / 12),
        (Skellam(variance=36.0), 36.0),
        (DiscreteLaplace(scale=t), laplace_variance),
    ):
        squares = sampler.draw(DRAWS, stream).astype(float) ** 2
        assert_mean_is(squares, variance, float(squares.var()))
    assert sqrt(laplace_variance) == pytest.approx(5.642, abs=1e-3)
