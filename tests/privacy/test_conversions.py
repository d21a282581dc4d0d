"""Closed forms, against the values of their sources and against each other."""

from math import exp, inf, log

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.conversions import (
    advanced_composition,
    advanced_composition_step,
    ctcdp_budget,
    ctcdp_epsilon,
    group_privacy,
    pure_epsilon_before_sampling,
    rdp_epsilon,
    subsampled_pure_epsilon,
    tcdp_epsilon,
    tcdp_subsampled,
    zcdp_epsilon,
    zcdp_epsilon_simple,
    zcdp_rho_simple,
)

RHOS = st.floats(1e-6, 20)
EPSILONS = st.floats(1e-3, 20)
DELTAS = st.floats(-30, -0.7).map(exp)


# Golden values: dp-accounting 0.6 and mpmath.
@pytest.mark.parametrize(
    ("rho", "delta", "simple", "optimal"),
    [
        (0.01, 1e-5, 0.6886140424, 0.5457255483),
        (0.1, 1e-5, 2.245966026, 1.914238832),
        (0.5, 1e-6, 5.756521770, 5.221534445),
        (1, 1e-6, 8.433844378, 7.766216625),
        (0.005, 1e-8, 0.6119708518, 0.5235561270),
        (5, 1e-5, 20.17427129, 19.04725955),
    ],
)
def test_zcdp_conversions(rho: float, delta: float, simple: float, optimal: float) -> None:
    assert zcdp_epsilon_simple(rho=rho, delta=delta) == pytest.approx(simple, rel=1e-9)
    assert zcdp_epsilon(rho=rho, delta=delta) == pytest.approx(optimal, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rho"),
    [(0.5, 1e-3, 0.008734452385), (1, 1e-5, 0.02081993834), (0.05, 1e-8, 3.388328659e-5)],
)
def test_inverse_of_the_simple_conversion(epsilon: float, delta: float, rho: float) -> None:
    assert zcdp_rho_simple(epsilon=epsilon, delta=delta) == pytest.approx(rho, rel=1e-9)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_the_simple_conversion_and_its_inverse_undo_each_other(
    epsilon: float, delta: float
) -> None:
    rho = zcdp_rho_simple(epsilon=epsilon, delta=delta)
    assert zcdp_epsilon_simple(rho=rho, delta=delta) == pytest.approx(epsilon, rel=1e-12)


@given(rho=RHOS, delta=DELTAS)
def test_the_optimal_conversion_is_sound_and_best_over_a_grid_of_orders(
    rho: float, delta: float
) -> None:
    """Independent oracle: the bound on delta at each order, in mpmath (CKS 2020, Prop. 12)."""
    epsilon = zcdp_epsilon(rho=rho, delta=delta)
    assert 0 <= epsilon <= zcdp_epsilon_simple(rho=rho, delta=delta)

    def least_delta(at: float) -> mpmath.mpf:
        gaps = [mpmath.mpf(2) ** (k / mpmath.mpf(16)) for k in range(-160, 400)]
        return min(
            mpmath.exp(gap * ((gap + 1) * rho - at)) / gap * (1 - 1 / (gap + 1)) ** (gap + 1)
            for gap in gaps
        )

    if epsilon > 0:
        assert least_delta(epsilon * 1.001) <= delta
        assert least_delta(epsilon * 0.999) > delta


# Golden values (epsilon, count, delta'): mpmath.
@pytest.mark.parametrize(
    ("epsilon", "count", "loose", "tight"),
    [(0.1, 100, 5.850235093, 5.298109662), (0.5, 10, 10.83074200, 8.811728959)],
)
def test_advanced_composition(epsilon: float, count: int, loose: float, tight: float) -> None:
    parameters = {"epsilon": epsilon, "count": count, "delta_slack": 1e-5}
    assert advanced_composition(**parameters, tight=False) == pytest.approx(loose, rel=1e-9)  # type: ignore[arg-type]
    assert advanced_composition(**parameters) == pytest.approx(tight, rel=1e-9)  # type: ignore[arg-type]


@given(epsilon=st.floats(1e-3, 8), count=st.integers(1, 10_000), delta=DELTAS)
def test_the_step_of_advanced_composition_stays_within_the_total(
    epsilon: float, count: int, delta: float
) -> None:
    if epsilon > 8 * log(1 / delta):
        with pytest.raises(ValueError, match="epsilon must be at most 8 ln"):
            advanced_composition_step(epsilon=epsilon, count=count, delta_slack=delta)
        return
    step = advanced_composition_step(epsilon=epsilon, count=count, delta_slack=delta)
    total = advanced_composition(epsilon=step, count=count, delta_slack=delta)
    assert total <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "rate", "amplified"),
    [(1, 0.01, 0.01703686324), (0.5, 0.1, 0.06285472347), (4, 0.05, 1.302887616)],
)
def test_amplification_of_pure_privacy(epsilon: float, rate: float, amplified: float) -> None:
    value = subsampled_pure_epsilon(epsilon=epsilon, sampling_rate=rate)
    assert value == pytest.approx(amplified, rel=1e-9)


@given(epsilon=st.floats(1e-3, 5000), rate=st.floats(1e-6, 1))
def test_amplification_is_undone_whatever_the_epsilon(epsilon: float, rate: float) -> None:
    before = pure_epsilon_before_sampling(epsilon=epsilon, sampling_rate=rate)
    again = subsampled_pure_epsilon(epsilon=before, sampling_rate=rate)
    assert again == pytest.approx(epsilon, rel=1e-11)


@given(epsilon=st.floats(1e-3, 5000), rate=st.floats(1e-6, 1))
def test_amplification_never_exceeds_what_it_amplifies(epsilon: float, rate: float) -> None:
    amplified = subsampled_pure_epsilon(epsilon=epsilon, sampling_rate=rate)
    assert 0 < amplified <= epsilon * (1 + 1e-12)


@given(epsilon=EPSILONS, delta=DELTAS)
def test_the_ctcdp_budget_is_exactly_epsilon_delta(epsilon: float, delta: float) -> None:
    """The paper that introduced it prints the inverse of rho; this one converts back."""
    budget = ctcdp_budget(epsilon=epsilon, delta=delta)
    back = tcdp_epsilon(rho=budget.rho, omega=budget.omega * (1 + 1e-12), delta=delta)
    assert back == pytest.approx(epsilon, rel=1e-9)


@given(rho=RHOS, delta=DELTAS, omega=st.floats(1.01, 1e4))
def test_ctcdp_is_the_least_epsilon_whose_budget_holds_rho_and_omega(
    rho: float, delta: float, omega: float
) -> None:
    """Against bisection over the budgets; and never below what truncated CDP proves."""

    def holds(epsilon: float) -> bool:
        budget = ctcdp_budget(epsilon=epsilon, delta=delta)
        return rho <= budget.rho and omega >= budget.omega

    low, high = 1e-9, 1e9
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    found = ctcdp_epsilon(rho=rho, omega=omega, delta=delta)
    assert found == pytest.approx(high, rel=1e-6)
    assert found >= tcdp_epsilon(rho=rho, omega=omega, delta=delta)
    assert ctcdp_epsilon(rho=rho, omega=inf, delta=delta) == zcdp_epsilon_simple(
        rho=rho, delta=delta
    )
    assert ctcdp_epsilon(rho=rho, omega=omega, delta=0.0) == inf


@given(rho=RHOS, delta=DELTAS, omega=st.floats(1.01, 1e4))
def test_truncation_only_costs(rho: float, delta: float, omega: float) -> None:
    full = zcdp_epsilon_simple(rho=rho, delta=delta)
    assert tcdp_epsilon(rho=rho, omega=omega, delta=delta) >= full * (1 - 1e-12)
    assert tcdp_epsilon(rho=rho, omega=inf, delta=delta) == full


@pytest.mark.parametrize(
    ("rho", "rate", "rule"), [(0.2, 0.01, "rho <= 0.1"), (0.01, 0.2, "sampling_rate <= 0.1")]
)
def test_tcdp_amplification_names_the_condition_that_fails(
    rho: float, rate: float, rule: str
) -> None:
    with pytest.raises(ValueError, match=f"tCDP amplification needs {rule}; got"):
        tcdp_subsampled(rho=rho, sampling_rate=rate)


@given(epsilon=st.floats(0.01, 5), delta=st.floats(0, 1e-3), size=st.integers(1, 10))
def test_group_privacy_is_what_chaining_neighbours_gives(
    epsilon: float, delta: float, size: int
) -> None:
    """Oracle: k steps of P(A) <= e^eps Q(A) + delta, composed one at a time."""
    chained = sum(exp(step * epsilon) for step in range(size)) * delta
    loss = group_privacy(epsilon=epsilon, delta=delta, size=size)
    assert loss.epsilon == pytest.approx(size * epsilon)
    assert loss.delta == pytest.approx(min(1, chained), rel=1e-9)


def test_rdp_conversion_ignores_orders_without_a_bound() -> None:
    orders, divergences = np.array([2.0, 8.0]), np.array([inf, 0.1])
    assert rdp_epsilon(orders=orders, divergences=divergences, delta=1e-5) < 2
    assert rdp_epsilon(orders=orders, divergences=np.array([inf, inf]), delta=1e-5) == inf
    assert rdp_epsilon(orders=orders, divergences=divergences, delta=0) == inf
