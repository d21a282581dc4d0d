"""The tables of the samplers: their implied law, against exact arithmetic."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, nan, nextafter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
)
from fedpriv.privacy.samplers.comparison import TIE
from fedpriv.privacy.samplers.rejection import RejectionTable
from fedpriv.privacy.samplers.sampler import IntegerSampler
from fedpriv.privacy.samplers.skellam import _scaled_bessel
from tests.privacy.samplers.laws import LAWS, every_law, exactly


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
    mp = exactly()
    implied = _implied_law(LAWS[law][0](scale)._table, mp)
    target = _target(law, scale, mp)
    inside = {k: target(k) for k in implied}
    outside = 1 - mp.fsum(inside.values())
    distance = (mp.fsum(abs(implied[k] - inside[k]) for k in implied) + outside) / 2
    assert distance <= mp.ldexp(1, -102)


def test_the_law_of_a_table_with_a_wrong_bound_is_caught() -> None:
    mp = exactly()
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
    mp = exactly()
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
    mp, reference = exactly(), exactly(400)
    v = reference.mpf(variance)
    expected = reference.exp(-v) * reference.besseli(k, v, maxterms=10**5)
    actual = reference.mpf(_scaled_bessel(mp.mpf(k), mp.mpf(variance), mp))
    assert abs(actual - expected) <= expected * reference.ldexp(1, -240)


@pytest.mark.parametrize("deviations", [0.0, 0.5, 1.0, 3.0, 12.0])
def test_the_middle_of_a_fine_cell_stands_for_the_cell(deviations: float) -> None:
    """RoundedSampler's claim, at its coarsest grid: relative error (z² - 1)/24·2^-80."""
    mp = exactly()
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
