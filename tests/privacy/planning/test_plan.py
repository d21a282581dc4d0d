"""Plans: sensitivities from public facts, noise that fits, and nothing that does not."""

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
    L2LaplaceMechanism,
    Mechanism,
)
from fedpriv.privacy.planning.classical import gradient_plan, output_plan
from fedpriv.privacy.planning.plan import Plan

R = Adjacency.REPLACE_ONE


def gradient(**changes: Any) -> Plan:
    good: dict[str, Any] = {
        "budget": Budget(epsilon=1, delta=1e-6),
        "rounds": 50,
        "clip_norm": 0.5,
        "sizes": [100, 60, 40],
        "dimension": 9,
        "step": 1e-6,
        "adjacency": R,
    }
    return gradient_plan(**{**good, **changes})


def output(**changes: Any) -> Plan:
    good: dict[str, Any] = {
        "budget": Budget(epsilon=0.5, delta=0),
        "lipschitz": 1.0,
        "regulariser": 0.01,
        "sizes": [500] * 100,
        "dimension": 9,
        "step": 1e-12,
    }
    return output_plan(**{**good, **changes})


def plan_of(*mechanisms: Mechanism, **changes: Any) -> Plan:
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
    return Plan(mechanisms=mechanisms, **{**good, **changes})


def test_gradient_noise_is_calibrated_to_the_sensitivity_on_the_grid() -> None:
    plan = gradient()
    (mechanism,) = set(plan.mechanisms)
    assert isinstance(mechanism, GaussianMechanism)
    assert mechanism.sensitivity == pytest.approx(2 * 0.5 + sqrt(9) * 1e-6, rel=1e-12)
    expected = mechanism.sensitivity * sqrt(50) / gdp_mu(epsilon=1, delta=1e-6)
    assert mechanism.stddev == pytest.approx(expected, rel=1e-9)
    assert (plan.parties, plan.records, plan.smallest_party) == (3, 200, 40)


def test_removing_a_record_moves_half_as_much() -> None:
    removed, replaced = gradient(adjacency="add-remove"), gradient()
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


def test_equal_weights_pay_for_the_smallest_party_and_proportional_ones_do_not() -> None:
    sizes = [900, 90, 10]
    equal = output(sizes=sizes, weights="equal").mechanisms[0]
    proportional = output(sizes=sizes, weights="proportional").mechanisms[0]
    assert isinstance(equal, L2LaplaceMechanism)
    assert isinstance(proportional, L2LaplaceMechanism)
    assert equal.sensitivity == pytest.approx(2 / (3 * 10 * 0.01), rel=1e-9)
    assert proportional.sensitivity == pytest.approx(2 / (1000 * 0.01), rel=1e-9)


@given(sizes=st.lists(st.integers(1, 10**5), min_size=1, max_size=20), tolerance=st.floats(0, 1e-3))
def test_proportional_weights_are_never_more_sensitive_with_exact_minimisers(
    sizes: list[int], tolerance: float
) -> None:
    equal = output(sizes=sizes, weights="equal").mechanisms[0]
    proportional = output(sizes=sizes, weights="proportional").mechanisms[0]
    assert proportional.noise_stddev <= equal.noise_stddev * (1 + 1e-9)
    inexact = output(sizes=sizes, weights="proportional", tolerance=tolerance).mechanisms[0]
    assert inexact.noise_stddev >= proportional.noise_stddev


def test_an_uncertified_minimiser_costs_twice_its_tolerance_over_lambda() -> None:
    exact, inexact = output(sizes=[50]), output(sizes=[50], tolerance=1e-3)
    added = inexact.mechanisms[0].sensitivity - exact.mechanisms[0].sensitivity  # type: ignore[attr-defined]
    assert added == pytest.approx(2 * 1e-3 / 0.01, rel=1e-9)


@pytest.mark.parametrize("law", ["l2-laplace", "l1-laplace", "gaussian"])
def test_every_law_spends_its_budget(law: str) -> None:
    plan = output(law=law, budget=Budget(epsilon=0.5, delta=1e-6))
    assert plan.epsilon <= 0.5
    assert plan.adjacency is R


def test_the_published_noise_of_output_perturbation() -> None:
    """Scale 2G/(m n1 lambda eps) = 0.008 at m = 100, n1 = 500 (Jayaraman et al. 2018, Table 1)."""
    mechanism = output(weights="equal", dimension=1).mechanisms[0]
    assert mechanism.noise_stddev == pytest.approx(sqrt(2) * 0.008, rel=1e-6)
    assert round(mechanism.noise_stddev, 5) == 0.01131


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


def test_a_plan_is_one_adjacency_and_at_least_one_release() -> None:
    quiet = {"sensitivity": 1, "stddev": 100}
    with pytest.raises(ValueError, match="same adjacency"):
        plan_of(
            GaussianMechanism(**quiet, adjacency=R),
            GaussianMechanism(**quiet, adjacency=Adjacency.ADD_REMOVE),
        )
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
        ({"regulariser": 0}, "regulariser must be positive"),
        ({"tolerance": -1}, "tolerance must be finite and at least 0"),
        ({"law": "laplace"}, "law must be one of"),
        ({"weights": "1/m"}, "weights must be one of"),
        ({"law": "gaussian"}, "delta must be positive for Gaussian noise"),
    ],
)
def test_bad_output_plans_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        output(**changes)


def test_events_follow_the_mechanisms() -> None:
    assert isinstance(gradient().event(0), GaussianEvent)
    assert output().event(0) == PureEvent(epsilon=0.5, adjacency=R)
