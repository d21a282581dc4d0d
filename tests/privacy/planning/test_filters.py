"""Filters: no adaptive sequence, however chosen, gets past the budget, and none is cut short."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accountants import GdpAccountant, RdpAccountant, UnsupportedEvent
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.conversions import rdp_epsilon
from fedpriv.privacy.events import Event, GaussianEvent, PoissonGaussianEvent, PureEvent
from fedpriv.privacy.planning.calibration import calibrate
from fedpriv.privacy.planning.filters import (
    GdpFilter,
    PrivacyFilter,
    RdpFilter,
    fresh_filter,
    least_noise,
)
from fedpriv.privacy.planning.plan import sampled

A = Adjacency.ADD_REMOVE
BUDGETS = st.builds(Budget, epsilon=st.floats(0.05, 10), delta=st.floats(1e-10, 1e-3))


def gaussian(noise: float) -> GaussianEvent:
    return GaussianEvent(relative_noise=noise, adjacency=A)


def spend_greedily(fresh: PrivacyFilter, propose: list[Event]) -> tuple[PrivacyFilter, list[Event]]:
    """What an adversary gets through who tries everything and retries after each refusal."""
    admitted: list[Event] = []
    for event in propose:
        try:
            fresh = fresh.admit(event)
        except BudgetExceeded:
            continue
        admitted.append(event)
    return fresh, admitted


@given(budget=BUDGETS, noises=st.lists(st.floats(0.3, 100), min_size=1, max_size=40))
def test_no_adaptive_gaussian_sequence_exceeds_the_budget(
    budget: Budget, noises: list[float]
) -> None:
    _, admitted = spend_greedily(
        GdpFilter(budget=budget, adjacency=A), [gaussian(z) for z in noises]
    )
    spent = GdpAccountant(adjacency=A).compose_all((e, 1) for e in admitted)
    assert spent.epsilon(budget.delta) <= budget.epsilon * (1 + 1e-9)


@given(budget=BUDGETS, noises=st.lists(st.floats(0.8, 20), min_size=1, max_size=30), data=st.data())
@settings(max_examples=20)
def test_no_adaptive_mixture_exceeds_the_budget_of_a_renyi_filter(
    budget: Budget, noises: list[float], data: st.DataObject
) -> None:
    events: list[Event] = [
        data.draw(
            st.sampled_from(
                [
                    gaussian(z),
                    PoissonGaussianEvent(relative_noise=z, sampling_rate=0.1, adjacency=A),
                    PureEvent(epsilon=1 / z, adjacency=A),
                ]
            )
        )
        for z in noises
    ]
    fresh = RdpFilter.for_releases(budget=budget, event=events[0])
    _, admitted = spend_greedily(fresh, events)
    spent = RdpAccountant(adjacency=A, orders=(fresh.order,)).compose_all((e, 1) for e in admitted)
    assert spent.epsilon(budget.delta) <= budget.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("order", [1.5, 4.0, 60.0])
def test_the_limit_of_a_renyi_filter_converts_to_its_budget(order: float) -> None:
    budget = Budget(epsilon=20.0, delta=1e-3)
    limit = RdpFilter(budget=budget, adjacency=A, order=order).limit
    assert limit > 0
    converted = rdp_epsilon(
        orders=np.array([order]), divergences=np.array([limit]), delta=budget.delta
    )
    assert converted == pytest.approx(budget.epsilon, rel=1e-9)


@pytest.mark.parametrize("parts", [1, 3])
def test_noise_for_a_person_at_several_parties_costs_what_may_be_spent(parts: int) -> None:
    """The release that is made is one on samples of all of these parties."""
    fund = fresh_filter("rdp-filter", budget=Budget(epsilon=4.0, delta=1e-5), adjacency=A)
    amount = 0.1 * fund.limit
    noise = least_noise(fund, amount=amount, sampling_rate=0.2, parts=parts)
    spent = fund.cost(sampled(gaussian(noise), 0.2, parts=parts))
    assert spent <= amount
    assert spent == pytest.approx(amount, rel=1e-6)


@given(epsilon=st.floats(0.05, 10), rounds=st.integers(1, 300), seed=st.integers(0, 1000))
def test_the_last_round_of_a_calibrated_schedule_is_not_lost_to_rounding(
    epsilon: float, rounds: int, seed: int
) -> None:
    shape = [random.Random(seed + t).uniform(0.1, 10) for t in range(rounds)]  # noqa: S311
    plan = calibrate(epsilon=epsilon, delta=1e-6, rounds=rounds, adjacency=A, shape=shape)
    filling: PrivacyFilter = GdpFilter(budget=Budget(epsilon=epsilon, delta=1e-6), adjacency=A)
    for noise in plan.noise_multipliers:
        filling = filling.admit(gaussian(noise))
    with pytest.raises(BudgetExceeded, match="Nothing was released"):
        filling.admit(gaussian(min(plan.noise_multipliers)))


def test_a_refusal_says_what_would_fit() -> None:
    filling = GdpFilter(budget=Budget(epsilon=1, delta=1e-6), adjacency=A).admit(gaussian(6))
    least = filling.least_noise
    filling.admit(gaussian(least * (1 + 1e-9)))
    with pytest.raises(BudgetExceeded, match="at most"):
        filling.admit(gaussian(least * 0.999))


def test_the_gdp_filter_refuses_what_is_not_gaussian() -> None:
    with pytest.raises(UnsupportedEvent):
        GdpFilter(budget=Budget(epsilon=1, delta=1e-6), adjacency=A).admit(
            PureEvent(epsilon=0.01, adjacency=A)
        )


def test_a_filter_refuses_another_adjacency() -> None:
    filling = GdpFilter(budget=Budget(epsilon=1, delta=1e-6), adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(ValueError, match="adjacenc"):
        filling.admit(gaussian(10))


def test_the_renyi_filter_is_nearly_as_generous_as_the_exact_one() -> None:
    """Uniform Gaussians: at least 80 percent of the rounds that exact accounting allows."""
    budget, event = Budget(epsilon=2, delta=1e-6), gaussian(30)

    def rounds(filling: PrivacyFilter) -> int:
        count = 0
        while filling.affords(event):
            filling, count = filling.admit(event), count + 1
        return count

    exact = rounds(GdpFilter(budget=budget, adjacency=A))
    renyi = rounds(RdpFilter.for_releases(budget=budget, event=event))
    assert 0.8 * exact <= renyi <= exact
