from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fedpriv.learning.sampling import poisson_sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORDS, ROUNDS = 2000, 200


def inclusions(rate: float, seed: int) -> NDArray[np.int64]:
    """How often each record was in a sample."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(RECORDS, dtype=np.int64)
    for _ in range(ROUNDS):
        counts[poisson_sample(RECORDS, rate=rate, uniforms=rng.random)] += 1
    return counts


def assert_rate(counts: NDArray[np.int64], rate: float, *, false_failure: float = 1e-9) -> None:
    """Reject a correct sampler with probability at most ``false_failure``: exact binomials.

    Half of it for the total, half for the least and the most sampled record (a union bound).
    """
    total = counts.size * ROUNDS
    low, high = binom.ppf([false_failure / 4, 1 - false_failure / 4], total, rate)
    assert low <= counts.sum() <= high, f"the rate is not {rate}"
    each = false_failure / (4 * counts.size)
    low, high = binom.ppf([each, 1 - each], ROUNDS, rate)
    assert low <= counts.min(), "a record is left out"
    assert counts.max() <= high, "a record is preferred"


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_every_record_is_sampled_at_the_stated_rate(rate: float) -> None:
    assert_rate(inclusions(rate, seed=1), rate)


def test_the_rate_check_has_teeth() -> None:
    """A rate 5 % too high lies 14 standard deviations away."""
    with pytest.raises(AssertionError, match="the rate is not"):
        assert_rate(inclusions(0.315, seed=1), 0.3)
    skewed = inclusions(0.3, seed=1)
    skewed[:2] = [0, 60 + skewed[0]]
    with pytest.raises(AssertionError, match="a record is left out"):
        assert_rate(skewed, 0.3)


def assert_binomial_variance(sizes: NDArray[np.int64], records: int, rate: float) -> None:
    """Independent coins make sizes of variance n·q(1-q); 8 deviations fail below 1e-14."""
    ratio = sizes.var(ddof=1) / (records * rate * (1 - rate))
    deviation = (2 / (sizes.size - 1)) ** 0.5
    assert abs(ratio - 1) < 8 * deviation, "the coins are not independent"


def test_records_join_independently() -> None:
    rng = np.random.default_rng(2)
    sizes = [poisson_sample(200, rate=0.25, uniforms=rng.random).size for _ in range(4000)]
    assert_binomial_variance(np.array(sizes), 200, 0.25)


def test_the_independence_check_has_teeth() -> None:
    """Samples of one size, and records that join in pairs, are both caught."""
    with pytest.raises(AssertionError, match="not independent"):
        assert_binomial_variance(np.full(4000, 50), 200, 0.25)
    rng = np.random.default_rng(2)
    pairs = [2 * poisson_sample(100, rate=0.25, uniforms=rng.random).size for _ in range(4000)]
    with pytest.raises(AssertionError, match="not independent"):
        assert_binomial_variance(np.array(pairs), 200, 0.25)


@pytest.mark.parametrize(("grid", "offset"), [(2**53, 0.0), (2**52, 0.5)])
@given(rate=st.floats(2.0**-40, 1.0), cell=st.integers(0, 2**53 - 1), near=st.booleans())
def test_no_grid_of_uniforms_samples_above_the_rate(
    grid: int, offset: float, rate: float, cell: int, near: bool
) -> None:
    """The included cells are the lowest, and there are at most rate × grid of them."""
    allowed = int(np.floor(rate * grid))
    index = min(grid - 1, max(0, allowed - 1 + cell % 3) if near else cell % grid)
    uniform = np.array([(index + offset) / grid])
    included = poisson_sample(1, rate=rate, uniforms=lambda _: uniform)
    assert included.size == (index + 1 <= allowed)


def test_rate_one_takes_all_and_no_records_give_no_sample() -> None:
    rng = np.random.default_rng(0)
    assert poisson_sample(50, rate=1.0, uniforms=rng.random).tolist() == list(range(50))
    assert poisson_sample(0, rate=0.5, uniforms=rng.random).size == 0


def test_the_sample_is_a_function_of_the_uniforms() -> None:
    uniforms = np.array([0.4, 0.6, 0.1, 0.5])
    indices = poisson_sample(4, rate=0.5, uniforms=lambda _: uniforms)
    assert indices.tolist() == [0, 2]
    assert indices.dtype == np.int64


def test_bad_rates_and_sources_are_refused() -> None:
    rng = np.random.default_rng(0)
    for rate in (0.0, -0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"rate must lie in \(0, 1\]"):
            poisson_sample(3, rate=rate, uniforms=rng.random)
    with pytest.raises(ValueError, match="records must be finite and at least 0"):
        poisson_sample(-1, rate=0.5, uniforms=rng.random)
    with pytest.raises(ValueError, match="uniforms must return one number per record"):
        poisson_sample(3, rate=0.5, uniforms=lambda _: np.zeros(2))
