"""Exact Gaussian privacy: against mpmath, against published values, and against itself."""

from math import exp, isinf, log, sqrt

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.gaussian import (
    classical_gaussian_stddev,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    log_gdp_delta,
)

MUS = st.floats(1e-5, 30)
EPSILONS = st.floats(1e-4, 30)
DELTAS = st.floats(-30, -0.5).map(exp)


def log_delta_oracle(mu: float, epsilon: float) -> float:
    with mpmath.workdps(80):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        delta = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        return float(mpmath.log(delta))


@given(mu=MUS, ratio=st.floats(1e-3, 20))
def test_delta_is_an_upper_bound_on_the_true_one_and_close_to_it(mu: float, ratio: float) -> None:
    truth = log_delta_oracle(mu, ratio * mu)
    computed = log_gdp_delta(mu=mu, epsilon=ratio * mu)
    assert truth <= computed <= truth + 1e-14 * (1 + (1 + ratio) / mu + abs(truth))


# Golden values: mpmath at 50 digits.
@pytest.mark.parametrize(
    ("rho", "delta", "epsilon"),
    [
        (0.01, 1e-5, 0.4969753639),
        (0.1, 1e-5, 1.760057150),
        (0.5, 1e-6, 4.886554117),
        (1, 1e-6, 7.286080966),
        (0.005, 1e-8, 0.4928503654),
        (5, 1e-5, 17.85658683),
    ],
)
def test_epsilon_of_a_zcdp_budget_spent_on_gaussians(
    rho: float, delta: float, epsilon: float
) -> None:
    assert gdp_epsilon(mu=sqrt(2 * rho), delta=delta) == pytest.approx(epsilon, rel=1e-9)


# Golden values of the analytic Gaussian mechanism: mpmath.
@pytest.mark.parametrize(
    ("epsilon", "delta", "stddev"),
    [
        (0.1, 1e-5, 30.74956613),
        (0.5, 1e-3, 4.610127951),
        (1, 1e-5, 3.730631635),
        (1, 1e-6, 4.224678889),
        (4, 1e-6, 1.193518587),
        (10, 1e-5, 0.4998886197),
    ],
)
def test_analytic_gaussian_noise(epsilon: float, delta: float, stddev: float) -> None:
    assert 1 / gdp_mu(epsilon=epsilon, delta=delta) == pytest.approx(stddev, rel=1e-9)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_mu_meets_its_budget_and_is_the_largest_that_does(epsilon: float, delta: float) -> None:
    mu = gdp_mu(epsilon=epsilon, delta=delta)
    assert gdp_delta(mu=mu, epsilon=epsilon) <= delta * (1 + 1e-12)
    assert gdp_delta(mu=mu * (1 + 1e-6), epsilon=epsilon) > delta


@given(mu=st.floats(1e-3, 30), delta=DELTAS)
def test_epsilon_inverts_delta_on_the_private_side(mu: float, delta: float) -> None:
    epsilon = gdp_epsilon(mu=mu, delta=delta)
    assert log_gdp_delta(mu=mu, epsilon=epsilon) <= log(delta)
    if epsilon > 1e-6:
        assert log_gdp_delta(mu=mu, epsilon=epsilon * (1 - 1e-6)) > log(delta)


@given(mu=MUS, delta=DELTAS, factor=st.floats(1.01, 3))
def test_more_noise_and_more_delta_never_cost_more(mu: float, delta: float, factor: float) -> None:
    epsilon = gdp_epsilon(mu=mu, delta=delta)
    assert gdp_epsilon(mu=mu / factor, delta=delta) <= epsilon
    assert gdp_epsilon(mu=mu, delta=min(0.9, delta * factor)) <= epsilon * (1 + 1e-12)


def test_the_classical_gaussian_is_not_private_at_large_epsilon() -> None:
    """At (10, 1e-5) its true delta is 2.3e-5: the reason why nothing here calibrates with it."""
    mu = 1 / classical_gaussian_stddev(epsilon=10, delta=1e-5)
    assert gdp_delta(mu=mu, epsilon=10) == pytest.approx(2.3e-5, rel=0.05)


def test_a_loss_tail_is_not_delta() -> None:
    """Pr[loss >= epsilon] = 5.3e-5 where delta is 1e-5: the tail bound is sufficient only."""
    epsilon = gdp_epsilon(mu=1, delta=1e-5)
    tail = float(mpmath.ncdf(-epsilon + 0.5))
    assert epsilon == pytest.approx(4.377178096, rel=1e-9)
    assert tail == pytest.approx(5.3e-5, rel=0.02)


def test_pure_privacy_is_out_of_reach_of_gaussian_noise() -> None:
    assert isinf(gdp_epsilon(mu=1, delta=0))
    with pytest.raises(ValueError, match="delta must be positive for Gaussian noise, got 0"):
        gdp_mu(epsilon=1, delta=0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mu": 0, "delta": 1e-5}, "mu must be positive and finite, got 0"),
        ({"mu": float("nan"), "delta": 1e-5}, "mu must be positive and finite, got nan"),
        ({"mu": 1, "delta": 1}, r"delta must lie in \[0, 1\), got 1"),
        ({"mu": 1, "delta": float("nan")}, r"delta must lie in \[0, 1\), got nan"),
    ],
)
def test_bad_input_is_named(parameters: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gdp_epsilon(**parameters)
