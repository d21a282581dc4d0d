"""Pólya noise against its law by convolution, and its jumps against exact arithmetic."""

from dataclasses import FrozenInstanceError
from math import inf, log, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import exp1
from scipy.stats import nbinom

from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import Polya
from fedpriv.privacy.samplers.comparison import exact_context
from tests.statistical import (
    assert_counts_follow,
    assert_distribution_follows,
    assert_mean_is,
)

DRAWS = 200_000


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(1, request.node.name)


def _pmf(shape: float, scale: float) -> NDArray[np.float64]:
    """P(X - Y = k) for |k| ≤ reach, in the middle of the array."""
    one = nbinom.pmf(np.arange(int(45 * scale + 60)), shape, -np.expm1(-1 / scale))
    both: NDArray[np.float64] = np.convolve(one, one[::-1])
    return both


def _cells(draws: NDArray[np.int64], pmf: NDArray[np.float64]) -> tuple[Any, Any]:
    """Counts and probabilities of every value expected at least 25 times, and of both tails."""
    middle = pmf.size // 2
    last = int(np.flatnonzero(pmf * draws.size >= 25)[-1]) - middle
    inner = pmf[middle - last : middle + last + 1]
    tail = (1 - inner.sum()) / 2
    counts = np.bincount(np.clip(draws, -last - 1, last + 1) + last + 1, minlength=inner.size + 2)
    return counts, np.array([tail, *inner, tail])


CASES = [(1.0, 0.5), (1.0, 8.0), (0.25, 3.0), (0.02, 40.0), (1.7, 20.0), (1 / 3, 0.0625)]


@pytest.mark.parametrize(("shape", "scale"), CASES)
def test_draws_have_the_probabilities_of_their_law(
    shape: float, scale: float, stream: RandomStream
) -> None:
    """False failure 1e-9."""
    draws = Polya(shape=shape, scale=scale).draw(DRAWS, stream)
    assert draws.dtype == np.int64
    assert_counts_follow(*_cells(draws, _pmf(shape, scale)))


@pytest.mark.parametrize(("shape", "scale"), CASES[:5])
def test_draws_of_half_the_scale_or_half_the_shape_are_caught(
    shape: float, scale: float, stream: RandomStream
) -> None:
    for wrong in (
        Polya(shape=shape, scale=scale / 2),
        Polya(shape=shape / 2, scale=scale),
    ):
        draws = wrong.draw(DRAWS, stream)
        with pytest.raises(AssertionError, match="outside"):
            assert_counts_follow(*_cells(draws, _pmf(shape, scale)))


@pytest.mark.parametrize("scale", [1e4, 1e9, 2.0**36])
def test_the_whole_is_discrete_laplace_at_any_scale(scale: float, stream: RandomStream) -> None:
    """False failure 1e-9. At 2^36 about one jump in 250 is settled in arbitrary precision."""
    draws = Polya(shape=1.0, scale=scale).draw(50_000, stream)

    def cdf(x: NDArray[np.float64]) -> NDArray[np.float64]:
        p = np.exp(-1 / scale)
        tail = np.exp(-(np.abs(x) + (x >= 0)) / scale) / (1 + p)
        probability: NDArray[np.float64] = np.where(x >= 0, 1 - tail, tail)
        return probability

    assert_distribution_follows(draws, cdf)
    with pytest.raises(AssertionError, match="outside"):
        assert_distribution_follows(draws // 2, cdf)


def test_large_jumps_follow_the_exponential_integral(stream: RandomStream) -> None:
    """False failure 1e-9. P(L > k) is E₁(k/t)/b up to 1/k."""
    scale = 2.0**30
    sizes = Polya(shape=1.0, scale=scale)._sizes(DRAWS, stream)
    large = sizes[sizes >= 10**6]

    def cdf(k: NDArray[np.float64]) -> NDArray[np.float64]:
        probability: NDArray[np.float64] = 1 - exp1((k + 0.5) / scale) / exp1((10**6 - 0.5) / scale)
        return probability

    assert_distribution_follows(large, cdf)
    assert_mean_is((sizes >= 10**6).astype(float), exp1(10**6 / scale) / log(scale), 0.25)


@given(shape=st.floats(1e-4, 2), scale=st.floats(0.0625, 2.0**36), seed=st.integers(0, 100))
@settings(max_examples=40)
def test_every_jump_is_the_exact_quotient_of_its_random_bits(
    shape: float, scale: float, seed: int
) -> None:
    """Where the 64 bits drawn decide it, whatever the bits to come, float64 decided the same."""
    count = 40
    sizes = Polya(shape=shape, scale=scale)._sizes(count, RandomStream.seeded(seed))
    words = RandomStream.seeded(seed).words(2 * count).astype(object)
    context = exact_context()
    rate = -context.log(-context.expm1(-1 / context.mpf(scale)))
    decided = 0
    for u, v, size in zip(words[:count], words[count:], sizes.tolist(), strict=True):
        corners = {
            int(
                context.floor(
                    context.log(context.ldexp(v + dv, -64))
                    / context.log(-context.expm1(-rate * context.ldexp(u + du, -64)))
                )
            )
            for du in (0.001, 1)
            for dv in (0.001, 1)
        }
        if len(corners) == 1:
            decided += 1
            assert size == corners.pop() + 1
    assert decided >= count - 4


EDGES = [0, 1, 2**11, 2**40, 2**63, 2**64 - 2**11, 2**64 - 1]


@given(
    scale=st.floats(0.0625, 2.0**36),
    u=st.integers(0, 2**64 - 1) | st.sampled_from(EDGES),
    v=st.integers(0, 2**64 - 1) | st.sampled_from(EDGES),
)
@settings(max_examples=200)
def test_the_quotient_is_never_further_off_than_its_doubt(scale: float, u: int, v: int) -> None:
    """Against 256 bits, at the ends of the cells that the bits to come can reach."""
    sampler = Polya(shape=1e-3, scale=scale)
    (quotient,), (doubt,) = sampler._quotients(np.array([u], np.uint64), np.array([v], np.uint64))
    context = exact_context()
    rate = -context.log(-context.expm1(-1 / context.mpf(scale)))
    for du in (2**-20, 1):
        for dv in (2**-20, 1):
            top = context.log(context.ldexp(context.mpf(v) + dv, -64))
            exact = top / context.log(-context.expm1(-rate * context.ldexp(u + du, -64)))
            assert abs(exact - quotient) <= doubt
    # It is no excuse for settling everything in arbitrary precision.
    if min(u, v) > 2**54:
        assert doubt <= (quotient + scale) * 2.0**-40


@given(shape=st.floats(1e-4, 50), scale=st.floats(0.0625, 2.0**36))
@settings(max_examples=30)
def test_the_table_of_jumps_is_that_of_a_poisson_law(shape: float, scale: float) -> None:
    sampler = Polya(shape=shape, scale=scale)
    thresholds = sampler._thresholds
    context = exact_context()
    mean = 2 * context.mpf(shape) * -context.log(-context.expm1(-1 / context.mpf(scale)))
    assert (np.diff(thresholds.astype(object)) >= 0).all()
    for k in {0, len(thresholds) // 2, len(thresholds) - 1} & set(range(len(thresholds))):
        exact = context.gammainc(k + 1, mean, regularized=True)  # P(N ≤ k)
        assert abs(int(thresholds[k]) - exact * 2**64) <= 1
    if len(thresholds):
        last = context.gammainc(len(thresholds) + 1, mean, regularized=True)
        assert 1 - last <= context.ldexp(1, -104)


def test_a_word_on_a_threshold_is_settled_by_more_bits() -> None:
    """A stream that hands out the thresholds themselves: either neighbour, never another value."""
    sampler = Polya(shape=1.0, scale=5.0)

    class OnThreshold:
        def __init__(self, more: int) -> None:
            self.more = more

        def words(self, count: int) -> NDArray[np.uint64]:
            if count == 1:
                return np.array([self.more], np.uint64)
            return sampler._thresholds[:count].copy()

    count = min(8, sampler._thresholds.size)
    low = sampler._jumps(count, OnThreshold(0))  # type: ignore[arg-type]
    high = sampler._jumps(count, OnThreshold(2**64 - 1))  # type: ignore[arg-type]
    assert (low == np.arange(count)).all()
    assert (high == np.arange(count) + 1).all()


@given(shapes=st.lists(st.floats(0.01, 2), min_size=2, max_size=4), scale=st.floats(0.1, 1e6))
@settings(max_examples=15)
def test_variances_of_shares_add_up(shapes: list[float], scale: float) -> None:
    whole = Polya(shape=sum(shapes), scale=scale).variance
    assert whole == pytest.approx(sum(Polya(shape=s, scale=scale).variance for s in shapes))


def test_any_number_of_draws_at_once_and_none() -> None:
    sampler = Polya(shape=0.5, scale=1e5)
    assert sampler.draw(0, RandomStream.seeded(1)).shape == (0,)
    assert Polya(shape=1e-4, scale=0.1).draw(5, RandomStream.seeded(1)).tolist() == [0] * 5
    many = sampler.draw(60_000, RandomStream.seeded(1))  # several chunks
    assert many.shape == (60_000,)
    assert np.unique(many).size > 20_000


@pytest.mark.parametrize("bad", [0, -1.0, nan, inf, True, "1"])
def test_parameters_that_are_not_positive_numbers_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="shape must"):
        Polya(shape=bad, scale=1.0)
    with pytest.raises(ValueError, match="scale must"):
        Polya(shape=1.0, scale=bad)


def test_what_the_error_bounds_do_not_cover_is_refused() -> None:
    with pytest.raises(ValueError, match="choose a coarser grid"):
        Polya(shape=1.0, scale=2.0**37)
    with pytest.raises(ValueError, match="choose a finer grid"):
        Polya(shape=1.0, scale=2.0**-5)
    with pytest.raises(ValueError, match="jumps"):
        Polya(shape=1e4, scale=100.0)


def test_a_sampler_is_a_frozen_value() -> None:
    sampler = Polya(shape=1.0, scale=2.0)
    assert sampler == Polya(shape=1.0, scale=2.0)
    with pytest.raises(FrozenInstanceError):
        sampler.scale = 3.0  # type: ignore[misc]
