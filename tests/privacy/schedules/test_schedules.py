"""Schedules: what they spend is exact, what they save is proved, the formulas are the theory's."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.schedules import (
    Descent,
    Dynamic,
    Exponential,
    Measured,
    MomentumAware,
    Schedule,
    Step,
    Uniform,
    best_rounds,
    descent_influence,
    gain,
    least_noise,
    momentum_influence,
)

UNIT = st.floats(0.01, 0.9999)
SCHEDULES = st.one_of(
    st.builds(Uniform),
    st.builds(Dynamic, gamma=UNIT),
    st.builds(MomentumAware, gamma=UNIT, beta=UNIT),
    st.builds(Exponential, decay=st.floats(0.5, 1.5)),
    st.builds(Step, every=st.integers(1, 50), factor=st.floats(0.2, 3)),
)
ROUNDS = st.integers(1, 500)
TOTAL = st.floats(1e-9, 1e6)


def spent(noise: np.ndarray) -> float:
    return float(np.sum(noise**-2.0))


@given(schedule=SCHEDULES, rounds=ROUNDS, total=TOTAL)
def test_every_schedule_spends_its_total_to_the_last_digits(
    schedule: Schedule, rounds: int, total: float
) -> None:
    noise = schedule.noise(rounds, total=total)
    assert noise.shape == (rounds,)
    assert np.isfinite(noise).all()
    assert spent(noise) == pytest.approx(total, rel=1e-12)


@given(schedule=SCHEDULES, rounds=st.integers(1, 60), epsilon=st.floats(0.05, 8))
@settings(max_examples=30)
def test_the_events_of_a_calibrated_schedule_fit_the_budget_and_fill_it(
    schedule: Schedule, rounds: int, epsilon: float
) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-6)
    calibrated = schedule.calibrated(budget=budget, rounds=rounds, adjacency="replace-one")
    fresh = GdpAccountant(adjacency=Adjacency.REPLACE_ONE)
    total = fresh.compose_all(calibrated.releases).epsilon(1e-6)
    assert total <= epsilon * (1 + 1e-12)
    assert total == pytest.approx(epsilon, rel=1e-6)
    assert len(calibrated.noise_multipliers) == rounds


@given(logs=st.lists(st.floats(-15, 15), min_size=1, max_size=40), total=st.floats(0.01, 100))
def test_the_lemma_reaches_the_bound_that_cauchy_schwarz_allows(
    logs: list[float], total: float
) -> None:
    q = np.exp(np.array(logs))
    noise = least_noise(np.array(logs), total=total)
    assert spent(noise) == pytest.approx(total, rel=1e-12)
    assert np.sum(q * noise**2) == pytest.approx(np.sum(np.sqrt(q)) ** 2 / total, rel=1e-9)
    np.testing.assert_allclose(
        noise**2, [np.sum(np.sqrt(q / each)) / total for each in q], rtol=1e-9
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_numerical_optimiser_finds_better_noise_than_the_lemma(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, total = np.exp(rng.normal(0, 2, 8)), 3.0

    def harm(logits: np.ndarray) -> float:
        """Any way to share the total: the softmax of eight free numbers."""
        share = np.exp(logits - logits.max())
        return float(np.sum(q / (total * share / share.sum())))

    best = min(
        minimize(harm, rng.normal(0, 1, 8), method="BFGS", options={"gtol": 1e-9}).fun
        for _ in range(4)
    )
    ours = float(np.sum(q * least_noise(np.log(q), total=total) ** 2))
    assert ours <= best * (1 + 1e-9)
    assert ours == pytest.approx(best, rel=1e-6)  # the optimiser did look
    assert ours < np.sum(q) * 8 / total * 0.9  # and uniform noise is no optimum


@given(gamma=UNIT, rounds=st.integers(1, 120), total=TOTAL)
def test_dynamic_noise_is_the_printed_formula(gamma: float, rounds: int, total: float) -> None:
    """σ_t² = γ^(−(T−t)/2)·(1 − γ^(T/2))/(R(1 − √γ)), wherever it is of this world."""
    t = np.arange(1, rounds + 1)
    printed = (
        gamma ** (-(rounds - t) / 2) * (1 - gamma ** (rounds / 2)) / (total * (1 - sqrt(gamma)))
    )
    usable = -(rounds - t) * log(gamma) < 36  # beyond that noise is cut at 10⁴ times the least
    squares = Dynamic(gamma=gamma).noise(rounds, total=total) ** 2
    np.testing.assert_allclose(squares[usable], printed[usable], rtol=1e-6)


def test_the_predicted_gain_is_the_ratio_of_the_two_bounds() -> None:
    gamma, T = 0.9, 60
    uniform = T * (1 - gamma**T) / (1 - gamma)
    dynamic = ((1 - gamma ** (T / 2)) / (1 - sqrt(gamma))) ** 2
    influence = descent_influence(T, gamma=gamma)
    assert Dynamic(gamma=gamma).gain(influence) == pytest.approx(uniform / dynamic, rel=1e-12)
    assert Uniform().gain(influence) == pytest.approx(1, rel=1e-12)


@given(gamma=UNIT, rounds=st.integers(2, 300), other=SCHEDULES)
def test_no_other_schedule_gains_more_than_the_dynamic_one(
    gamma: float, rounds: int, other: Schedule
) -> None:
    influence = descent_influence(rounds, gamma=gamma)
    assert other.gain(influence) <= Dynamic(gamma=gamma).gain(influence) * (1 + 1e-5)


@given(gamma=UNIT, beta=UNIT, rounds=st.integers(1, 40))
def test_momentum_influence_is_its_defining_sum(gamma: float, beta: float, rounds: int) -> None:
    expected = [
        sum(gamma**j * beta ** (2 * (k - 1 - j)) for j in range(k)) for k in range(rounds, 0, -1)
    ]
    influence = np.exp(momentum_influence(rounds, gamma=gamma, beta=beta))
    np.testing.assert_allclose(influence, expected, rtol=1e-9)


@pytest.mark.parametrize("nudge", [0.0, 1e-16, 1e-12, 1e-8])
def test_momentum_influence_has_no_hole_where_its_closed_form_has(nudge: float) -> None:
    """At β² = γ it is k·γ^(k−1), and nearby nearly so."""
    beta, T = 0.9, 30
    k = np.arange(T, 0, -1)
    influence = np.exp(momentum_influence(T, gamma=beta**2 + nudge, beta=beta))
    np.testing.assert_allclose(influence, k * beta ** (2.0 * (k - 1)), rtol=1e-6)


def test_momentum_aware_noise_is_least_before_the_end() -> None:
    noise = MomentumAware(gamma=0.99, beta=0.9).noise(100, total=1.0)
    assert 0 < int(noise.argmin()) < 99


def test_exponential_decay_by_the_fourth_root_of_gamma_is_the_dynamic_schedule() -> None:
    one = Exponential(decay=0.9**0.25).noise(80, total=2.0)
    np.testing.assert_allclose(one, Dynamic(gamma=0.9).noise(80, total=2.0), rtol=1e-12)


def test_measured_influence_shapes_the_noise_and_must_fit_the_rounds() -> None:
    schedule = Measured(influence=(1.0, 16.0))
    first, last = schedule.noise(2, total=1.0)
    assert first / last == pytest.approx(2)  # 16^(1/4)
    with pytest.raises(ValueError, match="one entry per round, 3; got 2"):
        schedule.shape(3)
    with pytest.raises(ValueError, match=r"influence\[1\] must be positive"):
        Measured(influence=(1.0, 0.0))


def test_long_runs_stay_finite() -> None:
    noise = Dynamic(gamma=0.5).noise(20_000, total=1.0)
    assert np.isfinite(noise).all()
    assert spent(noise) == pytest.approx(1, rel=1e-12)
    assert noise.max() / noise.min() <= 1e4 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Dynamic(gamma=1.0), "gamma must lie strictly between 0 and 1"),
        (lambda: MomentumAware(gamma=0.5, beta=0.0), "beta must lie strictly between"),
        (lambda: Exponential(decay=-1.0), "decay must be positive"),
        (lambda: Step(every=0, factor=0.5), "every must be an integer of at least 1"),
        (lambda: Uniform().noise(0, total=1.0), "rounds must be an integer of at least 1"),
        (lambda: Uniform().noise(3, total=float("nan")), "total must be positive"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()  # type: ignore[operator]


DESCENT = Descent(smoothness=0.35, strong_convexity=0.1, records=5000, dimension=20)


@pytest.mark.parametrize("total", [1e-3, 1e-2, 1e-1])
def test_the_best_number_of_rounds_is_the_closed_form(total: float) -> None:
    """With u = γ^(T/2) the dynamic bound is u²·g + a(1−u)²; its least is at u = a/(g + a)."""
    gamma = DESCENT.gamma
    unit = DESCENT.dimension / (2 * 0.35) * DESCENT.records**-2.0
    a = unit / total / (1 - sqrt(gamma)) ** 2
    ideal = 2 * log(a / (DESCENT.gap + a)) / log(gamma)
    rounds = best_rounds(DESCENT, Dynamic(gamma=gamma), total=total, most=2000)
    assert abs(rounds - ideal) <= 1


def test_the_best_number_of_rounds_respects_the_limit() -> None:
    flat = Descent(smoothness=0.25, strong_convexity=1e-6, records=10**6, dimension=2)
    assert best_rounds(flat, Uniform(), total=1.0, most=700) == 700


def test_a_problem_without_curvature_gains_nothing() -> None:
    """γ → 1: every round matters alike."""
    influence = descent_influence(50, gamma=1 - 1e-9)
    assert gain(influence, Dynamic(gamma=1 - 1e-9).noise(50, total=1.0)) == pytest.approx(1)
    steep = descent_influence(50, gamma=exp(-1))
    assert gain(steep, Dynamic(gamma=exp(-1)).noise(50, total=1.0)) > 5
