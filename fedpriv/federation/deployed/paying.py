"""Paying: how a deployed party charges its own ledger, release by release or for a whole plan.

A release is charged alone where the ledger has a price for it and it is not of a sample: then a run
pays for what it uses. A run with samples is charged as a whole, before its first release, and so is
any planned run of a ledger that adds up pairs of ε and δ and prices no Gaussian alone. See
`fedpriv.federation.deployed.stated_plan` for what that guarantees, and why it stays charged.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.stated_plan import rate_of
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.accountants import UnsupportedEvent
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.ledger.composition import BasicComposition, block_epsilon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.federation.deployed.stated_plan import StatedPlan
    from fedpriv.federation.queries.base import Query
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger import Ledger, Reservation
    from fedpriv.privacy.ledger.view import LedgerView

# Server and party may have other versions of a numerical library.
_RELATIVE_TOLERANCE = 1e-6


def plan_to_pay(plan: StatedPlan | None, ledger: LedgerView, event: Event) -> StatedPlan | None:
    """The plan, if the run is charged as a whole and held to it; None if each release is alone."""
    if plan is None:
        return None
    kinds = {type(each): each for each, _ in plan.steps}  # which a rule prices all, or none of
    alone = all(ledger.prices(each) for each in kinds.values())
    return plan if plan.sampled or rate_of(event) < 1 or not alone else None


def foreseen(ledger: Ledger, query: Query, event: Event, plan: StatedPlan | None) -> str:
    """Whether the release is "new", "reserved" or "committed"; refuses what cannot be paid."""
    whole: dict[str, Any] = {}
    if plan is not None:
        whole = {"declaring": plan.releases, "delta": plan.delta}
    with _unpaid(query, event, plan):
        return ledger.foresee(event, run=query.run, round=query.round, **whole)


def reserve(ledger: Ledger, query: Query, event: Event, plan: StatedPlan | None) -> Reservation:
    """Pay, or find that it was paid for: for the whole plan first, if there is one."""
    with _unpaid(query, event, plan):
        if plan is not None:
            ledger.declare(query.run, plan.releases, delta=plan.delta)
        return ledger.reserve(event, run=query.run, round=query.round)


def require_affordable(plan: StatedPlan, ledger: LedgerView) -> None:
    """Refuse a plan that costs more than it states, or than is left. Nothing is written.

    One that has begun goes on: it was paid for, or its next release is refused.

    Raises:
        QueryRefused: The run would end before its last release, or has no price here.
    """
    if ledger.began(plan.run) is not None:
        return
    _require_honest(plan)
    try:
        ledger.require_room(plan.run, plan.releases, delta=plan.delta)
    except UnsupportedEvent:
        raise QueryRefused(
            f"the plan has {_kinds(plan)} releases, for which the rule of this party's ledger, "
            f"{_rule(ledger)!r}, has no price. Nothing was paid. A ledger that is made with "
            "composition 'basic' has, and so has one of 'rdp'."
        ) from None
    except BudgetExceeded:
        remedy = "Plan for less"
        if _rule(ledger) != BasicComposition.name:
            remedy += "; ledgers that are made with composition 'basic' charge what is planned"
        raise QueryRefused(
            f"the {plan.rounds} releases that are planned do not fit what is left of this party's "
            f"budget, as its ledger adds up, by {_rule(ledger)!r}. Nothing was paid. "
            f"{remedy}."
        ) from None


def _require_honest(plan: StatedPlan) -> None:
    """Refuse a plan whose releases cost more than it says, by the tightest accountant."""
    try:
        epsilon = block_epsilon(plan.releases, plan.delta)
    except (UnsupportedEvent, ArithmeticError):
        raise QueryRefused(f"the plan has {_kinds(plan)} releases, which have no price.") from None
    if not epsilon <= plan.epsilon * (1 + _RELATIVE_TOLERANCE):
        raise QueryRefused(
            f"the plan states epsilon = {plan.epsilon:.6g} at delta = {plan.delta:g}, and its "
            f"releases cost {epsilon:.6g}."
        )


def _kinds(plan: StatedPlan) -> str:
    return ", ".join(sorted({event.kind for event, _ in plan.releases}))


def _rule(ledger: LedgerView) -> str:
    rule = ledger.spent().composition
    return ledger.settings.composition if rule is None else rule.name


@contextmanager
def _unpaid(query: Query, event: Event, plan: StatedPlan | None) -> Iterator[None]:
    what = f"release {query.round}" if plan is None else f"the {plan.rounds} planned releases"
    try:
        yield
    except BudgetExceeded:
        raise QueryRefused(
            f"what is left of this party's budget does not pay for {what}."
        ) from None
    except UnsupportedEvent:
        raise QueryRefused(
            f"this party's ledger adds up by a rule that has no price for {event.kind} releases."
        ) from None
