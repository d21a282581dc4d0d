"""How a ledger adds up spend: each rule is sound, and none is looser than what it promises."""

import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import (
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    UnsupportedEvent,
    account,
)
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonGaussianEvent,
    PoissonPureEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.ledger.choice import choose_composition, composition_from_dict
from fedpriv.privacy.ledger.composition import (
    BasicComposition,
    Block,
    Composition,
    Cost,
    GdpComposition,
    RdpComposition,
    randomised_response_mu,
)
from fedpriv.privacy.ledger.spend import Spend, nearest_that_fits
from fedpriv.privacy.tradeoff import gaussian_tradeoff_curve, tradeoff_curve

A = Adjacency.ADD_REMOVE
BUDGET = Budget(epsilon=2.0, delta=1e-6)
GDP = GdpComposition(budget=BUDGET, adjacency=A)
BASIC = BasicComposition(budget=BUDGET, adjacency=A)
RDP = RdpComposition(budget=BUDGET, adjacency=A, order=12.0)
GAUSSIAN = GaussianEvent(relative_noise=20.0, adjacency=A)
SAMPLED = PoissonGaussianEvent(relative_noise=2.0, sampling_rate=0.01, adjacency=A)
PURE = PureEvent(epsilon=0.05, adjacency=A)


def greedy(rule: Composition, events: Sequence[Event]) -> tuple[Cost, list[Event]]:
    """What somebody gets through who tries everything."""
    total, admitted = Cost(), []
    for event in events:
        after = total + rule.price(event)
        if rule.admits(after):
            total = after
            admitted.append(event)
    return total, admitted


@given(epsilon=st.floats(1e-6, 50))
def test_randomised_response_is_gaussian_dp_with_the_stated_mu(epsilon: float) -> None:
    mu = randomised_response_mu(epsilon)
    alarms = np.concatenate([np.geomspace(1e-300, 1e-3, 200), np.linspace(1e-3, 1, 500)])
    response = tradeoff_curve(alarms, epsilon=epsilon, delta=0.0)
    assert np.all(gaussian_tradeoff_curve(alarms, mu=mu) <= response + 1e-12)


@given(epsilon=st.floats(1e-3, 30))
def test_no_smaller_mu_would_do(epsilon: float) -> None:
    """At the corner of the polygon the two curves meet."""
    corner = 1 / (1 + math.exp(epsilon))
    smaller = gaussian_tradeoff_curve(corner, mu=0.999 * randomised_response_mu(epsilon))
    assert float(smaller) > corner


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-3, 0.999999, 1.0, 3.0, 40.0, 800.0])
def test_mu_of_randomised_response_agrees_with_mpmath(epsilon: float) -> None:
    with mpmath.workdps(400):
        e = mpmath.exp(epsilon)
        gap = (e - 1) / (e + 1)
        reference = float(2 * mpmath.sqrt(2) * mpmath.erfinv(gap))
    assert randomised_response_mu(epsilon) == pytest.approx(reference, rel=1e-12)


@given(
    noises=st.lists(st.floats(0.5, 100), min_size=1, max_size=40),
    budget=st.builds(Budget, epsilon=st.floats(0.05, 10), delta=st.floats(1e-10, 1e-3)),
)
def test_a_gdp_ledger_never_admits_more_gaussians_than_the_exact_accountant(
    noises: list[float], budget: Budget
) -> None:
    rule = GdpComposition(budget=budget, adjacency=A)
    events: list[Event] = [GaussianEvent(relative_noise=z, adjacency=A) for z in noises]
    total, admitted = greedy(rule, events)
    exact = GdpAccountant(adjacency=A).compose_all((e, 1) for e in admitted)
    assert exact.epsilon(budget.delta) <= budget.epsilon * (1 + 1e-9)
    assert rule.guarantee(total).epsilon == pytest.approx(exact.epsilon(budget.delta), rel=1e-9)


@given(data=st.data())
@settings(max_examples=15)
def test_a_gdp_ledger_with_pure_releases_never_beats_their_true_loss(data: st.DataObject) -> None:
    """The privacy-loss distribution is tight up to its grid: the ledger may not be below it."""
    events = data.draw(
        st.lists(
            st.one_of(
                st.builds(GaussianEvent, relative_noise=st.floats(5, 50), adjacency=st.just(A)),
                st.builds(PureEvent, epsilon=st.floats(0.02, 0.3), adjacency=st.just(A)),
                st.builds(LaplaceEvent, relative_noise=st.floats(4, 40), adjacency=st.just(A)),
                st.builds(BoundedRangeEvent, epsilon=st.floats(0.02, 0.3), adjacency=st.just(A)),
            ),
            min_size=2,
            max_size=12,
        )
    )
    total, admitted = greedy(GDP, events)
    tight = PldAccountant(adjacency=A).compose_all((e, 1) for e in admitted)
    assert GDP.guarantee(total).epsilon >= tight.epsilon(BUDGET.delta) * (1 - 0.01)


@pytest.mark.parametrize("rule", [GDP, BASIC, RDP], ids=lambda rule: rule.name)
def test_the_limit_of_a_rule_never_depends_on_what_was_spent(rule: Composition) -> None:
    """Else it is no filter: which of two resources is spent may depend on what was seen."""
    limit = rule.limit()
    assert rule.admits(Cost(amount=limit))
    assert not rule.admits(Cost(amount=limit * (1 + 1e-6)))
    for delta in (1e-9, 1e-7, BUDGET.delta):
        assert rule.admits(Cost(amount=limit, delta=delta))


@pytest.mark.parametrize("delta", [None, 1e-7])
def test_a_gdp_ledger_refuses_blocks_without_a_mu(delta: float | None) -> None:
    """Gaussians on courses that revealed much, a block on the others: together almost 2 delta."""
    with pytest.raises(UnsupportedEvent, match="gdp composition cannot price"):
        GDP.price_block(((SAMPLED, 1),), delta=delta, spent=Cost())


def test_a_block_of_gaussian_and_pure_releases_costs_what_they_cost_one_by_one() -> None:
    block: Block = ((GAUSSIAN, 7), (PURE, 3))
    alone = 7 * GDP.price(GAUSSIAN).amount + 3 * GDP.price(PURE).amount
    assert GDP.price_block(block, delta=None, spent=Cost()).amount == pytest.approx(alone)


def test_basic_composition_adds_epsilon_and_takes_the_tightest_price_of_a_block() -> None:
    assert BASIC.price(PURE) == Cost(amount=0.05)
    pld = account([(SAMPLED, 1000)], delta=5e-7).epsilon
    rdp = account([(SAMPLED, 1000)], delta=5e-7, accountant="rdp").epsilon
    cost = BASIC.price_block(((SAMPLED, 1000),), delta=5e-7, spent=Cost())
    assert cost == Cost(amount=pld, delta=5e-7)  # type: ignore[arg-type]
    assert rdp is not None
    assert cost.amount < rdp


def test_a_block_takes_what_is_left_of_delta_unless_told() -> None:
    cost = BASIC.price_block(((GAUSSIAN, 1),), delta=None, spent=Cost(amount=0.1, delta=4e-7))
    assert cost.delta == pytest.approx(6e-7)


def test_a_pure_block_spends_delta_only_if_told_to_and_only_for_a_gain() -> None:
    assert BASIC.price_block(((PURE, 40),), delta=None, spent=Cost()) == Cost(amount=40 * 0.05)
    cheaper = BASIC.price_block(((PURE, 40),), delta=1e-7, spent=Cost())
    assert cheaper.amount < 40 * 0.05
    assert cheaper.delta == 1e-7
    assert BASIC.price_block(((PURE, 1),), delta=0.0, spent=Cost()) == Cost(amount=0.05)


def test_nothing_but_pure_noise_fits_a_pure_budget() -> None:
    rule = BasicComposition(budget=Budget(epsilon=1.0, delta=0.0), adjacency=A)
    assert rule.admits(rule.price_block(((PURE, 20),), delta=None, spent=Cost()))
    gaussian = rule.price_block(((GAUSSIAN, 1),), delta=None, spent=Cost())
    assert gaussian.amount == math.inf
    assert not rule.admits(gaussian)


def test_a_renyi_ledger_is_the_filter_at_its_order() -> None:
    events: list[Event] = [SAMPLED] * 50 + [GAUSSIAN] * 50 + [PURE] * 20
    total, admitted = greedy(RDP, events)
    spent = RdpAccountant(adjacency=A, orders=(12.0,)).compose_all((e, 1) for e in admitted)
    assert RDP.guarantee(total).epsilon == pytest.approx(spent.epsilon(BUDGET.delta), rel=1e-12)
    assert spent.epsilon(BUDGET.delta) <= BUDGET.epsilon * (1 + 1e-9)


PAIR = ApproximateEvent(epsilon=0.25, delta=2e-7, adjacency=A)
SHARED = DistributedGaussianEvent(
    shares=9, share_stddev=1000, l1_sensitivity=70, l2_sensitivity=10, dimension=49, adjacency=A
)


def test_a_pair_costs_its_epsilon_and_its_delta() -> None:
    assert BASIC.price(PAIR) == Cost(amount=0.25, delta=2e-7)
    block: Block = ((PAIR, 2), (PURE, 1))
    both = Cost(amount=2 * 0.25 + 0.05, delta=2 * 2e-7)
    assert BASIC.price_block(block, delta=None, spent=Cost()) == both
    assert BASIC.price_block(block, delta=5e-7, spent=Cost()).delta <= 5e-7
    assert not BASIC.admits(BASIC.price_block(((PAIR, 2),), delta=3e-7, spent=Cost()))
    total, admitted = greedy(BASIC, [PAIR] * 8)
    assert len(admitted) == 5  # then delta is spent
    assert BASIC.guarantee(total).epsilon == pytest.approx(1.25)


def test_a_run_of_shares_is_declared_or_filtered() -> None:
    declared = BASIC.price_block(((SHARED, 10),), delta=5e-7, spent=Cost())
    expected = account([(SHARED, 10)], delta=5e-7, accountant="rdp").epsilon
    assert declared == Cost(amount=expected, delta=5e-7)  # type: ignore[arg-type]
    assert RDP.price(SHARED).amount == pytest.approx(12.0 * 100 / (2 * 9e6), rel=1e-9)


@pytest.mark.parametrize("rule", [GDP, RDP])
def test_a_pair_has_no_mu_and_no_divergence(rule: Composition) -> None:
    with pytest.raises(UnsupportedEvent):
        rule.price(PAIR)


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        (GDP, SHARED),
        (BASIC, SHARED),
        (GDP, SAMPLED),
        (GDP, ZcdpEvent(rho=0.01, adjacency=A)),
        (BASIC, GAUSSIAN),
        (BASIC, SAMPLED),
    ],
)
def test_a_rule_refuses_what_it_cannot_price_and_says_what_to_do(
    rule: Composition, event: Event
) -> None:
    with pytest.raises(UnsupportedEvent, match=r"declare the run|declared runs"):
        rule.price(event)


@pytest.mark.parametrize("rule", [GDP, BASIC, RDP])
def test_no_rule_adds_up_different_adjacencies(rule: Composition) -> None:
    other = PureEvent(epsilon=0.1, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match="do not add up"):
        rule.price(other)
    with pytest.raises(ValueError, match="do not add up"):
        rule.price_block(((PURE, 1), (other, 1)), delta=1e-7, spent=Cost())


@pytest.mark.parametrize("noise", [1e-200, 1e200])
@pytest.mark.parametrize("rule", [GDP, RDP])
def test_noise_beyond_the_range_of_floats_is_refused_or_next_to_free_never_an_error(
    rule: Composition, noise: float
) -> None:
    cost = rule.price(GaussianEvent(relative_noise=noise, adjacency=A))
    assert 0 < cost.amount < 1e-300 or cost.amount == math.inf
    assert noise > 1 or not rule.admits(cost)


def test_a_renyi_ledger_cannot_begin_with_noise_beyond_the_range_of_floats() -> None:
    block: Block = ((GaussianEvent(relative_noise=1e-200, adjacency=A), 1),)
    with pytest.raises(UnsupportedEvent, match="range of floats"):
        choose_composition("rdp", block, declared=False, budget=BUDGET, adjacency=A)


AUTO_CASES: list[tuple[Block, bool, str]] = [
    (((GAUSSIAN, 1),), False, "gdp"),
    (((PURE, 1),), False, "gdp"),
    (((GAUSSIAN, 5), (PURE, 1)), True, "gdp"),
    (((SAMPLED, 1),), False, "rdp"),
    (((SkellamEvent(variance=1e6, l1_sensitivity=70, l2_sensitivity=10, adjacency=A), 1),),
     False, "rdp"),
    (((SAMPLED, 100),), True, "basic"),
    (((PAIR, 1),), False, "basic"),
    (((SHARED, 1),), False, "rdp"),
    (((SHARED, 10),), True, "basic"),
    (((GAUSSIAN, 1), (SAMPLED, 100)), True, "basic"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "declared", "name"), AUTO_CASES)
def test_the_first_charge_decides_the_rule(block: Block, declared: bool, name: str) -> None:
    rule = choose_composition("auto", block, declared=declared, budget=BUDGET, adjacency=A)
    assert rule.name == name
    assert composition_from_dict(rule.to_dict(), budget=BUDGET, adjacency=A) == rule


def test_without_delta_there_is_only_basic_composition() -> None:
    pure = Budget(epsilon=1.0, delta=0.0)
    for block in (((GAUSSIAN, 1),), ((PURE, 1),)):
        found = choose_composition("auto", block, declared=False, budget=pure, adjacency=A)
        assert found.name == "basic"


@given(
    left=st.floats(0.01, 0.9),
    rule=st.sampled_from([GDP, RDP]),
    event=st.sampled_from(
        [
            GaussianEvent(relative_noise=0.1, adjacency=A),
            PureEvent(epsilon=30.0, adjacency=A),
            LaplaceEvent(relative_noise=0.01, adjacency=A),
            PoissonPureEvent(epsilon=30.0, sampling_rate=0.5, adjacency=A),
        ]
    ),
)
def test_a_refusal_names_the_least_noise_that_fits(
    left: float, rule: Composition, event: Event
) -> None:
    total = Cost(amount=(1 - left) * rule.limit())
    spent = Spend(budget=BUDGET, composition=rule, total=total)
    assert not rule.admits(total + rule.price(event))
    nearest = nearest_that_fits(spent, event)
    assert nearest is not None
    assert type(nearest) is type(event)
    cost = rule.price(nearest)
    assert rule.admits(total + cost)
    assert not rule.admits(total + Cost(amount=cost.amount * (1 + 1e-4)))


@given(st.lists(st.floats(1e-30, 1e3), min_size=2, max_size=50))
def test_a_total_is_never_below_its_exact_sum_and_every_cost_counts(costs: list[float]) -> None:
    total = Cost()
    for cost in costs:
        after = total + Cost(amount=cost, delta=cost)
        assert after.amount > total.amount
        assert after.delta > total.delta
        total = after
    assert Fraction(total.amount) >= sum(map(Fraction, costs))
    assert total.amount == pytest.approx(math.fsum(costs), rel=1e-13)


def test_nothing_fits_when_all_is_spent() -> None:
    spent = Spend(budget=BUDGET, composition=GDP, total=Cost(amount=GDP.limit() * (1 + 1e-10)))
    assert spent.within_budget
    assert spent.left.share == 0.0
    assert nearest_that_fits(spent, GaussianEvent(relative_noise=1.0, adjacency=A)) is None
