"""One contract for all accountants, golden values, and the order of tightness."""

from math import exp, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import (
    ACCOUNTANTS,
    Accountant,
    CtcdpAccountant,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    UnsupportedEvent,
    account,
    account_all,
    best_accountant,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PoissonSkellamEvent,
    PureEvent,
    SkellamEvent,
    TuningEvent,
    ZcdpEvent,
)
from fedpriv.privacy.planning.releases import gaussian_releases, on_levels

A = Adjacency.ADD_REMOVE
EVENTS: list[Event] = [
    GaussianEvent(relative_noise=8, adjacency=A),
    GaussianEvent(relative_noise=5.5, adjacency=A),
    PoissonGaussianEvent(relative_noise=4, sampling_rate=0.05, adjacency=A),
    LaplaceEvent(relative_noise=12, adjacency=A),
    PureEvent(epsilon=0.07, adjacency=A),
    PoissonPureEvent(epsilon=0.2, sampling_rate=0.1, adjacency=A),
    BoundedRangeEvent(epsilon=0.1, adjacency=A),
    ZcdpEvent(rho=0.004, adjacency=A),
    TuningEvent(base_mu=0.05, eta=0.0, gamma=0.1, adjacency=A),
    SkellamEvent(variance=900, l1_sensitivity=9, l2_sensitivity=3, adjacency=A),
    PoissonSkellamEvent(
        variance=90, l1_sensitivity=9, l2_sensitivity=3, sampling_rate=0.1, adjacency=A
    ),
    DistributedGaussianEvent(
        shares=9, share_stddev=10, l1_sensitivity=9, l2_sensitivity=3, dimension=9, adjacency=A
    ),
    ApproximateEvent(epsilon=0.05, delta=1e-8, adjacency=A),
]
DELTA = 1e-6
SUPPORTED = [
    pytest.param(kind, event, id=f"{name}-{event.kind}-{index}")
    for name, kind in ACCOUNTANTS.items()
    for index, event in enumerate(EVENTS)
    if name in {r.accountant for r in account_all([(event, 1)], delta=DELTA) if r.epsilon}
]


def fresh(kind: type[Accountant]) -> Accountant:
    return kind(adjacency=A)


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(relative_noise=noise, adjacency=A)


def sampled(noise: float, rate: float) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(relative_noise=noise, sampling_rate=rate, adjacency=A)


@pytest.mark.parametrize(("kind", "event"), SUPPORTED)
def test_composing_n_times_equals_composing_once_n_times(
    kind: type[Accountant], event: Event
) -> None:
    at_once = fresh(kind).compose(event, 5)
    one_by_one = fresh(kind)
    for _ in range(5):
        one_by_one = one_by_one.compose(event)
    assert at_once.epsilon(DELTA) == pytest.approx(one_by_one.epsilon(DELTA), rel=1e-12)


@pytest.mark.parametrize(("kind", "event"), SUPPORTED)
def test_more_releases_cost_more_and_a_larger_delta_less(
    kind: type[Accountant], event: Event
) -> None:
    once, twice = fresh(kind).compose(event), fresh(kind).compose(event, 2)
    assert 0 <= once.epsilon(DELTA) <= twice.epsilon(DELTA) < inf
    if kind is not CtcdpAccountant:  # it may be held back by its orders alone
        assert once.epsilon(DELTA) < twice.epsilon(DELTA)
    assert twice.epsilon(DELTA * 100) <= twice.epsilon(DELTA)


@pytest.mark.parametrize(("kind", "event"), SUPPORTED)
def test_delta_inverts_epsilon(kind: type[Accountant], event: Event) -> None:
    accountant = fresh(kind).compose(event, 3)
    epsilon = accountant.epsilon(DELTA)
    assert accountant.delta(epsilon) <= DELTA * (1 + 1e-6)
    if accountant.epsilon(0.0) == inf:
        assert accountant.delta(epsilon * 0.9) > DELTA


@pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_the_order_of_releases_does_not_matter(kind: type[Accountant]) -> None:
    events = [e for e in EVENTS if _supports(kind, e)]
    forwards = fresh(kind).compose_all((e, 2) for e in events)
    backwards = fresh(kind).compose_all((e, 2) for e in reversed(events))
    assert forwards.epsilon(DELTA) == pytest.approx(backwards.epsilon(DELTA), rel=1e-12)


@pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_nothing_released_costs_nothing(kind: type[Accountant]) -> None:
    assert fresh(kind).epsilon(DELTA) == 0
    assert fresh(kind).delta(0.5) == 0


@pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_adjacencies_do_not_mix(kind: type[Accountant]) -> None:
    with pytest.raises(ValueError, match="different adjacencies do not add up"):
        kind(adjacency=Adjacency.REPLACE_ONE).compose(EVENTS[0])


@pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_must_be_a_positive_integer(kind: type[Accountant], count: int) -> None:
    with pytest.raises(ValueError, match="count must be an integer of at least 1"):
        fresh(kind).compose(EVENTS[0], count)


@pytest.mark.parametrize("kind", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_an_unknown_event_is_refused_not_guessed(kind: type[Accountant]) -> None:
    class FutureEvent(Event):
        kind = "future"

    with pytest.raises(UnsupportedEvent):
        fresh(kind).compose(FutureEvent(adjacency=A))


# Golden values: dp-accounting 0.6, PLD at a discretisation of 1e-4, RDP at its default orders.
@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta", "pld", "rdp"),
    [
        (0.01, 1, 1000, 1e-5, 1.82824365, 2.10136653),
        (0.01, 1.1, 10000, 1e-5, 5.19262012, 5.63201067),
        (0.001, 0.8, 5000, 1e-6, 0.733626361, 1.59230776),
        (0.1, 2, 500, 1e-5, 5.55546995, 6.03456220),
        (0.05, 5, 1000, 1e-6, 1.40030665, 1.50974978),
        (256 / 60000, 1.3, 3515, 1e-5, 0.864458672, 0.954429509),
    ],
)
def test_poisson_sampled_gaussians(
    rate: float, noise: float, rounds: int, delta: float, pld: float, rdp: float
) -> None:
    releases: list[tuple[Event, int]] = [(sampled(noise, rate), rounds)]
    by_pld = account(releases, delta=delta, accountant="pld").epsilon
    by_rdp = account(releases, delta=delta, accountant="rdp").epsilon
    assert by_pld == pytest.approx(pld, rel=1e-4)
    assert by_rdp == pytest.approx(rdp, rel=1e-6)


# Golden values: dp-accounting 0.6.
@pytest.mark.parametrize(
    ("noise", "rounds", "delta", "pld", "rdp"),
    [(10, 100, 1e-5, 4.22034735, 4.53268570), (20, 50, 1e-6, 1.47883078, 1.57190553)],
)
def test_laplace(noise: float, rounds: int, delta: float, pld: float, rdp: float) -> None:
    releases: list[tuple[Event, int]] = [(LaplaceEvent(relative_noise=noise, adjacency=A), rounds)]
    assert account(releases, delta=delta, accountant="pld").epsilon == pytest.approx(pld, rel=1e-4)
    assert account(releases, delta=delta, accountant="rdp").epsilon == pytest.approx(rdp, rel=1e-6)


# Golden values: the theorem by hand; RDP and PLD from dp-accounting 0.6.
@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "tcdp", "rdp", "pld"),
    [(0.01, 4, 1000, 1.408415, 0.3011612, 0.2721729), (0.1, 5, 500, 9.037391, 1.969187, 1.806218)],
)
def test_truncated_cdp_is_a_loose_baseline(
    rate: float, noise: float, rounds: int, tcdp: float, rdp: float, pld: float
) -> None:
    releases: list[tuple[Event, int]] = [(sampled(noise, rate), rounds)]
    epsilons = {r.accountant: r.epsilon for r in account_all(releases, delta=1e-5)}
    assert epsilons["tcdp"] == pytest.approx(tcdp, rel=1e-6)
    assert epsilons["rdp"] == pytest.approx(rdp, rel=1e-6)
    assert epsilons["pld"] == pytest.approx(pld, rel=1e-4)


# Golden values: mpmath.
@pytest.mark.parametrize(
    ("noises", "delta", "mu", "epsilon"),
    [
        ([5, 4, 3, 2, 1], 1e-6, 1.209797963, 6.078120150),
        (np.linspace(20, 5, 50).tolist(), 1e-6, 0.7152981762, 3.350373684),
        ([10] * 100, 1e-5, 1, 4.377178096),
    ],
)
def test_heterogeneous_gaussians_compose_exactly(
    noises: list[float], delta: float, mu: float, epsilon: float
) -> None:
    accountant = GdpAccountant(adjacency=A).compose_all((gaussian(z), 1) for z in noises)
    assert accountant.mu == pytest.approx(mu, rel=1e-9)
    assert accountant.epsilon(delta) == pytest.approx(epsilon, rel=1e-9)


def test_skellam() -> None:
    """Golden value: the theorem at integer orders 2 to 512, in mpmath."""
    event = SkellamEvent(variance=1e6, l1_sensitivity=700, l2_sensitivity=100, adjacency=A)
    orders = tuple(map(float, range(2, 513)))
    accountant = RdpAccountant(adjacency=A, orders=orders).compose(event, 100)
    assert accountant.epsilon(1e-5) == pytest.approx(4.75273069, rel=1e-8)


@given(
    noise=st.floats(0.5, 50),
    rounds=st.integers(1, 200),
    delta=st.floats(-25, -3).map(exp),
)
@settings(max_examples=10)
def test_exact_is_below_optimal_is_below_simple(noise: float, rounds: int, delta: float) -> None:
    epsilons = {
        r.accountant: r.epsilon for r in account_all([(gaussian(noise), rounds)], delta=delta)
    }
    slack = 1 + 1e-9
    assert all(epsilon is not None for epsilon in epsilons.values())
    assert epsilons["gdp"] <= epsilons["zcdp"] * slack  # type: ignore[operator]
    assert epsilons["zcdp"] <= epsilons["zcdp-simple"] * slack  # type: ignore[operator]
    assert epsilons["zcdp"] <= epsilons["rdp"] * slack  # type: ignore[operator]
    # The numerical accountant is an upper bound on the exact one, and close to it.
    assert epsilons["gdp"] <= epsilons["pld"] * slack <= epsilons["gdp"] * 1.001 + 1e-9  # type: ignore[operator]


@given(noise=st.floats(3, 20), rate=st.floats(1e-3, 0.09), rounds=st.integers(1, 2000))
@settings(max_examples=12)
def test_pld_is_below_rdp_is_below_tcdp(noise: float, rate: float, rounds: int) -> None:
    releases: list[tuple[Event, int]] = [(sampled(noise, rate), rounds)]
    epsilons = {r.accountant: r.epsilon for r in account_all(releases, delta=1e-6)}
    assert epsilons["pld"] <= epsilons["rdp"] * (1 + 1e-9)  # type: ignore[operator]
    assert epsilons["rdp"] <= epsilons["tcdp"] * (1 + 1e-9)  # type: ignore[operator]


def test_small_losses_are_not_drowned_by_the_discretisation() -> None:
    """Sampling at rate q -> the exact Gaussian as z grows: mu = q sqrt(T) / z within 2 percent."""
    exact = GdpAccountant(adjacency=A).compose(gaussian(117 / 0.01 / np.sqrt(1000)))
    numerical = PldAccountant(adjacency=A).compose(sampled(117, 0.01), 1000)
    assert numerical.epsilon(1e-8) == pytest.approx(exact.epsilon(1e-8), rel=0.02)


def test_dp_accounting_agrees_on_what_it_also_knows() -> None:
    """An independent accountant, fed the same releases through its own events."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    reference = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    reference.compose(dp_accounting.GaussianDpEvent(6), 20)
    reference.compose(dp_accounting.LaplaceDpEvent(15), 5)
    ours = account(
        [(gaussian(6), 20), (LaplaceEvent(relative_noise=15, adjacency=A), 5)], delta=1e-5
    )
    assert ours.accountant == "pld"
    assert ours.epsilon == pytest.approx(reference.get_epsilon(1e-5), rel=1e-4)


@given(st.lists(st.floats(0.6, 40), min_size=51, max_size=120, unique=True))
def test_levels_round_noise_down_and_lose_no_round(noises: list[float]) -> None:
    releases = gaussian_releases(noises, sampling_rate=0.1, adjacency=A)
    leveled = on_levels(releases, most=50)
    assert len(leveled) <= 50
    assert sum(n for _, n in leveled) == len(noises)
    below = sorted(e.relative_noise for e, n in leveled for _ in range(n))  # type: ignore[attr-defined]
    assert all(low <= true for low, true in zip(below, sorted(noises), strict=True))
    assert min(below) == min(noises)


def test_the_best_accountant_is_exact_where_it_can_be() -> None:
    assert best_accountant([(gaussian(3), 1)], delta=1e-6).name == "gdp"
    assert best_accountant([(sampled(3, 0.1), 1)], delta=1e-6).name == "pld"
    skellam, distributed = EVENTS[-3:-1]
    assert best_accountant([(skellam, 1)], delta=1e-6).name == "rdp"
    assert best_accountant([(distributed, 1)], delta=1e-6).name == "rdp"
    assert best_accountant([(PureEvent(epsilon=1, adjacency=A), 1)], delta=0).name == "basic"


def test_without_delta_only_pure_releases_have_a_guarantee() -> None:
    assert account([(PureEvent(epsilon=0.25, adjacency=A), 4)], delta=0).epsilon == 1.0
    report = account([(gaussian(3), 1)], delta=0)
    assert report.epsilon is None
    assert report.reason == "no finite epsilon at delta = 0"


def test_one_pure_release_costs_no_more_than_its_own_epsilon() -> None:
    """A loss distribution is rounded up to its grid: a budget met exactly looked overspent."""
    release: list[tuple[Event, int]] = [(PureEvent(epsilon=2.9657, adjacency=A), 1)]
    assert (account(release, delta=DELTA, accountant="pld").epsilon or 0) > 2.9657
    assert account(release, delta=DELTA).epsilon == 2.9657
    many: list[tuple[Event, int]] = [(PureEvent(epsilon=0.07, adjacency=A), 400)]
    assert account(many, delta=DELTA).accountant == "pld"


def test_nothing_to_account_for_is_an_error() -> None:
    with pytest.raises(ValueError, match="releases must name at least one event"):
        account([], delta=1e-6)


def test_orders_must_exceed_one() -> None:
    with pytest.raises(ValueError, match="orders must be finite numbers above 1"):
        RdpAccountant(adjacency=A, orders=(0.5,))


def _supports(kind: type[Accountant], event: Event) -> bool:
    try:
        fresh(kind).compose(event)
    except UnsupportedEvent:
        return False
    return True


def test_a_pair_is_charged_its_own_delta_and_leaves_the_rest_to_the_others() -> None:
    basic = fresh(ACCOUNTANTS["basic"])
    pair = ApproximateEvent(epsilon=0.5, delta=2e-7, adjacency=A)
    assert basic.compose(pair, 5).epsilon(DELTA) == 2.5
    assert basic.compose(pair, 6).epsilon(DELTA) == inf
    assert basic.compose(pair).epsilon(1e-7) == inf
    both = basic.compose(pair, 2).compose(gaussian(8.0), 3)
    alone = basic.compose(gaussian(8.0), 3).epsilon(DELTA - 4e-7)
    assert both.epsilon(DELTA) == pytest.approx(1.0 + alone, rel=1e-9)


def test_a_pair_composes_by_adding_up_and_by_nothing_better() -> None:
    pair = ApproximateEvent(epsilon=0.5, delta=1e-7, adjacency=A)
    for name in ("gdp", "pld", "rdp", "zcdp", "zcdp-simple", "tcdp"):
        with pytest.raises(UnsupportedEvent):
            fresh(ACCOUNTANTS[name]).compose(pair)
    assert best_accountant([(pair, 1)], delta=DELTA).name == "basic"
    assert account([(pair, 1)], delta=DELTA).epsilon == 0.5
