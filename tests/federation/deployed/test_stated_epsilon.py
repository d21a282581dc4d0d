"""Stated epsilon of noise that was chosen on the way: its filter must admit what was released."""

from __future__ import annotations

from typing import Any

import pytest

from fedpriv.federation.deployed.statements.stated_epsilon import Unsound, recomputed_epsilon
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import FILTERS, fresh_filter
from fedpriv.privacy.planning.written_plan import events_of

ONE = Adjacency.REPLACE_ONE
BUDGET = Budget(epsilon=1.0, delta=1e-6)
GAUSSIAN = GaussianMechanism(sensitivity=2.0, stddev=20.0, adjacency=ONE)


def plan_of(name: str) -> AdaptivePlan:
    """As many releases as the filter admits; of the Rényi filter, selections among them."""
    plan = AdaptivePlan(
        strategy="walker",
        query="a sum",
        released="noisy sums",
        filter=fresh_filter(name, budget=BUDGET, adjacency=ONE),
        parties=2,
        records=50,
        smallest_party=20,
        dimension=3,
        step=2.0**-16,
    )
    if name == "rdp-filter":
        plan = plan.admit(ReportNoisyMax(epsilon=0.01, sensitivity=1.0, adjacency=ONE), part="a")
        plan = plan.admit(ExponentialMechanism(epsilon=0.01, sensitivity=1.0, adjacency=ONE))
    while True:
        try:
            plan = plan.admit(GAUSSIAN)
        except BudgetExceeded:
            return plan


def statement_of(plan: AdaptivePlan, **guarantee: Any) -> dict[str, Any]:
    """What of a statement is looked at here."""
    stated = {"epsilon": plan.epsilon, "delta": plan.budget.delta, "accountant": plan.accountant}
    return {"guarantee": {**stated, **guarantee}, "plan": plan.to_dict()}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_promises_its_budget_for_what_it_admitted_and_no_release_more(name: str) -> None:
    plan = plan_of(name)
    block = tuple(plan.releases)
    assert recomputed_epsilon(statement_of(plan), block)[0] == BUDGET.epsilon
    with pytest.raises(Unsound, match="its filter does not admit its releases"):
        recomputed_epsilon(statement_of(plan), (*block, (GAUSSIAN.event(), 1)))
    for epsilon in (0.9, 1.1):  # however little was spent: when to stop was seen
        with pytest.raises(Unsound, match="guarantees its budget"):
            recomputed_epsilon(statement_of(plan, epsilon=epsilon), block)


@pytest.mark.parametrize("name", FILTERS)
def test_a_written_plan_tells_the_events_of_every_release_that_was_made(name: str) -> None:
    plan = plan_of(name)
    assert events_of(plan.to_dict()) == dict(plan.releases)
    other = {**plan.to_dict(), "made": plan.to_dict()["made"][:-1]}
    assert events_of(other) != dict(plan.releases)


def test_another_name_is_no_filter() -> None:
    with pytest.raises(ValueError, match="name must be 'gdp-filter' or 'rdp-filter'"):
        fresh_filter("gdp", budget=BUDGET, adjacency=ONE)


def test_what_releases_cost_is_stated_and_no_less_and_no_more() -> None:
    events = ((GAUSSIAN.event(), 3),)
    cost = account(list(events), delta=1e-6, accountant="gdp").epsilon
    assert cost is not None

    def statement(epsilon: float) -> dict[str, Any]:
        stated = {"epsilon": epsilon, "delta": 1e-6, "accountant": "gdp"}
        return {"guarantee": stated, "plan": {"budget": {"epsilon": epsilon}}}

    assert recomputed_epsilon(statement(cost), events)[0] == cost
    for wrong in (0.99 * cost, 1.01 * cost):
        with pytest.raises(Unsound, match="its releases cost"):
            recomputed_epsilon(statement(wrong), events)
