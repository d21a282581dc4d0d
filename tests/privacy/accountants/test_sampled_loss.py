"""Sampled releases of many distinct noises: a sound ε, within half a percent of the truth.

``FEDPRIV_STRESS=1`` compares a thousand distinct noises with dp-accounting's own distributions, on
a fine grid and without levels: some minutes.
"""

from __future__ import annotations

import os
from functools import reduce
from time import perf_counter

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import GdpAccountant, account
from fedpriv.privacy.accountants.sampled_loss import added_delta, removed_delta, sampled_loss
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.releases import gaussian_releases, on_levels

A = Adjacency.ADD_REMOVE
STRESS = "FEDPRIV_STRESS" in os.environ
DELTA = 1e-6
NEARLY_ALL = 1 - 2e-15  # sampling at this rate is a full batch to nine digits
ROUNDS = 1000
SHAPES = {
    "falling fourfold": np.geomspace(4, 1, ROUNDS),
    "falling to strong losses": np.geomspace(4, 0.7, ROUNDS),
    "falling 10⁴-fold": np.geomspace(1e4, 1, ROUNDS),
    "rising evenly": np.linspace(1, 6, ROUNDS),
    "one loud block": np.concatenate([0.8 + np.arange(5) / 1000, np.geomspace(3, 9, ROUNDS - 5)]),
}


SOME = tuple(SHAPES) if STRESS else ("falling fourfold", "falling 10⁴-fold")


def by_pld(noises: np.ndarray, rate: float) -> float:
    releases = gaussian_releases(noises.tolist(), sampling_rate=rate, adjacency=A)
    epsilon = account(releases, delta=DELTA, accountant="pld").epsilon
    assert epsilon is not None
    return epsilon


def reference(noises: np.ndarray, rate: float, step: float) -> float:
    """dp-accounting's own distributions, composed one after the other, without levels."""
    singles = (
        privacy_loss_distribution.from_gaussian_mechanism(
            noise, value_discretization_interval=step, sampling_prob=rate
        )
        for noise in noises.tolist()
    )
    total = reduce(lambda left, right: left.compose(right), singles)
    return float(total.get_epsilon_for_delta(DELTA))


@pytest.mark.parametrize("shape", SOME)
@pytest.mark.parametrize("rate", [1.0, NEARLY_ALL], ids=["full batch", "sampled"])
def test_a_thousand_distinct_noises_cost_what_exact_gaussians_do(shape: str, rate: float) -> None:
    """The exact ε is known without sampling: never below it, at most half a percent above."""
    noises = SHAPES[shape] * 30
    gaussians = gaussian_releases(noises.tolist(), adjacency=A)
    exact = GdpAccountant(adjacency=A).compose_all(gaussians).epsilon(DELTA)
    assert exact * (1 - 1e-8) <= by_pld(noises, rate) <= exact * 1.005


@pytest.mark.deep
def test_more_distinct_noises_than_levels_on_a_sample_cost_what_all_of_them_do() -> None:
    """80 noises, once as they are and once on 50 levels; the reference shares no code."""
    noises = np.geomspace(4, 1, 80)
    truth = reference(noises, 0.01, 4e-4)
    assert truth * (1 - 5e-4) <= by_pld(noises, 0.01) <= truth * 1.005
    leveled = on_levels(
        gaussian_releases(noises.tolist(), sampling_rate=0.01, adjacency=A), most=50
    )
    assert len(leveled) <= 50
    rounded = account(leveled, delta=DELTA, accountant="pld").epsilon
    assert rounded is not None
    assert truth * (1 - 5e-4) <= rounded <= truth * 1.01


@pytest.mark.skipif(not STRESS, reason="minutes: run by FEDPRIV_STRESS=1")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_thousand_distinct_noises_on_a_sample_cost_what_all_of_them_do(shape: str) -> None:
    started = perf_counter()
    epsilon = by_pld(SHAPES[shape], 0.01)
    assert perf_counter() - started <= 15
    truth = reference(SHAPES[shape], 0.01, 2e-4)
    assert truth * (1 - 5e-4) <= epsilon <= truth * 1.005


@given(
    noise=st.floats(-3, 6).map(np.exp),
    rate=st.one_of(st.floats(1e-9, 1 - 1e-12), st.sampled_from([1e-4, 0.01, 0.5, NEARLY_ALL])),
    place=st.floats(-1, 1),
)
def test_the_closed_forms_are_the_divergences_of_the_pair(
    noise: float, rate: float, place: float
) -> None:
    """Against mpmath, by the definition: to four units of rounding beside 1."""
    score = place * 10 / noise + 0.5 / noise**2 * np.sign(place)
    removed = float(np.logaddexp(np.log1p(-rate), np.log(rate) + score))
    with mpmath.workdps(60):
        q, s = mpmath.mpf(rate), mpmath.mpf(noise)
        for epsilon, curve in ((removed, removed_delta), (-removed, added_delta)):
            e = mpmath.mpf(epsilon)
            ratio = mpmath.exp(e if curve is removed_delta else -e) - (1 - q)
            if ratio <= 0:
                truth = 1 - mpmath.exp(e) if curve is removed_delta else mpmath.mpf(0)
            else:
                x = s**2 * mpmath.log(ratio / q) + mpmath.mpf(1) / 2
                far, near = mpmath.ncdf(-x / s), mpmath.ncdf(-(x - 1) / s)
                mixed, plain = (1 - q) * far + q * near, far
                if curve is removed_delta:  # beyond x the mixture is the likelier
                    truth = mixed - mpmath.exp(e) * plain
                else:
                    truth = (1 - plain) - mpmath.exp(e) * (1 - mixed)
            (delta,) = curve(np.array([epsilon]), noise=noise, rate=rate)
            assert abs(mpmath.mpf(float(delta)) - truth) <= 4 * mpmath.mpf(2) ** -53


@pytest.mark.parametrize(("noise", "rate"), [(0.6, 0.01), (1.0, 0.2), (5.0, 0.001), (2.0, 0.9)])
def test_one_release_has_the_loss_that_dp_accounting_finds(noise: float, rate: float) -> None:
    step = 1e-4
    ours = sampled_loss(noise=noise, rate=rate, step=step)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=step, sampling_prob=rate
    )
    for epsilon in (0.0, 0.003, 0.1, 1.0):
        expected = theirs.get_delta_for_epsilon(epsilon)
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-14)
