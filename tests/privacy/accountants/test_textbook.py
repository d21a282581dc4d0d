"""Textbook accountants: δ is shared out once, and ε-DP costs what its divergence says."""

from __future__ import annotations

from math import exp, log, sqrt, tanh

import pytest

from fedpriv.privacy.accountants.basic import AdvancedAccountant, BasicAccountant
from fedpriv.privacy.accountants.zcdp import ZcdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.conversions import tcdp_subsampled
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.gaussian import gdp_epsilon

A = Adjacency.ADD_REMOVE
NOISY = GaussianEvent(relative_noise=20.0, adjacency=A)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_basic_composition_shares_out_its_delta(count: int) -> None:
    found = BasicAccountant(adjacency=A).compose(NOISY, count).epsilon(1e-6)
    assert found == pytest.approx(count * gdp_epsilon(mu=1 / 20, delta=1e-6 / count), rel=1e-12)


def test_advanced_composition_pays_for_its_slack_and_for_its_releases() -> None:
    """Half of δ for the deviation, the other half in equal parts for the releases."""
    each = gdp_epsilon(mu=1 / 20, delta=1e-6 / 2 / 50)
    expected = each * sqrt(2 * 50 * log(2 / 1e-6)) + 50 * each * tanh(each / 2)
    found = AdvancedAccountant(adjacency=A).compose(NOISY, 50).epsilon(1e-6)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0])
def test_pure_privacy_costs_no_less_than_randomised_response_diverges(epsilon: float) -> None:
    """ρ-zCDP is D_α ≤ ρα for all α; near α = 1 the divergence is ε·tanh(ε/2), about ε²/2."""
    rho = ZcdpAccountant(adjacency=A).compose(PureEvent(epsilon=epsilon, adjacency=A)).rho
    p = 1 / (1 + exp(-epsilon))
    for order in (1 + 1e-6, 1.5, 2.0, 8.0):
        kept = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        assert log(kept) / (order - 1) <= rho * order * (1 + 1e-9)
    assert rho <= epsilon**2 / 2


def test_truncated_amplification_has_the_constants_of_its_theorem() -> None:
    """(13q²ρ, ln(1/q)/(4ρ)): Bun, Dwork, Rothblum and Steinke 2018, Thm. 11."""
    budget = tcdp_subsampled(rho=0.01, sampling_rate=0.02)
    assert budget.rho == pytest.approx(13 * 0.02**2 * 0.01, rel=1e-14)
    assert budget.omega == pytest.approx(log(50) / 0.04, rel=1e-14)
