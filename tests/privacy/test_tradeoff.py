"""Trade-off curves: the two notions agree where they must."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.gaussian import gdp_delta
from fedpriv.privacy.tradeoff import (
    attack_advantage,
    gaussian_attack_advantage,
    gaussian_tradeoff_curve,
    tradeoff_curve,
)

GRID = np.linspace(0, 1, 4_001)


@given(mu=st.floats(0.05, 4))
def test_the_gaussian_curve_is_the_envelope_of_its_epsilon_delta_curves(mu: float) -> None:
    epsilons = np.linspace(0, mu * (mu / 2 + 6), 200)
    curves = [tradeoff_curve(GRID, epsilon=e, delta=gdp_delta(mu=mu, epsilon=e)) for e in epsilons]
    envelope = np.max(curves, axis=0)
    exact = gaussian_tradeoff_curve(GRID, mu=mu)
    assert np.all(envelope <= exact + 1e-12)
    np.testing.assert_allclose(envelope, exact, atol=2e-3)


@given(epsilon=st.floats(0, 10), delta=st.floats(0, 0.5))
def test_the_advantage_is_the_largest_gap_of_the_curve(epsilon: float, delta: float) -> None:
    gap = np.max(1 - GRID - tradeoff_curve(GRID, epsilon=epsilon, delta=delta))
    assert gap == pytest.approx(attack_advantage(epsilon=epsilon, delta=delta), abs=1e-3)


@given(mu=st.floats(0.01, 5))
def test_the_gaussian_advantage_is_its_total_variation(mu: float) -> None:
    assert gaussian_attack_advantage(mu=mu) == pytest.approx(gdp_delta(mu=mu, epsilon=0))


def test_no_privacy_is_no_protection_and_huge_epsilon_does_not_overflow() -> None:
    assert attack_advantage(epsilon=2000, delta=0) == 1
    assert attack_advantage(epsilon=0, delta=0) == 0
    assert tradeoff_curve([0.0, 0.5], epsilon=2000, delta=0).tolist() == [1.0, 0.0]
    assert tradeoff_curve([0.2], epsilon=0, delta=0)[0] == pytest.approx(0.8)
    assert attack_advantage(epsilon=1, delta=0) == pytest.approx((exp(1) - 1) / (exp(1) + 1))


def test_rates_are_probabilities() -> None:
    with pytest.raises(ValueError, match=r"false_alarm must lie in \[0, 1\]"):
        tradeoff_curve([1.5], epsilon=1, delta=0)
