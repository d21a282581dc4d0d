"""The cost of noise in shares: at least its exact divergence, and what the theorems say."""

from functools import reduce
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath.ctx_mp import MPContext

from fedpriv.privacy.accountants import RdpAccountant, UnsupportedEvent, account
from fedpriv.privacy.accountants.rdp import _distributed_gaussian, convolution_gap
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.conversions import rdp_epsilon
from fedpriv.privacy.events import DistributedGaussianEvent, PureEvent, SkellamEvent
from fedpriv.privacy.mechanisms.shares import NoiseShare, SharedNoise, ShareLaw
from tests.privacy.mechanisms.share_laws import SHARES, every_law, one_share

R = Adjacency.REPLACE_ONE


def oracle(event: DistributedGaussianEvent, order: float) -> float:
    """The formula of Kairouz, Liu and Steinke 2021 in 60 digits."""
    mp = MPContext()
    mp.dps = 60
    s, n, d = mp.mpf(event.share_stddev), event.shares, event.dimension
    tau = 10 * sum(
        (mp.exp(-2 * mp.pi**2 * s**2 * mp.mpf(k) / (k + 1)) for k in range(1, n)), mp.mpf(0)
    )
    l1, l2 = (mp.mpf(x) / (mp.sqrt(n) * s) for x in (event.l1_sensitivity, event.l2_sensitivity))
    a = mp.mpf(order)
    return float(
        min(
            a * l2**2 / 2 + tau * d,
            a / 2 * (l2**2 + 2 * l1 * tau + tau**2 * d),
            a / 2 * (l2 + mp.sqrt(d) * tau) ** 2,
        )
    )


@given(
    shares=st.integers(1, 3000),
    stddev=st.floats(2, 6),
    l2=st.floats(0.5, 100),
    ratio=st.floats(1, 30),
    dimension=st.integers(1, 10**7),
    order=st.sampled_from([1.1, 2.0, 7.3, 64.0, 512.0]),
)
@settings(max_examples=40)
def test_the_cost_of_discrete_gaussian_shares_is_that_of_the_theorem(
    shares: int, stddev: float, l2: float, ratio: float, dimension: int, order: float
) -> None:
    event = DistributedGaussianEvent(
        adjacency=R, shares=shares, share_stddev=stddev, l1_sensitivity=l2 * ratio,
        l2_sensitivity=l2, dimension=dimension,
    )  # fmt: skip
    (divergence,) = RdpAccountant(adjacency=R, orders=(order,)).cost(event)
    exact = oracle(event, order)
    assert divergence >= exact * (1 - 1e-12)
    assert divergence == pytest.approx(exact, rel=1e-3 if shares > 1000 else 1e-9)


@pytest.mark.parametrize(
    ("tau", "l1", "d", "which"),
    [(0.05, 300.0, 10, 0), (0.05, 20.0, 1000, 1), (0.05, 4000.0, 1000, 2)],
)
def test_the_cost_is_the_least_of_three_bounds(tau: float, l1: float, d: int, which: int) -> None:
    """Each of them in turn, at a τ that no share allowed here has: there it would not be seen."""
    event = DistributedGaussianEvent(
        adjacency=R, shares=4, share_stddev=5.0, l1_sensitivity=l1, l2_sensitivity=20.0,
        dimension=d,
    )  # fmt: skip
    a, m1, m2 = 6.0, l1 / 10, 2.0  # √4 · 5 = 10
    bounds = (
        a * m2 * m2 / 2 + tau * d,
        a * (m2 * m2 + 2 * m1 * tau + tau * tau * d) / 2,
        a * (m2 + sqrt(d) * tau) ** 2 / 2,
    )
    assert min(bounds) == bounds[which]
    assert _distributed_gaussian(a, event, tau) == pytest.approx(bounds[which], rel=1e-12)


@pytest.mark.parametrize(
    ("shares", "stddev", "tau"),
    [(1, 2.0, 0.0), (2, 2.0, 7.16e-17), (10, 1.0, 5.435e-4)],
)
def test_the_gap_of_a_sum_of_discrete_gaussians(shares: int, stddev: float, tau: float) -> None:
    """By hand: 10·e^(-39.478) for two shares of 2; 10·Σ e^(-19.739·k/(k+1)) for ten of 1."""
    assert convolution_gap(shares=shares, share_stddev=stddev) == pytest.approx(tau, rel=5e-3)


def test_the_gap_is_never_below_its_sum() -> None:
    exact = 10 * sum(np.exp(-2 * np.pi**2 * 4 * k / (k + 1)) for k in range(1, 5000))
    gap = convolution_gap(shares=5000, share_stddev=2.0)
    assert exact <= gap <= exact * 1.1


def test_skellam_shares_cost_what_the_reference_says() -> None:
    """Δ₂ = 100, Δ₁ = 700, variance 1e6, T = 100, δ = 1e-5: ε = 4.75273069 (integer orders)."""
    mechanism = SharedNoise(
        adjacency=R,
        share=NoiseShare(law="skellam", parameter=1e6 / 16, minimum=18, colluders=2),
        l1_sensitivity=700.0,
        l2_sensitivity=100.0,
        dimension=49,
        step=2.0**-10,
    )
    assert mechanism.event() == SkellamEvent(
        adjacency=R, variance=1e6, l1_sensitivity=700.0, l2_sensitivity=100.0
    )
    orders = tuple(map(float, range(2, 513)))
    accountant = RdpAccountant(adjacency=R, orders=orders).compose(mechanism.event(), 100)
    assert accountant.epsilon(1e-5) == pytest.approx(4.75273069, rel=1e-8)


def test_discrete_gaussian_shares_of_a_fine_grid_cost_what_a_gaussian_costs() -> None:
    event = DistributedGaussianEvent(
        adjacency=R, shares=16, share_stddev=250.0, l1_sensitivity=700.0, l2_sensitivity=100.0,
        dimension=49,
    )  # fmt: skip
    orders = np.arange(2.0, 513)
    epsilon = RdpAccountant(adjacency=R, orders=tuple(orders)).compose(event, 100).epsilon(1e-5)
    gaussian = rdp_epsilon(orders=orders, divergences=100 * orders * 100**2 / 2e6, delta=1e-5)
    assert epsilon == pytest.approx(gaussian, rel=1e-12)
    assert epsilon == pytest.approx(4.752, abs=1e-3)


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("moved", [1, 3, 10])
def test_the_cost_is_not_below_the_divergence_of_the_law_itself(law: str, moved: int) -> None:
    """On one coordinate: D_α of the sum of n_min shares and itself moved, by summation."""
    share = SHARES[law]
    pmf = reduce(np.convolve, [one_share(share)] * share.honest)
    pmf = pmf[np.abs(np.arange(pmf.size) - pmf.size // 2) <= 90]
    mechanism = SharedNoise(
        adjacency=R,
        share=share,
        l1_sensitivity=float(moved),
        l2_sensitivity=float(moved),
        dimension=1,
        step=1.0,
    )
    orders = (2.0, 3.0, 5.0, 8.0)
    stated = RdpAccountant(adjacency=R, orders=orders).cost(mechanism.event())
    for order, bound in zip(orders, stated, strict=True):
        ratio = order * np.log(pmf[moved:]) - (order - 1) * np.log(pmf[:-moved])
        exact = float(np.log(np.exp(ratio).sum()) / (order - 1))
        assert exact <= bound * (1 + 1e-9)
        assert exact >= 0.5 * bound  # half the noise would cost four times as much


@every_law
def test_the_event_counts_on_honest_survivors_alone(law: ShareLaw) -> None:
    """Two cohorts with the same n_min cost the same; a colluder more costs more, or adds noise."""
    values: dict[str, Any] = {
        "adjacency": R, "l1_sensitivity": 30.0, "l2_sensitivity": 10.0, "dimension": 9, "step": 1.0,
    }  # fmt: skip

    def mechanism(minimum: int, colluders: int) -> SharedNoise:
        share = NoiseShare(law=law, parameter=200.0, minimum=minimum, colluders=colluders)
        return SharedNoise(share=share, **values)

    one, same, fewer = mechanism(10, 0), mechanism(13, 3), mechanism(10, 1)
    assert one.event() == same.event()
    assert one.noise_stddev == same.noise_stddev
    if law == "polya":
        assert fewer.share.variance > one.share.variance
    else:
        rdp = RdpAccountant(adjacency=R)
        assert rdp.compose(fewer.event()).epsilon(1e-6) > rdp.compose(one.event()).epsilon(1e-6)


def test_a_discrete_gaussian_share_below_two_steps_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"share_stddev must be at least 2.*finer grid"):
        SharedNoise(
            adjacency=R,
            share=NoiseShare(law="discrete-gaussian", parameter=1.9, minimum=4),
            l1_sensitivity=1.0,
            l2_sensitivity=1.0,
            dimension=1,
            step=1.0,
        )


def test_only_accountants_with_a_theorem_price_the_shares() -> None:
    event = DistributedGaussianEvent(
        adjacency=R, shares=3, share_stddev=50.0, l1_sensitivity=3.0, l2_sensitivity=2.0,
        dimension=4,
    )  # fmt: skip
    for name in ("gdp", "pld", "zcdp", "tcdp"):
        with pytest.raises(UnsupportedEvent):
            account([(event, 1)], delta=1e-6, accountant=name)
    assert account([(event, 1)], delta=1e-6).accountant == "rdp"


def test_an_l1_sensitivity_of_integers_is_rounded_down() -> None:
    mechanism = SharedNoise(
        adjacency=R,
        share=NoiseShare(law="polya", parameter=7.0, minimum=2),
        l1_sensitivity=7.99,
        l2_sensitivity=3.0,
        dimension=9,
        step=1.0,
    )
    assert mechanism.event() == PureEvent(adjacency=R, epsilon=1.0)
