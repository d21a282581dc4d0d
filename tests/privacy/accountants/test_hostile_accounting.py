"""Attacks on the accounting: where rounding, underflow or a corner could understate what was spent.

Every test compares with a truth that the code under test does not compute: exact Gaussians in
closed form, mpmath, or a theorem that holds whatever the parameters.
"""

import logging
from math import exp, inf, isfinite, log, nextafter, sqrt

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import (
    ACCOUNTANTS,
    Accountant,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    UnsupportedEvent,
    account,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.conversions import rdp_epsilon, zcdp_epsilon, zcdp_epsilon_simple
from fedpriv.privacy.events import (
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.gaussian import gdp_delta, gdp_epsilon, gdp_mu, log_gdp_delta
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.filters import GdpFilter, RdpFilter
from fedpriv.privacy.planning.releases import gaussian_releases, on_levels
from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.tradeoff import tradeoff_curve

A = Adjacency.ADD_REMOVE
every_accountant = pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=ACCOUNTANTS)


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(relative_noise=noise, adjacency=A)


def sampled(noise: float, rate: float) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)


# --- The rounding error of convolutions -----------------------------------------------------------


@pytest.mark.parametrize(("rounds", "mu"), [(27_494, 3.632), (304_885, 1.255), (316_008, 1.822)])
def test_rounded_convolutions_do_not_understate_a_small_delta(rounds: int, mu: float) -> None:
    """Sampling at 1 - 2e-15 is a full batch to nine digits, whose δ is known exactly.

    The T-th power of a Fourier transform carries T times its rounding error: without an allowance
    δ comes out up to thirteen times too small here.
    """
    run = PldAccountant(adjacency=A).compose(sampled(sqrt(rounds) / mu, 1 - 2e-15), rounds)
    for delta in (1e-8, 1e-10, 1e-12):
        assert gdp_delta(mu=mu, epsilon=run.epsilon(delta)) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("rounds", [1, 40, 1000])
def test_few_rounds_are_not_understated_either(rounds: int) -> None:
    for mu in (0.3, 4.0):
        run = PldAccountant(adjacency=A).compose(sampled(sqrt(rounds) / mu, 1 - 2e-15), rounds)
        for delta in (1e-6, 1e-11, 1e-13, 3e-15):
            assert gdp_delta(mu=mu, epsilon=run.epsilon(delta)) <= delta * (1 + 1e-9)


def test_a_delta_that_convolutions_cannot_resolve_still_has_a_bound() -> None:
    run = PldAccountant(adjacency=A).compose(sampled(1.0, 0.01), 1000)
    by_rdp = RdpAccountant(adjacency=A).compose(sampled(1.0, 0.01), 1000)
    for delta in (1e-14, 1e-20, 1e-300):
        assert run.epsilon(delta) <= by_rdp.epsilon(delta) < inf
    assert account([(sampled(1.0, 0.01), 1000)], delta=1e-30).epsilon is not None


# --- Costs that underflow or overflow -------------------------------------------------------------

EXTREME: list[Event] = [
    gaussian(1e-170),
    gaussian(1e-6),
    gaussian(1e9),
    gaussian(1e200),
    sampled(1e-170, 0.5),
    sampled(1e-3, 0.01),
    sampled(1e9, 1e-9),
    sampled(1e200, 0.5),
    sampled(1.0, 1e-12),
    sampled(1.0, 1e-320),
    sampled(1.0, 1 - 2.0**-53),
    LaplaceEvent(relative_noise=1e-6, adjacency=A),
    LaplaceEvent(relative_noise=1e170, adjacency=A),
    PureEvent(epsilon=1e-170, adjacency=A),
    PureEvent(epsilon=1e3, adjacency=A),
    PureEvent(epsilon=1e200, adjacency=A),
    PoissonPureEvent(epsilon=1e3, sampling_rate=0.5, adjacency=A),
    BoundedRangeEvent(epsilon=1e-170, adjacency=A),
    ZcdpEvent(rho=1e-300, adjacency=A),
    ZcdpEvent(rho=1e300, adjacency=A),
]


@every_accountant
@pytest.mark.parametrize("event", EXTREME, ids=repr)
def test_extreme_releases_are_neither_free_nor_fatal(kind: type[Accountant], event: Event) -> None:
    """At δ = 0 no noise but a pure one guarantees anything, however wide; more never costs less."""
    try:
        once = kind(adjacency=A).compose(event)
    except UnsupportedEvent:
        return
    if hasattr(event, "pure_epsilon"):
        assert once.epsilon(0.0) >= event.pure_epsilon * (1 - 1e-12) > 0
    else:
        assert once.epsilon(0.0) == inf
    epsilons = [once.epsilon(delta) for delta in (1e-300, 1e-8, 0.9)]
    assert all(epsilon >= 0 for epsilon in epsilons)
    assert epsilons == sorted(epsilons, reverse=True)
    assert once.compose(event, 999_999).epsilon(1e-8) >= epsilons[1] * (1 - 1e-9)


@every_accountant
def test_a_delta_of_zero_is_never_bought_by_wide_noise(kind: type[Accountant]) -> None:
    try:
        run = kind(adjacency=A).compose(gaussian(1e165))
    except UnsupportedEvent:
        return
    assert run.delta(0.5) >= 0
    assert run.epsilon(0.0) == inf


@given(mu=st.floats(-70, 3).map(exp), ratio=st.floats(0, 30))
def test_the_delta_of_a_tiny_mu_is_an_upper_bound(mu: float, ratio: float) -> None:
    epsilon = mu * ratio
    with mpmath.workdps(120):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        truth = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        assert log_gdp_delta(mu=mu, epsilon=epsilon) >= mpmath.log(truth)


@pytest.mark.parametrize("mu", [1e-300, 1e-160, 1e-17, 1e-9, 1e3, 1e9])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-25, 1e-5, 0.5, 0.9, 1 - 2.0**-53])
def test_epsilon_of_any_gaussian_is_found(mu: float, delta: float) -> None:
    epsilon = gdp_epsilon(mu=mu, delta=delta)
    assert isfinite(epsilon)
    assert log_gdp_delta(mu=mu, epsilon=epsilon) <= log(delta)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 1e3, 1e200])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-25, 1e-5, 0.5, 0.9, 1 - 2.0**-53])
def test_mu_of_any_budget_is_found(epsilon: float, delta: float) -> None:
    mu = gdp_mu(epsilon=epsilon, delta=delta)
    assert 0 < mu < inf
    assert log_gdp_delta(mu=mu, epsilon=epsilon) <= log(delta)


@pytest.mark.parametrize("rho", [1e-307, 1e-40, 1e-6, 1.0, 1e6, 1e40, 1e290])
@pytest.mark.parametrize("delta", [5e-324, 1e-310, 1e-12, 0.5, 0.9])
def test_zcdp_converts_at_any_scale_and_never_below_the_gaussian(rho: float, delta: float) -> None:
    """A Gaussian with the same ρ is one ρ-zCDP release: no conversion may be below its exact ε."""
    optimal = zcdp_epsilon(rho=rho, delta=delta)
    assert gdp_epsilon(mu=sqrt(2 * rho), delta=delta) <= optimal * (1 + 1e-9) + 1e-300
    assert optimal <= zcdp_epsilon_simple(rho=rho, delta=delta) < inf


def test_a_divergence_that_is_no_number_guarantees_nothing() -> None:
    orders, unknown = np.array([2.0, 3.0]), np.array([float("nan")] * 2)
    assert rdp_epsilon(orders=orders, divergences=unknown, delta=1e-6) == inf
    assert rdp_epsilon(orders=orders, divergences=np.zeros(2), delta=0.0) == 0.0


# --- Rényi divergences where logarithms cancel ----------------------------------------------------


def _exact_sampled_divergence(noise: float, rate: float, order: int) -> float:
    """Mironov, Talwar and Zhang 2019, eq. 4, at 100 digits: a finite sum for integer orders."""
    with mpmath.workdps(100):
        q, s = mpmath.mpf(rate), mpmath.mpf(noise)
        moment = mpmath.fsum(
            mpmath.binomial(order, k)
            * (1 - q) ** (order - k)
            * q**k
            * mpmath.exp(mpmath.mpf(k * k - k) / (2 * s * s))
            for k in range(order + 1)
        )
        return float(mpmath.log(moment) / (order - 1))


@pytest.mark.parametrize("order", [2, 3, 7, 32, 256])
@pytest.mark.parametrize("noise", [0.7, 1.0, 5.0, 300.0])
def test_a_rare_sample_costs_no_less_than_it_does(noise: float, order: int) -> None:
    """At q = 1e-9 the logarithm of a number next to 1 is 0, or less: a filter would not fill."""
    for rate in (1e-12, 1e-9, 1e-6, 1e-3, 0.3, 0.999):
        event = sampled(noise, rate)
        (cost,) = RdpAccountant(adjacency=A, orders=(float(order),)).cost(event)
        truth = _exact_sampled_divergence(noise, rate, order)
        allowed = 2.0**-48 * (16 + order * log(order)) / (order - 1)
        assert truth <= cost <= truth * (1 + 1e-12) + allowed


@pytest.mark.parametrize("epsilon", [1e-170, 1e-9, 9.9e-5, 1.1e-4, 0.01])
@pytest.mark.parametrize("order", [1.1, 2.0, 64.0])
def test_a_tiny_pure_release_costs_no_less_than_it_does(epsilon: float, order: float) -> None:
    """The divergence of randomised response, and of Laplace noise, at 400 digits."""
    accountant = RdpAccountant(adjacency=A, orders=(order,))
    with mpmath.workdps(400):
        a, e = mpmath.mpf(order), mpmath.mpf(epsilon)
        p = 1 / (1 + mpmath.exp(-e))
        flips = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        density = (a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)) / (2 * a - 1)
        pure, laplace = (float(mpmath.log(x) / (a - 1)) for x in (flips, density))
    (cost,) = accountant.cost(PureEvent(epsilon=epsilon, adjacency=A))
    assert pure * (1 - 1e-5) <= cost
    assert cost > 0
    (cost,) = accountant.cost(LaplaceEvent(relative_noise=1 / epsilon, adjacency=A))
    assert laplace * (1 - 1e-5) <= cost
    assert cost > 0


@pytest.mark.parametrize("variance", [0.01, 0.3, 1.0, 4.0, 40.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_the_skellam_bound_is_above_the_divergence_it_bounds(variance: float, shift: int) -> None:
    """Σ P(k)^α·P(k + Δ)^(1-α) over the integers, in mpmath: the theorem, where noise is small."""
    event = SkellamEvent(variance=variance, l1_sensitivity=shift, l2_sensitivity=shift, adjacency=A)
    reach = int(60 + 12 * sqrt(variance))
    with mpmath.workdps(60):
        v = mpmath.mpf(variance)
        mass = {k: mpmath.besseli(abs(k), v) for k in range(-reach - shift, reach + shift + 1)}
        total = mpmath.exp(v)
        for order in (2, 3, 5):
            moment = mpmath.fsum(
                (mass[k] / total) ** order * (mass[k + shift] / total) ** (1 - order)
                for k in range(-reach, reach + 1)
            )
            truth = float(mpmath.log(moment) / (order - 1))
            (cost,) = RdpAccountant(adjacency=A, orders=(float(order),)).cost(event)
            assert truth <= cost * (1 + 1e-12)


def test_orders_without_a_bound_are_left_out_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """dp-accounting warns of each; nobody can act on it. Other warnings pass, then and later."""
    logger = logging.getLogger("absl")
    before = list(logger.filters)
    with caplog.at_level(logging.WARNING):
        costs = RdpAccountant(adjacency=A).cost(sampled(0.487701, 0.064656))
    assert not caplog.records
    assert logger.filters == before
    assert all(0 < cost < inf for cost in costs)  # the unsampled cost bounds those left out


# --- Filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        PureEvent(epsilon=1e-9, adjacency=A),
        LaplaceEvent(relative_noise=1e9, adjacency=A),
        sampled(1.0, 1e-9),
        gaussian(1e200),
    ],
    ids=lambda event: event.kind,
)
def test_no_release_passes_a_filter_for_free(event: Event) -> None:
    fresh = RdpFilter.for_releases(budget=Budget(epsilon=1.0, delta=1e-6), event=event)
    assert fresh.admit(event).spent > 0
    closed = RdpFilter(budget=Budget(epsilon=1.0, delta=0.0), adjacency=A, order=2.0)
    assert not closed.affords(event)


@pytest.mark.parametrize("spent", [-1.0, float("nan"), inf])
def test_a_filter_does_not_start_with_credit(spent: float) -> None:
    with pytest.raises(ValueError, match="spent must be finite and at least 0"):
        GdpFilter(budget=Budget(epsilon=1.0, delta=1e-6), adjacency=A, spent=spent)


# --- Schedules, curves and what is printed --------------------------------------------------------


@given(st.integers(51, 120), st.floats(1.01, 50), st.integers(0, 2**32 - 1))
def test_a_rounding_error_in_the_noise_moves_no_round_to_another_level(
    rounds: int, spread: float, seed: int
) -> None:
    """Geometric schedules sit on geometric levels: the plan must cost what calibration proved."""
    noises = np.geomspace(1, spread, rounds)
    ulps = np.random.default_rng(seed).integers(-1, 2, rounds)
    moved = [nextafter(z, z + step) if step else z for z, step in zip(noises, ulps, strict=True)]

    def levels(schedule: list[float]) -> list[float]:
        releases = gaussian_releases(schedule, sampling_rate=0.1, adjacency=A)
        leveled = on_levels(releases, most=50)
        return sorted(e.relative_noise for e, n in leveled for _ in range(n))  # type: ignore[attr-defined]

    np.testing.assert_allclose(levels(moved), levels(noises.tolist()), rtol=1e-12)


@given(epsilon=st.floats(600, 1e300), alpha=st.floats(0, 1))
def test_no_trade_off_curve_promises_more_than_its_epsilon(epsilon: float, alpha: float) -> None:
    (beta,) = tradeoff_curve([alpha * 1e-300], epsilon=epsilon, delta=0.0)
    with mpmath.workdps(400):
        raised = mpmath.exp(mpmath.mpf(epsilon)) * mpmath.mpf(alpha * 1e-300)
        truth = max(0, 1 - raised, mpmath.exp(-mpmath.mpf(epsilon)) * (1 - alpha * 1e-300))
        assert beta <= truth + mpmath.mpf("1e-12")


@given(st.floats(5e-324, 1e308))
def test_every_epsilon_can_be_printed_and_none_below_itself(value: float) -> None:
    assert float(rounded_up(value)) >= value * (1 - 1e-9)


def test_an_epsilon_below_what_renyi_orders_show_can_be_calibrated_to() -> None:
    """Orders end at 1024, so no noise brings their ε below about ln(1/δ)/1024: 0.01 here."""
    by_rdp = RdpAccountant(adjacency=A).compose(sampled(1e12, 0.01), 100)
    assert by_rdp.epsilon(1e-8) > 0.008
    calibrated = calibrate(epsilon=0.008, delta=1e-8, rounds=100, sampling_rate=0.01, adjacency=A)
    assert calibrated.epsilon <= 0.008
    # Little is lost against the central limit, q·√T/μ.
    assert calibrated.noise_multiplier <= 1.02 * 0.01 * 10 / gdp_mu(epsilon=0.008, delta=1e-8)


def test_gdp_is_exact_for_a_million_rounds() -> None:
    run = GdpAccountant(adjacency=A).compose(gaussian(1000.0), 10**6)
    assert run.epsilon(1e-5) == pytest.approx(4.377178096, rel=1e-9)
