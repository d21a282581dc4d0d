"""The samplers against independent forms of their laws, and their tables against exact arithmetic.

Independent: a Skellam draw is compared with the convolution of two Poisson laws, rounded draws with
differences of distribution functions; the sampler itself uses Bessel functions and densities.
"""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from functools import partial
from math import inf, nan, nextafter, sqrt
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath.ctx_mp import MPContext
from numpy.typing import NDArray
from scipy.stats import laplace, norm, poisson

from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
    bernoulli_exp,
    rounded_normals,
)
from fedpriv.privacy.samplers.comparison import TIE, uniform_below
from fedpriv.privacy.samplers.rejection import RejectionTable
from fedpriv.privacy.samplers.sampler import IntegerSampler
from fedpriv.privacy.samplers.skellam import _scaled_bessel
from tests.statistical import (
    assert_counts_follow,
    assert_distribution_follows,
    assert_mean_is,
)

Pmf = Callable[[NDArray[np.int64], float], NDArray[np.float64]]
DRAWS = 1_000_000


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    normalised: NDArray[np.float64] = weights / weights.sum()
    return normalised


def _skellam_pmf(k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    mean = scale**2 / 2
    jumps = poisson.pmf(
        np.arange(max(0, int(mean - 15 * scale)), int(mean + 15 * scale + 50)), mean
    )
    both: NDArray[np.float64] = np.convolve(jumps, jumps[::-1])
    reach = jumps.size - 1
    return np.where(np.abs(k) <= reach, both[np.clip(k, -reach, reach) + reach], 0.0)


LAWS: dict[str, tuple[Callable[[float], IntegerSampler], Pmf]] = {
    "discrete-gaussian": (
        lambda scale: DiscreteGaussian(stddev=scale),
        lambda k, scale: _normalised(np.exp(-(k**2) / (2 * scale**2))),
    ),
    "rounded-gaussian": (
        lambda scale: RoundedGaussian(stddev=scale),
        lambda k, scale: norm.cdf((k + 0.5) / scale) - norm.cdf((k - 0.5) / scale),
    ),
    "discrete-laplace": (
        lambda scale: DiscreteLaplace(scale=scale),
        lambda k, scale: _normalised(np.exp(-np.abs(k) / scale)),
    ),
    "rounded-laplace": (
        lambda scale: RoundedLaplace(scale=scale),
        lambda k, scale: laplace.cdf((k + 0.5) / scale) - laplace.cdf((k - 0.5) / scale),
    ),
    "skellam": (lambda scale: Skellam(variance=scale**2), _skellam_pmf),
}
every_law = pytest.mark.parametrize("law", LAWS)


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


@given(st.floats(2.0**-20, 2.0**42), st.sampled_from(list(LAWS)))
@settings(deadline=None, max_examples=60)
def test_every_scale_in_range_has_a_table_that_wastes_little(scale: float, law: str) -> None:
    table = LAWS[law][0](scale)._table
    assert table.bin_of_slot.size == 2**16
    assert (table.counts >= 0).all()
    assert table.lower.size <= 2**11 + 1
    assert (table.lower <= table.upper).all()
    assert table.uniform_bits >= 8
    kept = table.counts @ (table.lower / 2.0**table.uniform_bits) / 2**16
    assert kept > 0.8


@pytest.mark.parametrize("scale", [0.0, -1.0, nan, inf, 2.0**-21, 2.0**43])
def test_scales_that_no_table_covers_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="stddev must"):
        DiscreteGaussian(stddev=scale)
    with pytest.raises(ValueError, match="stddev must"):
        RoundedGaussian(stddev=scale)
    with pytest.raises(ValueError, match="scale must"):
        DiscreteLaplace(scale=scale)
    with pytest.raises(ValueError, match="scale must"):
        RoundedLaplace(scale=scale)
    with pytest.raises(ValueError, match="variance must"):
        Skellam(variance=scale * abs(scale))


def test_a_sampler_is_a_value() -> None:
    sampler = DiscreteGaussian(stddev=2.0)
    assert sampler == DiscreteGaussian(stddev=2.0)
    assert sampler != DiscreteGaussian(stddev=3.0)
    assert repr(sampler) == "DiscreteGaussian(stddev=2.0)"
    with pytest.raises(FrozenInstanceError):
        sampler.stddev = 3.0  # type: ignore[misc]


def test_laws_of_equal_numbers_have_tables_of_their_own_which_nobody_changes() -> None:
    """Tables are kept: what a law gets must not depend on which laws came before it."""
    makers: list[Callable[[], IntegerSampler]] = [
        partial(DiscreteGaussian, stddev=3.0),
        partial(DiscreteGaussian, stddev=3),
        partial(DiscreteGaussian, stddev=nextafter(3.0, inf)),
        partial(DiscreteLaplace, scale=3.0),
        partial(Skellam, variance=3.0),
        partial(RoundedGaussian, stddev=3.0),
        partial(RoundedLaplace, scale=3.0),
    ]

    def drawn(maker: Callable[[], IntegerSampler]) -> list[int]:
        return [int(x) for x in maker().draw(500, RandomStream.seeded(1, "kept"))]

    alone = []
    for maker in makers:
        RejectionTable.build.cache_clear()
        alone.append(drawn(maker))
    assert [drawn(maker) for maker in [*makers, *makers]] == [*alone, *alone]
    table = makers[0]()._table
    for kept in (table.counts, table.lower, table.upper, table.bin_of_slot):
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 1


# --- The exact law behind a table ---------------------------------------------------------------


def _context(bits: int = 256) -> Any:
    context = MPContext()
    context.prec = bits
    return context


def _implied_law(table: RejectionTable, mp: Any) -> dict[int, Any]:
    """What a discrete table draws, from its own numbers: slots, places in the bin, acceptance.

    Acceptance is exact between a bin's two bounds and certain outside them, so a wrong bound, or
    a threshold above one, would show as a wrong law.
    """
    width = 1 << table.width_bits
    unit = mp.ldexp(1, -table.uniform_bits)
    slots = np.bincount(table.bin_of_slot, minlength=table.lower.size)
    weights: dict[int, Any] = {}
    for index in range(table.lower.size - 1):
        if slots[index] == 0:
            continue
        for x in range(width):
            k = (index - table.lower.size // 2) * width + x
            accept = table.law.exact_ratio(mp.mpf(k), mp) * mp.mpf(table.scale)
            accept /= int(table.counts[index])
            accept = min(
                max(accept, int(table.lower[index]) * unit), int(table.upper[index]) * unit
            )
            weights[k] = int(slots[index]) * min(accept, mp.mpf(1))
    total = mp.fsum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def _target(law: str, scale: float, mp: Any) -> Callable[[int], Any]:
    s = mp.mpf(scale)
    if law == "discrete-gaussian":
        normaliser = mp.jtheta(3, 0, mp.exp(-1 / (2 * s**2)))
        return lambda k: mp.exp(-(mp.mpf(k) ** 2) / (2 * s**2)) / normaliser
    if law == "discrete-laplace":
        return lambda k: mp.tanh(1 / (2 * s)) * mp.exp(-abs(k) / s)
    # Two Poisson variables with mean s²/2: all ways to differ by k.
    return lambda k: (
        mp.exp(-(s**2))
        * mp.fsum(
            (s**2 / 2) ** (2 * j + abs(k)) / mp.factorial(j) / mp.factorial(j + abs(k))
            for j in range(150)
        )
    )


@pytest.mark.parametrize(
    ("law", "scale"),
    [
        ("discrete-gaussian", 0.3),
        ("discrete-gaussian", 3.0),
        ("discrete-gaussian", 200.0),
        ("discrete-laplace", 0.7),
        ("discrete-laplace", 60.0),
        ("skellam", 0.25),
        ("skellam", 4.0),
    ],
)
def test_the_law_of_a_table_is_within_2_to_the_minus_102_of_its_target(
    law: str, scale: float
) -> None:
    """No sampling: every integer of every bin, in 256-bit arithmetic."""
    mp = _context()
    implied = _implied_law(LAWS[law][0](scale)._table, mp)
    target = _target(law, scale, mp)
    inside = {k: target(k) for k in implied}
    outside = 1 - mp.fsum(inside.values())
    distance = (mp.fsum(abs(implied[k] - inside[k]) for k in implied) + outside) / 2
    assert distance <= mp.ldexp(1, -102)


def test_the_law_of_a_table_with_a_wrong_bound_is_caught() -> None:
    mp = _context()
    table = DiscreteGaussian(stddev=200.0)._table
    lower = table.lower.copy()
    lower[table.lower.size // 2 + 20] += 2**30  # accepts a millionth more than it should
    implied = _implied_law(replace(table, lower=lower), mp)
    target = _target("discrete-gaussian", 200.0, mp)
    assert mp.fsum(abs(implied[k] - target(k)) for k in implied) / 2 > mp.ldexp(1, -60)


@every_law
@pytest.mark.parametrize("scale", [0.3, 31.0, 33.0, 1e4, 1e9, 4e12])
def test_float_ratios_are_accurate_and_bounds_of_bins_hold(law: str, scale: float) -> None:
    """Against 256 bits, at both ends of bins across the whole table, the middle ones included."""
    mp = _context()
    table = LAWS[law][0](scale)._table
    bins = table.lower.size - 1
    chosen = np.unique([*np.linspace(0, bins - 1, 24).astype(int), bins // 2 - 1, bins // 2])
    width = 1 << table.width_bits
    unit = mp.ldexp(1, -table.uniform_bits)
    for index in chosen.tolist():
        first = (index - bins // 2) * width + table.offset
        for x in (first, first + width - 1):
            exact = table.law.exact_ratio(mp.mpf(x), mp)
            ratio = mp.mpf(float(table.law.ratio(np.array([float(x)]))[0]))
            assert abs(ratio - exact) <= max(exact * TIE / 4, mp.ldexp(1, -64))
            if table.counts[index]:
                accept = exact * mp.mpf(table.scale) / int(table.counts[index])
                assert int(table.lower[index]) * unit <= accept <= 1
                assert accept <= int(table.upper[index]) * unit


@pytest.mark.parametrize(
    ("variance", "k"), [(1e3, 0), (1e3, 400), (1e4, 900), (1e6, 5000), (1e18, 0), (1e18, 10**10)]
)
def test_the_saddle_point_sum_is_the_bessel_function(variance: float, k: int) -> None:
    """mpmath's own series, at a precision where it converges for these arguments."""
    mp, reference = _context(), _context(400)
    v = reference.mpf(variance)
    expected = reference.exp(-v) * reference.besseli(k, v, maxterms=10**5)
    actual = reference.mpf(_scaled_bessel(mp.mpf(k), mp.mpf(variance), mp))
    assert abs(actual - expected) <= expected * reference.ldexp(1, -240)


@pytest.mark.parametrize("deviations", [0.0, 0.5, 1.0, 3.0, 12.0])
def test_the_middle_of_a_fine_cell_stands_for_the_cell(deviations: float) -> None:
    """RoundedSampler's claim, at its coarsest grid: relative error (z² - 1)/24·2^-80."""
    mp = _context()
    scale = mp.ldexp(1, 40)
    x = int(deviations * 2.0**40)
    mass = mp.erfc(x / scale / mp.sqrt(2)) - mp.erfc((x + 1) / scale / mp.sqrt(2))
    middle = mp.exp(-(((x + 0.5) / scale) ** 2) / 2) * mp.sqrt(2 / mp.pi) / scale
    expected = mp.mpf(deviations**2 - 1) / 24 / scale**2
    assert abs((mass - middle) / mass - expected) <= mp.ldexp(1, -110)


@pytest.mark.parametrize("scale", [2.0**-20, 0.3, 1.0, 2.0**20, 2.0**39.5, 2.0**42])
def test_rounded_laws_are_drawn_on_a_grid_at_least_that_fine(scale: float) -> None:
    bits = RoundedGaussian(stddev=scale)._fine_bits
    assert 1 <= bits <= 62
    assert scale * 2.0**bits >= 2.0**40


# --- Ties ---------------------------------------------------------------------------------------


class _Script:
    """Stands in for a stream and hands out prepared words, one at a time."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count, "more words were drawn than expected"
        return np.array(taken, dtype=np.uint64)


def _propose(table: RejectionTable, script: _Script) -> list[int]:
    return [int(x) for x in table._propose(1, cast("RandomStream", script))]


@every_law
@pytest.mark.parametrize("scale", [200.0, 1e6])
def test_a_tie_is_decided_by_bits_that_float64_does_not_have(law: str, scale: float) -> None:
    """The first 64 + b bits of u are those of the threshold itself; the next word decides."""
    mp = _context(400)
    table = LAWS[law][0](scale)._table
    index, place = table.lower.size // 2 + 30, 1
    x = 30 * (1 << table.width_bits) + place
    accept = table.law.exact_ratio(mp.mpf(x) + table.offset, mp) * mp.mpf(table.scale)
    accept /= int(table.counts[index])
    bits = int(mp.floor(mp.ldexp(accept, table.uniform_bits + 128)))
    leading, trailing, deciding = bits >> 128, (bits >> 64) % 2**64, bits % 2**64
    slot = int(np.flatnonzero(table.bin_of_slot == index)[0])
    word = slot | place << 16 | leading << (16 + table.width_bits)
    assert table.lower[index] <= leading < table.upper[index]
    nudge = 2**24  # of 2^64: far below what float64 could see
    below, above = (
        _Script(word, trailing, deciding - nudge),
        _Script(word, trailing, deciding + nudge),
    )
    assert _propose(table, below) == [x]
    assert _propose(table, above) == []
    assert not below.left
    assert not above.left


def test_float64_decides_everything_outside_the_tie_band() -> None:
    asked: list[int] = []

    def decide(index: int, context: Any) -> bool:
        asked.append(index)
        return True

    threshold = np.full(5, 0.5)
    uniform = threshold + np.array([-2, -1, 0, 1, 2]) * TIE
    below = uniform_below(uniform, threshold, decide)
    assert asked == [1, 2, 3]
    assert below.tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("stddev", [0.4, 1.0, 13.7, 3e6])
def test_normals_of_many_scales_round_like_a_gaussian_of_each(
    stddev: float, stream: RandomStream
) -> None:
    """False failure 1e-9; half the scale is caught. Two scales, interleaved."""
    stddevs = np.tile([stddev, 7.5 * stddev], DRAWS // 4)
    drawn = rounded_normals(stddevs, stream)
    for draws, scale in ((drawn[::2], stddev), (drawn[1::2], 7.5 * stddev)):
        assert_distribution_follows(draws, partial(_rounded_normal_cdf, scale=scale))
        with pytest.raises(AssertionError, match="outside"):
            assert_distribution_follows(draws, partial(_rounded_normal_cdf, scale=2 * scale))


def _rounded_normal_cdf(k: NDArray[np.float64], *, scale: float) -> NDArray[np.float64]:
    cdf: NDArray[np.float64] = norm.cdf((k + 0.5) / scale)
    return cdf


def test_a_normal_at_the_border_of_two_integers_is_rounded_exactly() -> None:
    """The cell of 2^-42 holds a half-integer multiple of the scale; its next bits decide."""
    stddev = 1.5 / 1.1
    target = 2.5 / stddev * 2.0**42  # the cell in which stddev · normal crosses 2.5
    table = RoundedGaussian(stddev=2.0**41)._table  # one bit finer: the same cells
    cell, inside = int(target), target - int(target)
    width = 1 << table.width_bits
    index = table.lower.size // 2 + cell // width
    slot = int(np.flatnonzero(table.bin_of_slot == index)[0])
    word = slot | (cell % width) << 16  # u = 0: accepted
    filler = [word] * 16  # a draw of one proposes 17
    for rest, expected in ((0, 2), (2**64 - 1, 3)):
        script = _Script(word, *filler, rest)
        drawn = rounded_normals(np.array([stddev]), cast("RandomStream", script))
        assert drawn.tolist() == [expected]
        assert not script.left
    assert 0 < inside < 1


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


def test_a_coin_flip_resolves_probabilities_below_float64() -> None:
    exponents = np.array([60.0])  # 2^-86.6: no 64-bit uniform is that small, save zero
    heads = _Script(0, 1)
    tails = _Script(0, 2**64 - 1)
    assert bernoulli_exp(exponents, cast("RandomStream", heads)).tolist() == [True]
    assert bernoulli_exp(exponents, cast("RandomStream", tails)).tolist() == [False]


def test_slots_that_no_bin_owns_reject() -> None:
    table = DiscreteGaussian(stddev=200.0)._table
    slot = int(np.flatnonzero(table.bin_of_slot == table.lower.size - 1)[0])
    assert _propose(table, _Script(slot)) == []


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
