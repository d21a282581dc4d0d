"""Skellam noise on samples: against brute force in both orders, and against sampled Gaussians."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import skellam

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant, UnsupportedEvent, account
from fedpriv.privacy.accountants.sampled_shares import LARGEST_ORDER, sampled_divergence
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PoissonGaussianEvent, PoissonSkellamEvent, SkellamEvent
from fedpriv.privacy.planning.plan import sampled

A = Adjacency.ADD_REMOVE


def on_a_sample(variance: float, moved: float, rate: float) -> PoissonSkellamEvent:
    return PoissonSkellamEvent(
        variance=variance,
        l1_sensitivity=moved,
        l2_sensitivity=moved,
        sampling_rate=rate,
        adjacency=A,
    )


def divergence(order: int, event: SkellamEvent) -> float:
    (found,) = RdpAccountant(adjacency=A, orders=(float(order),)).cost(event)
    return found


def exact(order: int, log_p: np.ndarray, log_q: np.ndarray) -> float:
    """D_α of two laws, from their probabilities."""
    return float(np.logaddexp.reduce(order * log_p + (1 - order) * log_q) / (order - 1))


@pytest.mark.parametrize("variance", [4.0, 16.0, 100.0])
@pytest.mark.parametrize("moved", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_no_pair_of_laws_is_further_apart(variance: float, moved: int, rate: float) -> None:
    """Both orders, by sums over all integers that matter; with exact D_l the first is met."""
    x = np.arange(-300, 301)
    p = skellam.pmf(x, variance / 2, variance / 2)
    q = skellam.pmf(x - moved, variance / 2, variance / 2)
    kept = (p > 1e-250) & (q > 1e-250)
    log_p, log_q = np.log(p[kept]), np.log(q[kept])
    log_m = np.logaddexp(np.log1p(-rate) + log_p, np.log(rate) + log_q)
    for order in (2, 3, 5, 9):
        joins, leaves = exact(order, log_m, log_p), exact(order, log_p, log_m)
        assert leaves <= joins * (1 + 1e-9)
        assert joins <= divergence(order, on_a_sample(variance, moved, rate))
        met = sampled_divergence(order, rate, lambda each: exact(each, log_q, log_p))
        assert met == pytest.approx(joins, rel=1e-8)


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta", "epsilon"),
    [  # specification, reference values: sampled Gaussians by Rényi divergences
        (0.01, 1.0, 1000, 1e-5, 2.10136653),
        (0.05, 5.0, 1000, 1e-6, 1.50974978),
    ],
)
def test_on_a_fine_grid_it_costs_what_gaussian_noise_does(
    rate: float, noise: float, rounds: int, delta: float, epsilon: float
) -> None:
    scale = 2.0**20
    event = replace(on_a_sample((noise * scale) ** 2, scale, rate), l1_sensitivity=2 * scale)
    report = account([(event, rounds)], delta=delta)
    assert report.accountant == "rdp"
    assert report.epsilon is not None
    assert epsilon * (1 - 1e-6) <= report.epsilon <= epsilon * 1.005  # the best order is no integer
    gaussian = PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)
    by_rdp = account([(gaussian, rounds)], delta=delta, accountant="rdp").epsilon
    assert by_rdp is not None
    assert by_rdp * (1 - 1e-9) <= report.epsilon


def test_sampling_never_costs_and_large_orders_count_on_none() -> None:
    whole = SkellamEvent(variance=16.0, l1_sensitivity=2.0, l2_sensitivity=2.0, adjacency=A)
    event = sampled(whole, 0.999)
    assert event == on_a_sample(16.0, 2.0, 0.999)
    assert isinstance(event, PoissonSkellamEvent)
    for order in (2, 7, 64, LARGEST_ORDER, LARGEST_ORDER + 1, 2**20):
        assert divergence(order, event) <= divergence(order, whole)
    assert divergence(LARGEST_ORDER + 1, event) == divergence(LARGEST_ORDER + 1, whole)
    rare = on_a_sample(1e6, 1.0, 1e-6)  # terms far below the rounding of one
    assert divergence(2, rare) == pytest.approx(1e-12 * divergence(2, sampled_none(rare)), rel=1e-6)


def sampled_none(event: PoissonSkellamEvent) -> SkellamEvent:
    return SkellamEvent(
        variance=event.variance,
        l1_sensitivity=event.l1_sensitivity,
        l2_sensitivity=event.l2_sensitivity,
        adjacency=event.adjacency,
    )


def test_where_it_is_not_proved_it_is_not_priced() -> None:
    with pytest.raises(ValueError, match="add-remove"):
        replace(on_a_sample(4.0, 1.0, 0.5), adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(UnsupportedEvent):
        PldAccountant(adjacency=A).compose(on_a_sample(4.0, 1.0, 0.5))
