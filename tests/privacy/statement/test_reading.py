"""A statement is read back from its values: text and registry entry come out as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism
from fedpriv.privacy.planning.objective.objective_fit import ObjectiveFitMechanism
from fedpriv.privacy.planning.second_order import SecondOrderPlan
from fedpriv.privacy.schedules.growing import GrowingPlan
from fedpriv.privacy.statement import (
    LedgerFacts,
    RunFacts,
    Statement,
    TrustModel,
    make_statement,
    to_registry_yaml,
    to_text,
)
from fedpriv.privacy.statement.reading import read_values
from tests.federation.deployed.statement_scenes import adaptive_plan, gaussian_plan, shares_plan
from tests.privacy.planning.test_written_plan import GAUSSIAN, LAPLACE, SAME, planned
from tests.privacy.statement.test_statement import STATEMENTS

if TYPE_CHECKING:
    from fedpriv.privacy.planning.plan import Plan

BOTH: dict[str, Any] = {**SAME, "epsilon": 0.5, "extra_regulariser": 0.1}


def of_kind(kind: type[FixedPlan], **more: Any) -> FixedPlan:
    facts = {name: getattr(gaussian_plan(), name) for name in FixedPlan.__dataclass_fields__}
    del facts["epsilon"]
    facts |= {"budget": Budget(epsilon=100.0, delta=1e-6), "accountant": "auto"}
    return kind(**facts, **more)


PLANS: dict[str, Plan] = {
    "full batch": gaussian_plan(),
    "shares": shares_plan(),
    "chosen on the way": adaptive_plan(),
    "rates": of_kind(GrowingPlan, rates=(1.0,) * gaussian_plan().rounds),
    "second order": of_kind(SecondOrderPlan, matrix_width=6),
    "two laws": planned(GAUSSIAN, LAPLACE),
    "objective, gaussian": planned(
        ObjectiveMechanism(**BOTH, delta=1e-7, linear=GAUSSIAN, output=GAUSSIAN)
    ),
    "objective, laplace": planned(
        ObjectiveMechanism(**BOTH, delta=0.0, linear=LAPLACE, output=LAPLACE)
    ),
    "objective, fit": planned(
        ObjectiveFitMechanism(
            **BOTH,
            delta=1e-7,
            linear=GAUSSIAN,
            output=GAUSSIAN,
            hessian=GaussianMechanism(**SAME, sensitivity=1.0, stddev=50.0),
        )
    ),
}
LINES = ("intercept  0.5  0.1", "age        1.5  0.2")


def stated(plan: Plan, **facts: Any) -> Statement:
    run: dict[str, Any] = {
        "run": "a-run",
        "data": "clinics",
        "simulated": False,
        "randomness": "operating system",
        "sampler": plan.sampler,
        "assumptions": ("that a table is public",),
        "date": "2026-07-01",
    }
    return make_statement(
        plan,
        facts=RunFacts(**{**run, **facts}),
        trust=TrustModel(secure_aggregation="off"),
        ledger=LedgerFacts(
            budget_epsilon=2.0, budget_delta=1e-6, spent_before_epsilon=0.5, head="0" * 64, rows=3
        ),
    )


def again(statement: Statement, **more: Any) -> Statement:
    """As from its file."""
    return read_values(json.loads(json.dumps(statement.to_dict())), **more)


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_words_are_the_same_whatever_the_plan(plan: Plan) -> None:
    statement = stated(plan)
    assert to_text(again(statement)) == to_text(statement)
    assert to_registry_yaml(again(statement)) == to_registry_yaml(statement)


@pytest.mark.parametrize("strategy", STATEMENTS)
def test_words_are_the_same_of_every_statement_that_was_approved(strategy: str) -> None:
    statement = STATEMENTS[strategy]()
    assert to_text(again(statement)) == to_text(statement)
    assert to_registry_yaml(again(statement)) == to_registry_yaml(statement)


def test_coefficients_are_in_the_text_alone() -> None:
    statement = stated(PLANS["full batch"], coefficients=LINES)
    assert to_text(again(statement, coefficients=LINES)) == to_text(statement)
    assert to_text(again(statement)) != to_text(statement)


def test_other_values_have_other_words() -> None:
    statement = stated(PLANS["full batch"])
    for facts in ({"records_per_person": 2}, {"releases_made": 1}, {"tuning": "none needed"}):
        other = stated(PLANS["full batch"], **facts)
        assert to_text(again(other)) != to_text(statement)
    assert again(replace(statement, version="9.9.9")).version == "9.9.9"


def test_a_plan_of_more_releases_than_fit_the_memory_is_refused() -> None:
    values = json.loads(json.dumps(stated(PLANS["full batch"]).to_dict()))
    values["plan"]["mechanisms"][0]["count"] = 10**15
    with pytest.raises(ValueError, match="at most 10000000 releases"):
        read_values(values)
