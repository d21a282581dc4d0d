"""Shares of noise: exact laws, enough noise after every drop-out, costs, and proved plans."""

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from functools import reduce
from itertools import combinations
from math import floor, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath.ctx_mp import MPContext
from numpy.typing import NDArray
from scipy.stats import nbinom, poisson

from fedpriv.privacy.accountants import RdpAccountant, UnsupportedEvent, account
from fedpriv.privacy.accountants.rdp import _distributed_gaussian, convolution_gap
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.conversions import rdp_epsilon
from fedpriv.privacy.events import DistributedGaussianEvent, PureEvent, SkellamEvent
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms.shares import SHARE_LAWS, NoiseShare, SharedNoise, ShareLaw
from fedpriv.privacy.planning.filters import RdpFilter
from fedpriv.privacy.planning.shares import Sharing, shared_noise
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import Polya
from tests.statistical import assert_counts_follow, assert_mean_is

R = Adjacency.REPLACE_ONE
DRAWS = 200_000
SHARES = {
    "skellam": NoiseShare(law="skellam", parameter=7.5, minimum=4, colluders=1),
    "discrete-gaussian": NoiseShare(law="discrete-gaussian", parameter=2.5, minimum=4, colluders=1),
    "polya": NoiseShare(law="polya", parameter=6.0, minimum=4, colluders=1),
}
every_law = pytest.mark.parametrize("law", SHARE_LAWS)


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> RandomStream:
    return RandomStream.seeded(3, request.node.name)


def one_share(share: NoiseShare) -> NDArray[np.float64]:
    """P(share = k), from the definition of its law; k = 0 in the middle."""
    if share.law == "discrete-gaussian":
        k = np.arange(-60, 61)
        weights = np.exp(-(k**2) / (2 * share.parameter**2))
        return np.asarray(weights / weights.sum())
    if share.law == "skellam":
        half = poisson.pmf(np.arange(80), share.parameter / 2)
    else:
        half = nbinom.pmf(np.arange(400), 1 / share.honest, -np.expm1(-1 / share.parameter))
    return np.convolve(half, half[::-1])


def cells(draws: NDArray[np.int64], pmf: NDArray[np.float64]) -> tuple[Any, Any]:
    """Counts and probabilities of every value expected at least 25 times, and of both tails."""
    middle = pmf.size // 2
    last = int(np.flatnonzero(pmf * draws.size >= 25)[-1]) - middle
    inner = pmf[middle - last : middle + last + 1]
    tail = (1 - inner.sum()) / 2
    counts = np.bincount(np.clip(draws, -last - 1, last + 1) + last + 1, minlength=inner.size + 2)
    return counts, np.array([tail, *inner, tail])


# --- The laws -----------------------------------------------------------------------------------


@every_law
@pytest.mark.parametrize("parties", [1, 3, 5])
def test_the_sum_of_shares_has_the_convolution_of_their_laws(
    law: str, parties: int, stream: RandomStream
) -> None:
    """False failure 1e-9, for one share and for sums, however they are drawn."""
    share = SHARES[law]
    drawn = share.draw_sum(parties, dimension=DRAWS, stream=stream)
    expected = reduce(np.convolve, [one_share(share)] * parties)
    assert_counts_follow(*cells(drawn, expected))


@every_law
def test_half_the_noise_or_a_share_too_few_is_caught(law: str, stream: RandomStream) -> None:
    share = SHARES[law]
    expected = reduce(np.convolve, [one_share(share)] * 5)
    quieter = replace(share, parameter=max(share.parameter / 2, 2.0 if "gauss" in law else 0.0))
    for wrong in (
        quieter.draw_sum(5, dimension=DRAWS, stream=stream),
        share.draw_sum(4, dimension=DRAWS, stream=stream),
    ):
        with pytest.raises(AssertionError, match="outside"):
            assert_counts_follow(*cells(wrong, expected))


def test_any_n_min_polya_shares_are_discrete_laplace_noise(stream: RandomStream) -> None:
    """False failure 1e-9: drawn party by party, n_min of them are the mechanism that is charged."""
    share = SHARES["polya"]
    parts = [share.draw_sum(1, dimension=DRAWS, stream=stream) for _ in range(share.honest)]
    k = np.arange(-300, 301)
    pmf = np.exp(-np.abs(k) / share.parameter)
    assert_counts_follow(*cells(np.sum(parts, axis=0), pmf / pmf.sum()))


@given(honest=st.integers(1, 65_536))
def test_n_min_polya_shares_are_never_less_than_the_whole(honest: int) -> None:
    """1/n is not a double; what is drawn adds up to at least 1, in exact arithmetic."""
    share = NoiseShare(law="polya", parameter=5.0, minimum=honest + 2, colluders=2)
    sampler = share.sampler(1)
    assert isinstance(sampler, Polya)
    assert 1 <= honest * Fraction(sampler.shape) <= 1 + Fraction(1, 2**50)


@every_law
def test_a_share_has_the_variance_it_states(law: str, stream: RandomStream) -> None:
    share = SHARES[law]
    pmf = one_share(share)
    k = np.arange(pmf.size) - pmf.size // 2
    assert share.variance == pytest.approx(float((pmf * k**2).sum()), rel=1e-9)


@every_law
def test_noise_goes_no_further_than_its_reach(law: str, stream: RandomStream) -> None:
    """The tail of the exact law beyond the reach, for small and less small variances."""
    share = SHARES[law]
    for parties in (3, 5):
        pmf = reduce(np.convolve, [one_share(share)] * parties)
        k = np.abs(np.arange(pmf.size) - pmf.size // 2)
        assert pmf[k > share.reach(parties)].sum() <= 2e-10


# --- Drop-outs and colluders --------------------------------------------------------------------


@every_law
def test_every_allowed_pattern_leaves_at_least_the_noise_that_was_accounted(
    law: ShareLaw, stream: RandomStream
) -> None:
    """All sets of survivors and colluders of five parties; seven standard errors each, 3e-12."""
    sharing = Sharing(parties=5, dropout=0.2, colluding=0.2, law=law)
    share = replace(SHARES[law], minimum=sharing.minimum, colluders=sharing.colluders)
    assert (share.minimum, share.colluders, share.honest) == (4, 1, 3)
    shares = [share.draw_sum(1, dimension=DRAWS // 4, stream=stream) for _ in range(5)]
    accounted = share.honest * share.variance
    patterns = 0
    for size in (4, 5):
        for survivors in combinations(range(5), size):
            for colluder in (None, *survivors):
                unknown = [shares[j] for j in survivors if j != colluder]
                squares = np.square(np.sum(unknown, axis=0).astype(float))
                error = 7 * squares.std() / sqrt(squares.size)
                assert squares.mean() >= accounted - error
                assert_mean_is(squares, len(unknown) * share.variance, float(squares.var()))
                patterns += 1
    assert patterns == 5 * 5 + 6
    # Teeth: one drop-out more than allowed leaves too little, and is seen.
    few = np.square(np.sum(shares[:2], axis=0).astype(float))
    assert few.mean() < accounted - 7 * few.std() / sqrt(few.size)


@given(
    parties=st.integers(1, 500),
    dropout=st.floats(0, 0.99),
    colluding=st.floats(0, 0.99),
)
def test_n_min_is_what_is_left_of_the_worst_case(
    parties: int, dropout: float, colluding: float
) -> None:
    gone, false = floor(dropout * parties + 1e-9), floor(colluding * parties + 1e-9)
    false = max(false, 1 if parties > 1 else 0)  # a party knows its own share
    if parties - gone - false < 1:
        with pytest.raises(ValueError, match="at least one honest party"):
            Sharing(parties=parties, dropout=dropout, colluding=colluding)
        return
    sharing = Sharing(parties=parties, dropout=dropout, colluding=colluding)
    assert (sharing.minimum, sharing.colluders) == (parties - gone, false)


def test_decimal_fractions_mean_what_they_say() -> None:
    assert Sharing(parties=100, dropout=0.29).minimum == 71


# --- Costs --------------------------------------------------------------------------------------


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


# --- Plans --------------------------------------------------------------------------------------

PLAN: dict[str, Any] = {
    "l1_sensitivity": 3000.0,
    "l2_sensitivity": 1000.0,
    "dimension": 9,
    "step": 2.0**-10,
    "adjacency": R,
}


@given(
    law=st.sampled_from(SHARE_LAWS),
    epsilon=st.floats(0.05, 8),
    shape=st.lists(st.floats(0.2, 5), min_size=1, max_size=5),
    dropout=st.sampled_from([0.0, 0.1, 0.5]),
)
@settings(max_examples=40)
def test_a_plan_is_proved_and_wastes_nothing(
    law: ShareLaw, epsilon: float, shape: list[float], dropout: float
) -> None:
    budget = Budget(epsilon=epsilon, delta=0.0 if law == "polya" else 1e-6)
    sharing = Sharing(parties=20, dropout=dropout, colluding=0.1, law=law)
    made = shared_noise(budget=budget, sharing=sharing, shape=shape, **PLAN)
    spent = account([(m.event(), 1) for m in made], delta=budget.delta).epsilon
    assert spent is not None
    assert spent <= epsilon
    assert spent >= epsilon * (1 - 1e-6)
    # Inverse law: the noise follows the shape, whatever the law.
    noise = [m.noise_stddev / part for m, part in zip(made, shape, strict=True)]
    assert noise == pytest.approx([noise[0]] * len(noise), rel=1e-3 if law == "polya" else 1e-9)


@given(law=st.sampled_from(SHARE_LAWS), factor=st.floats(1.01, 4))
@settings(max_examples=20)
def test_a_larger_budget_never_needs_more_noise(law: ShareLaw, factor: float) -> None:
    delta = 0.0 if law == "polya" else 1e-6
    noise = [
        shared_noise(
            budget=Budget(epsilon=epsilon, delta=delta),
            sharing=Sharing(parties=10, law=law),
            **PLAN,
        )[0].noise_stddev
        for epsilon in (0.5, 0.5 * factor)
    ]
    assert noise[1] < noise[0]


@every_law
def test_drop_outs_and_colluders_change_the_share_and_not_the_noise_that_is_sure(
    law: ShareLaw,
) -> None:
    budget = Budget(epsilon=1.0, delta=0.0 if law == "polya" else 1e-6)
    full, worst = (
        shared_noise(
            budget=budget,
            sharing=Sharing(parties=20, dropout=lost, colluding=lost, law=law),
            **PLAN,
        )[0]
        for lost in (0.0, 0.25)
    )
    assert (full.share.honest, worst.share.honest) == (19, 10)
    assert worst.noise_stddev == pytest.approx(full.noise_stddev, rel=1e-6)
    assert worst.share.variance == pytest.approx(1.9 * full.share.variance, rel=1e-6)
    # Over-noise if nobody drops out: √(survivors/n_min).
    assert worst.stddev_of(20) / worst.noise_stddev == pytest.approx(sqrt(2))


def test_shares_cost_little_more_noise_than_a_gaussian_of_the_server() -> None:
    """100 rounds at (1, 1e-6): 7.3 % more, all of it for Rényi accounting instead of exact."""
    (mechanism, *_) = shared_noise(
        budget=Budget(epsilon=1.0, delta=1e-6),
        sharing=Sharing(parties=20),
        shape=(1.0,) * 100,
        **PLAN,
    )
    gaussian = 1000.0 * 2.0**-10 * sqrt(100) / gdp_mu(epsilon=1.0, delta=1e-6)
    assert 1.0 < mechanism.noise_stddev / gaussian < 1.08


def test_shares_cost_a_party_what_the_document_says() -> None:
    """One order, chosen for the budget: what it shows of a smaller run is above the best order."""
    page = (Path(__file__).parents[3] / "docs" / "party-policy.md").read_text(encoding="utf-8")
    used = []
    for budget in (2.0, 3.0, 4.0):
        mechanisms = shared_noise(
            budget=Budget(epsilon=2.0, delta=1e-6),
            sharing=Sharing(parties=20),
            shape=(1.0,) * 100,
            **PLAN,
        )
        filled = RdpFilter.for_releases(
            budget=Budget(epsilon=budget, delta=1e-6), event=mechanisms[0].event()
        )
        for mechanism in mechanisms:
            filled = filled.admit(mechanism.event())
        used.append(filled.epsilon)
    said = "show as {:.2f} of a budget of 2, but as {:.2f} of one of 3 and {:.2f} of one of 4"
    assert said.format(*used) in " ".join(page.split())


def test_the_default_law_follows_from_delta() -> None:
    assert Sharing(parties=5).law_for(1e-6) == "skellam"
    assert Sharing(parties=5).law_for(0.0) == "polya"
    with pytest.raises(ValueError, match="only Pólya shares are pure"):
        Sharing(parties=5, law="skellam").law_for(0.0)


def test_a_grid_too_coarse_for_discrete_gaussians_is_refused() -> None:
    with pytest.raises(ValueError, match=r"too narrow.*Choose Skellam"):
        shared_noise(
            budget=Budget(epsilon=8.0, delta=1e-3),
            sharing=Sharing(parties=2000, law="discrete-gaussian"),
            **{**PLAN, "l2_sensitivity": 50.0},
        )


# --- Values -------------------------------------------------------------------------------------


@every_law
def test_a_share_is_a_frozen_value_and_a_mechanism_draws_n_min_of_them(law: str) -> None:
    share = SHARES[law]
    with pytest.raises(FrozenInstanceError):
        share.minimum = 1  # type: ignore[misc]
    mechanism = SharedNoise(
        adjacency=R, share=share, l1_sensitivity=3.0, l2_sensitivity=2.0, dimension=5, step=0.5
    )
    noise = mechanism.noise((5,), step=0.5, stream=RandomStream.seeded(4))
    same = share.draw_sum(share.honest, dimension=5, stream=RandomStream.seeded(4))
    assert (noise == same).all()
    assert mechanism.noise_stddev == pytest.approx(0.5 * sqrt(3 * share.variance))
    assert law in mechanism.title
    with pytest.raises(ValueError, match=r"step must be 0\.5"):
        mechanism.noise((5,), step=0.25, stream=RandomStream.seeded(4))
    with pytest.raises(ValueError, match="dimension = 5"):
        mechanism.noise((4,), step=0.5, stream=RandomStream.seeded(4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"law": "gaussian"}, "law must be one of"),
        ({"parameter": 0.0}, "parameter must be positive"),
        ({"parameter": float("nan")}, "parameter must be positive"),
        ({"minimum": 0}, "minimum must be an integer"),
        ({"minimum": 2.5}, "minimum must be an integer"),
        ({"colluders": -1}, "colluders must be an integer"),
        ({"colluders": 4}, "somebody must bring noise"),
        ({"colluders": True}, "colluders must be an integer"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SHARES["skellam"], **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"colluding": -0.1}, "colluding must lie in"),
        ({"dropout": 0.5, "colluding": 0.5}, "at least one honest party of 10"),
        ({"law": "laplace"}, "law must be one of"),
        ({"parties": 0}, "parties must be an integer"),
    ],
)
def test_a_sharing_that_leaves_nobody_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sharing(**{"parties": 10, **changes})
