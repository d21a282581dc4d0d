"""Asked: which forms of query a run puts to its parties, by the strategy that it names.

A statement says what a run released, by its strategy. So a party that is asked for anything else in
a run of that name does not answer, whatever its policy allows in others: it would sign that noisy
gradients had left it where it had sent second moments, or that peers saw the release alone where
they were shown the points of a joint fit. Nor does it where the kind is right and the sum another
one: gradients with a count of those that were not clipped, or updates with control variates.

A private evaluation is a run of its own, with a name that says so, and has no statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.queries.accuracy import AccuracyQuery
from fedpriv.federation.queries.kinds import HessianQuery, RiskGradientQuery
from fedpriv.federation.queries.statistics import BY_PARTY

if TYPE_CHECKING:
    from collections.abc import Collection

    from fedpriv.federation.deployed.engagement import Engagement
    from fedpriv.federation.queries.base import Query

EVALUATION = "-evaluation-"
"""In the name of a private evaluation, after the name of the run whose model it is of."""


def forms_of(
    asks: Collection[str], *, joint: bool, hessian: bool = False, by_party: bool = False
) -> frozenset[str]:
    """What a run of a strategy asks for, as `Query.form` says it.

    Args:
        asks: What the strategy says of itself.
        joint: Whether it fits one model to all records together: then it asks for exact gradients.
        hessian: Whether such a fit ends with a Hessian.
        by_party: Whether it describes every party by itself; else it describes all together.
    """
    if by_party:
        return frozenset({BY_PARTY}) & frozenset(asks)
    if not joint:
        return frozenset(asks) - {BY_PARTY}
    return frozenset({RiskGradientQuery.kind, *({HessianQuery.kind} if hessian else ())})


def is_evaluation(run: str, *, of: str) -> bool:
    """Whether a run is a private evaluation, by its name; ``of`` is how names of runs begin."""
    return EVALUATION in run.removeprefix(of)


def require_asked(query: Query, engagement: Engagement) -> None:
    """Refuse a query of a form that a run of its name does not put.

    Raises:
        QueryRefused: It is for another strategy, or a private evaluation is no run of its own.
    """
    forms = engagement.forms
    if forms is None:
        return
    if is_evaluation(query.run, of=engagement.run):
        forms = frozenset({AccuracyQuery.kind})
    if query.form not in forms:
        raise QueryRefused(
            f"a run of {engagement.strategy!r} that is named {query.run!r} asks for "
            f"{', '.join(sorted(forms)) or 'nothing'}, and this query is for {query.form}."
        )
