"""Calibration: on the private side of the root, close to it, and provable by any other road."""

from math import exp, nextafter, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import ACCOUNTANTS, UnsupportedEvent, account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.planning.calibration import calibrate, optimal_regulariser

A, R = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


@given(
    epsilon=st.floats(0.01, 20),
    delta=st.floats(-25, -4).map(exp),
    rounds=st.integers(1, 500),
    adjacency=st.sampled_from(Adjacency),
)
def test_gaussian_noise_spends_its_budget_and_no_more(
    epsilon: float, delta: float, rounds: int, adjacency: Adjacency
) -> None:
    plan = calibrate(epsilon=epsilon, delta=delta, rounds=rounds, adjacency=adjacency)
    spent = account(plan.releases, delta=delta).epsilon
    assert spent == plan.epsilon
    assert epsilon * (1 - 1e-9) <= plan.epsilon <= epsilon
    sensitivity = adjacency.sum_sensitivity
    expected = sensitivity * sqrt(rounds) / gdp_mu(epsilon=epsilon, delta=delta)
    assert plan.noise_multiplier == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["basic", "advanced", "zcdp-simple", "zcdp", "tcdp", "ctcdp", "rdp", "gdp"]
)
@given(epsilon=st.floats(0.05, 10), rounds=st.integers(1, 100))
@settings(max_examples=8)
def test_every_accountant_can_be_calibrated_to(name: str, epsilon: float, rounds: int) -> None:
    plan = calibrate(epsilon=epsilon, delta=1e-6, rounds=rounds, adjacency=A, accountant=name)
    assert plan.accountant == name
    assert epsilon * (1 - 1e-6) <= plan.epsilon <= epsilon


@given(epsilon=st.floats(0.05, 5), rounds=st.integers(1, 50))
def test_pure_laplace_noise_is_rounds_over_epsilon(epsilon: float, rounds: int) -> None:
    plan = calibrate(epsilon=epsilon, delta=0, rounds=rounds, adjacency=A, mechanism="laplace")
    assert plan.epsilon <= epsilon
    assert plan.noise_multiplier == pytest.approx(rounds / epsilon, rel=1e-9)


@pytest.mark.parametrize("noise", [2.0**-12, 0.125, 2.0**22, 2.0**33])
def test_a_root_that_rounding_puts_on_either_end_of_its_bracket(noise: float) -> None:
    # exp(log(noise)) is larger than noise here, and so on the other side of the root.
    for epsilon in (1 / noise, nextafter(1 / noise, 0)):
        plan = calibrate(epsilon=epsilon, delta=0, rounds=1, adjacency=A, mechanism="laplace")
        assert plan.epsilon <= epsilon
        assert plan.noise_multiplier == pytest.approx(noise, rel=1e-12)


def test_a_delta_buys_less_laplace_noise() -> None:
    parameters: dict[str, Any] = {
        "epsilon": 1,
        "rounds": 100,
        "adjacency": A,
        "mechanism": "laplace",
    }
    approximate = calibrate(delta=1e-6, **parameters)
    assert approximate.accountant == "pld"
    assert approximate.noise_multiplier < 0.5 * calibrate(delta=0, **parameters).noise_multiplier


@pytest.mark.parametrize("epsilon", [0.05, 1, 4])
def test_sampled_noise_spends_its_budget_and_no_more(epsilon: float) -> None:
    plan = calibrate(epsilon=epsilon, delta=1e-5, rounds=300, sampling_rate=0.02, adjacency=A)
    assert plan.accountant == "pld"
    assert epsilon * (1 - 1e-3) <= plan.epsilon <= epsilon
    assert account(plan.releases, delta=1e-5, accountant="rdp").epsilon > epsilon  # type: ignore[operator]


def test_a_thousand_distinct_full_batch_noises_share_the_budget() -> None:
    shape = np.linspace(3, 1, 1000)
    plan = calibrate(epsilon=2, delta=1e-6, rounds=1000, adjacency=R, shape=shape.tolist())
    noises = np.array(plan.noise_multipliers)
    np.testing.assert_allclose(noises / noises[-1], shape, rtol=1e-12)
    mu = sqrt(float(np.sum((2 / noises) ** 2)))
    assert mu == pytest.approx(gdp_mu(epsilon=2, delta=1e-6), rel=1e-9)


def test_distinct_sampled_noises_are_quantised_towards_privacy() -> None:
    shape = np.linspace(1, 1.5, 2000).tolist()
    plan = calibrate(
        epsilon=2, delta=1e-5, rounds=2000, sampling_rate=0.05, adjacency=A, shape=shape,
        accountant="tcdp",
    )  # fmt: skip
    assert 2 * (1 - 1e-6) <= plan.epsilon <= 2
    unrounded = ACCOUNTANTS["tcdp"](adjacency=A).compose_all(plan.releases).epsilon(1e-5)
    assert 2 * (1 - 0.001) <= unrounded < plan.epsilon
    assert len(set(plan.noise_multipliers)) == 2000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0}, "epsilon must be positive and finite, got 0"),
        ({"epsilon": -1}, "epsilon must be positive and finite, got -1"),
        ({"epsilon": float("nan")}, "epsilon must be positive and finite, got nan"),
        ({"delta": 1}, r"delta must lie in \[0, 1\), got 1"),
        ({"delta": -1e-9}, r"delta must lie in \[0, 1\), got -1e-09"),
        ({"delta": 0}, "delta must be positive for Gaussian noise.*Laplace"),
        ({"rounds": 0}, "rounds must be an integer of at least 1, got 0"),
        ({"rounds": 1.5}, "rounds must be an integer of at least 1, got 1.5"),
        ({"sampling_rate": 1.5}, r"sampling_rate must lie in \(0, 1\], got 1.5"),
        ({"sampling_rate": 0}, r"sampling_rate must lie in \(0, 1\], got 0"),
        ({"adjacency": "swap"}, "'swap' is not a valid Adjacency"),
        ({"mechanism": "gauss"}, "mechanism must be one of.*Did you mean 'gaussian'"),
        ({"accountant": "zcpd"}, "accountant must be one of.*Did you mean 'zcdp'"),
        ({"shape": [1.0]}, "shape must have one entry per round, 10; got 1"),
        ({"shape": [1.0] * 9 + [0.0]}, r"shape\[9\] must be positive"),
    ],
)
def test_bad_input_is_named(parameters: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "rounds": 10, "adjacency": A}
    with pytest.raises(ValueError, match=message):
        calibrate(**{**good, **parameters})


def test_an_accountant_that_cannot_hold_the_run_says_why() -> None:
    with pytest.raises(UnsupportedEvent, match=r"sampling_rate <= 0\.1"):
        calibrate(
            epsilon=1, delta=1e-6, rounds=10, sampling_rate=0.5, adjacency=A, accountant="tcdp"
        )


def test_accountant_names_are_fixed() -> None:
    assert list(ACCOUNTANTS) == [
        "basic", "advanced", "zcdp-simple", "zcdp", "tcdp", "ctcdp", "rdp", "pld", "gdp",
    ]  # fmt: skip


@given(
    lipschitz=st.floats(0.1, 3), radius=st.floats(0.1, 10), epsilon=st.floats(0.05, 5),
    records=st.integers(10, 10**6), dimension=st.integers(1, 1000),
)  # fmt: skip
def test_the_optimal_regulariser_minimises_its_bound(
    lipschitz: float, radius: float, epsilon: float, records: int, dimension: int
) -> None:
    delta = 1e-5 if records % 2 else 0.0
    best = optimal_regulariser(
        lipschitz=lipschitz, radius=radius, epsilon=epsilon, records=records,
        dimension=dimension, delta=delta,
    )  # fmt: skip
    length = 3 * sqrt(dimension * np.log(1.25 / delta)) if delta else 2 * dimension
    a = length * lipschitz**2 / (epsilon * records)

    def bound(penalty: float) -> float:
        return penalty * radius**2 / 2 + a / penalty

    assert bound(best) <= min(bound(best * 0.99), bound(best * 1.01))
