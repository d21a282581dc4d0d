"""Plans: sensitivities from public facts, noise that fits, and nothing that does not."""

from dataclasses import replace
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.events import GaussianEvent, PoissonGaussianEvent, PureEvent
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.mechanisms import (
    DiscreteGaussianMechanism,
    GaussianMechanism,
    Mechanism,
)
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.privacy.planning.output import output_plan
from fedpriv.privacy.unit import Unit

R = Adjacency.REPLACE_ONE


def gradient(**changes: Any) -> FixedPlan:
    good: dict[str, Any] = {
        "budget": Budget(epsilon=1, delta=1e-6),
        "rounds": 50,
        "sensitivity": 1.0,
        "clip_norm": 0.5,
        "sizes": [100, 60, 40],
        "dimension": 9,
        "step": 1e-6,
        "adjacency": R,
    }
    return gradient_plan(**{**good, **changes})


def output(**changes: Any) -> FixedPlan:
    good: dict[str, Any] = {
        "budget": Budget(epsilon=0.5, delta=0),
        "sensitivity": 0.004,
        "sizes": [500] * 100,
        "dimension": 9,
        "step": 1e-12,
    }
    return output_plan(**{**good, **changes})


def plan_of(*mechanisms: Mechanism, **changes: Any) -> FixedPlan:
    good: dict[str, Any] = {
        "strategy": "test",
        "query": "a sum",
        "released": "it",
        "budget": Budget(epsilon=1, delta=1e-6),
        "parties": 3,
        "records": 200,
        "smallest_party": 40,
        "dimension": 9,
        "step": 1e-6,
    }
    return FixedPlan(mechanisms=mechanisms, **{**good, **changes})


def test_gradient_noise_is_calibrated_to_the_sensitivity_on_the_grid() -> None:
    plan = gradient()
    (mechanism,) = set(plan.mechanisms)
    assert isinstance(mechanism, GaussianMechanism)
    assert mechanism.sensitivity == pytest.approx(2 * 0.5 + sqrt(9) * 1e-6, rel=1e-12)
    expected = mechanism.sensitivity * sqrt(50) / gdp_mu(epsilon=1, delta=1e-6)
    assert mechanism.stddev == pytest.approx(expected, rel=1e-9)
    assert (plan.parties, plan.records, plan.smallest_party) == (3, 200, 40)


def test_half_the_sensitivity_needs_half_the_noise() -> None:
    removed, replaced = gradient(adjacency="add-remove", sensitivity=0.5), gradient()
    ratio = replaced.mechanisms[0].noise_stddev / removed.mechanisms[0].noise_stddev
    assert ratio == pytest.approx(2, rel=1e-5)


@given(
    epsilon=st.floats(0.05, 8),
    shape=st.lists(st.floats(0.2, 5), min_size=1, max_size=30),
    adjacency=st.sampled_from(Adjacency),
)
def test_a_plan_spends_exactly_what_its_mechanisms_say(
    epsilon: float, shape: list[float], adjacency: Adjacency
) -> None:
    plan = gradient(
        budget=Budget(epsilon=epsilon, delta=1e-7),
        rounds=len(shape),
        shape=shape,
        adjacency=adjacency,
    )
    spent = account([(m.event(), 1) for m in plan.mechanisms], delta=1e-7).epsilon
    assert spent == pytest.approx(plan.epsilon, rel=1e-12)
    assert epsilon * (1 - 1e-9) <= plan.epsilon <= epsilon * (1 + 1e-10)


def test_a_sampled_plan_is_charged_for_sampled_events() -> None:
    plan = gradient(adjacency="add-remove", sampling_rate=0.1, rounds=5, accountant="rdp")
    assert isinstance(plan.event(0), PoissonGaussianEvent)
    assert sum(count for _, count in plan.releases) == 5


def test_a_sensitivity_below_the_clip_norm_is_refused() -> None:
    gradient(adjacency="add-remove", sensitivity=0.5)
    with pytest.raises(ValueError, match="sensitivity must be at least 2 times the clip_norm"):
        gradient(sensitivity=0.5)


def test_unsound_noise_is_planned_at_what_it_really_costs() -> None:
    plan = output(law="unsound-laplace")
    assert plan.budget.epsilon == plan.epsilon == pytest.approx(sqrt(9) * 0.5)


@pytest.mark.parametrize("law", ["l2-laplace", "l1-laplace", "gaussian"])
def test_every_law_spends_its_budget(law: str) -> None:
    plan = output(law=law, budget=Budget(epsilon=0.5, delta=1e-6))
    assert plan.epsilon <= 0.5
    assert plan.adjacency is R


def test_a_plan_over_its_budget_is_refused() -> None:
    loud = GaussianMechanism(sensitivity=1, stddev=1, adjacency=R)
    with pytest.raises(
        BudgetExceeded, match=r"would spend epsilon = .* of 1 .*Nothing was released"
    ):
        plan_of(loud)
    with pytest.raises(BudgetExceeded, match="no finite epsilon"):
        plan_of(loud, budget=Budget(epsilon=1, delta=0))


def test_half_the_noise_is_refused() -> None:
    """The twin of every calibrated plan: what would escape if plan and events could disagree."""
    fitting = gradient()
    halved = [
        GaussianMechanism(sensitivity=m.sensitivity, stddev=m.stddev / 2, adjacency=R)
        for m in fitting.mechanisms
        if isinstance(m, GaussianMechanism)
    ]
    with pytest.raises(BudgetExceeded):
        plan_of(*halved)


def test_a_plan_is_one_adjacency_one_unit_and_at_least_one_release() -> None:
    quiet = GaussianMechanism(sensitivity=1, stddev=100, adjacency=R)
    with pytest.raises(ValueError, match="same adjacency"):
        plan_of(quiet, replace(quiet, adjacency=Adjacency.ADD_REMOVE))
    with pytest.raises(ValueError, match="same unit"):
        plan_of(quiet, replace(quiet, unit=Unit.PARTY))
    with pytest.raises(ValueError, match="at least one release"):
        plan_of()


def test_sampling_needs_a_law_whose_amplification_is_known() -> None:
    mechanism = DiscreteGaussianMechanism(sensitivity=1, stddev=100, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError, match="sampling_rate must be 1 with zcdp releases"):
        plan_of(mechanism, sampling_rate=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": []}, "sizes must hold at least one party"),
        ({"sizes": [5, 0]}, r"sizes\[1\] must be an integer of at least 1, got 0"),
        ({"clip_norm": 0}, "clip_norm must be positive"),
        ({"step": 0}, "step must be positive"),
        ({"dimension": 0}, "dimension must be an integer"),
        ({"rounds": 0}, "rounds must be an integer"),
    ],
)
def test_bad_gradient_plans_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradient(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sensitivity": 0}, "sensitivity must be positive"),
        ({"law": "laplace"}, "law must be one of"),
        ({"law": "gaussian"}, "delta must be positive for Gaussian noise"),
    ],
)
def test_bad_output_plans_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        output(**changes)


def test_events_follow_the_mechanisms() -> None:
    assert isinstance(gradient().event(0), GaussianEvent)
    assert output().event(0) == PureEvent(epsilon=0.5, adjacency=R)
