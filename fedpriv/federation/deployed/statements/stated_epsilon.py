"""Stated epsilon, recomputed: what the releases of a statement cost, by the theorem that it names.

Noise that was planned before the first release is accounted for: the stated ε is what all releases
cost. Noise that was chosen on the way is held by a filter: the stated ε is the filter's budget,
however much of it was spent, and the filter must admit all that was released.
"""

from __future__ import annotations

from collections import Counter
from math import isclose
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.accountants import account
from fedpriv.privacy.budget import Budget, within
from fedpriv.privacy.planning.filters import FILTERS, fresh_filter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.privacy.ledger.composition import Block

SLACK = 1e-6
"""Relative: libraries of another machine round otherwise in the last digits."""


class Unsound(ValueError):
    """A document that does not hold together; says where."""


def recomputed_epsilon(statement: Mapping[str, Any], releases: Block) -> tuple[float, str]:
    """ε of a statement's releases at its δ, and the method; `Unsound` if it is not the stated one.

    Args:
        statement: As `Statement.to_dict` wrote it; its guarantee and plan state the same numbers.
        releases: What it is about, all under one adjacency and for one unit.
    """
    guarantee, planned = statement["guarantee"], statement["plan"]["budget"]
    budget = Budget(epsilon=float(guarantee["epsilon"]), delta=float(guarantee["delta"]))
    if guarantee["accountant"] not in FILTERS:
        return _accounted(guarantee["accountant"], budget, releases)
    if budget.epsilon != float(planned["epsilon"]):
        raise Unsound(
            "adaptively chosen noise guarantees its budget, and the statement has another one."
        )
    event = releases[0][0]
    fresh = fresh_filter(
        guarantee["accountant"], budget=budget, adjacency=event.adjacency, unit=event.unit
    )
    spent = sum(count * fresh.cost(event) for event, count in releases)
    if not within(spent, fresh.limit):
        raise Unsound(f"it states {budget}, and its filter does not admit its releases.")
    plan = statement["plan"]
    parts = Counter(each["part"] or "main" for each in plan["made"])
    if plan["releases"] != parts or not (
        isclose(plan["spent"], spent, rel_tol=SLACK)
        and isclose(plan["limit"], fresh.limit, rel_tol=SLACK)
    ):
        raise Unsound("what it says that its filter has spent, or admits, does not follow.")
    return budget.epsilon, fresh.method


def _accounted(accountant: str, budget: Budget, releases: Block) -> tuple[float, str]:
    stated = budget.epsilon
    report = account(list(releases), delta=budget.delta, accountant=accountant)
    found = report.epsilon
    if found is None or not within(found, stated):
        cost = "have no finite epsilon" if found is None else f"cost epsilon = {found!r}"
        raise Unsound(f"it states epsilon = {stated!r}, and its releases {cost}.")
    if not stated <= found * (1 + SLACK):
        raise Unsound(f"it states epsilon = {stated!r}, and its releases cost {found!r}.")
    return found, report.method
