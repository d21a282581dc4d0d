"""What a party insists on before it answers, and what it makes sure of before it lets go.

A party does not trust a query because it came from the server. The message of a refusal names the
rule and public numbers, never anything about a record.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isclose
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._collusion import DEFAULT_COLLUDING, known_shares
from fedpriv._validate import require_choice, require_count, require_delta
from fedpriv.federation.queries.bounds import (
    fits,
    headroom,
    local_mechanism,
    objective_mechanism,
    share_mechanism,
)
from fedpriv.federation.queries.kinds import (
    QUERIES,
    ErmQuery,
    GradientQuery,
    LossQuery,
    RiskGradientQuery,
)
from fedpriv.learning.erm.problem import require_lipschitz_minimiser
from fedpriv.privacy.adjacency import Adjacency

if TYPE_CHECKING:
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event


class QueryRefused(ValueError):
    """A party will not answer this query. Nothing was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a party is willing to answer.

    Attributes:
        queries: The kinds of query it knows.
        unpaid: Whether it answers queries without an event, which promise no privacy: for
            non-private baselines in simulation.
        minimum: The least number of answers in a sum that it helps to open; a share of noise that
            counts on more is refused. None if that is not for the party to decide: in simulation.
        colluding: The fraction of the parties that it believes may collude with the server; a share
            of noise that counts on fewer is refused.
    """

    queries: tuple[str, ...] = tuple(QUERIES)
    unpaid: bool = False
    minimum: int | None = None
    colluding: float = DEFAULT_COLLUDING

    def __post_init__(self) -> None:
        require_choice(QUERIES, **{f"queries[{i}]": kind for i, kind in enumerate(self.queries)})
        if self.minimum is not None:
            require_count(minimum=self.minimum)
        require_delta(colluding=self.colluding)


def check_query(query: Query, task: Task, policy: Policy) -> None:
    """Raise `QueryRefused` unless a party of this task and policy may answer ``query``."""
    if query.kind not in policy.queries:
        raise QueryRefused(f"this party does not answer queries of kind {query.kind!r}.")
    if query.event is None and not policy.unpaid:
        raise QueryRefused("this party answers no query that states no privacy event.")
    theta = getattr(query, "theta", None)
    if theta is not None and not (theta.shape == (task.dimension,) and np.isfinite(theta).all()):
        raise QueryRefused(
            f"theta must be finite with {task.dimension} coordinates, got shape {theta.shape}."
        )
    if isinstance(query, LossQuery) and query.points.shape[1] != task.dimension:
        raise QueryRefused(
            f"points must have {task.dimension} coordinates, got shape {query.points.shape}."
        )
    if isinstance(query, ErmQuery):
        _check_loss(query, task)
    if isinstance(query, RiskGradientQuery):
        _check_headroom(query, task)
    if not fits(query, task):
        raise QueryRefused(
            f"the sum of all answers could wrap around: a step of {query.grid.step:g} in "
            f"{query.grid.bits} bits is too fine for the bounds that the query states."
        )
    _check_local_noise(query, task)
    _check_share(query, task, policy)


def _check_loss(query: ErmQuery, task: Task) -> None:
    """The loss must be one for which the sensitivity of a minimiser, or the rule of b, is proved.

    It follows from the query and the task, so it is known before a record is used.
    """
    try:
        task.require_convex("a minimiser")
        if query.objective is not None:
            objective_mechanism(query, query.objective, task, task.smallest)
        else:
            require_lipschitz_minimiser(task.loss, query.regulariser)
    except ValueError as error:
        raise QueryRefused(str(error)) from None


def _check_headroom(query: RiskGradientQuery, task: Task) -> None:
    """With less, how many records the party has would decide whether its sum has room."""
    event = query.event
    if event is not None and query.headroom < (least := headroom(event.adjacency, task)):
        raise QueryRefused(
            f"headroom must be at least {least:g} under {event.adjacency.value!r} adjacency, got "
            f"{query.headroom:g}."
        )


def _check_local_noise(query: Query, task: Task) -> None:
    """The event must be that of the noise which the party is told to add itself."""
    size = task.smallest
    if isinstance(query, ErmQuery) and query.objective is not None:
        found: Event = objective_mechanism(query, query.objective, task, size).event()
    else:
        mechanism = local_mechanism(query, task, size)
        if mechanism is None:
            return
        found = mechanism.event()
    if query.event is None or not _same(found, query.event):
        raise QueryRefused(
            "the event of the query is not that of the noise which the party is asked to add."
        )


def _check_share(query: Query, task: Task, policy: Policy) -> None:
    """The event must be that of the shares, in the sums that this party helps to open."""
    share = query.share
    if share is None:
        return
    opened = task.parties if policy.minimum is None else policy.minimum
    if share.minimum > min(opened, task.parties):
        raise QueryRefused(
            f"the shares of noise count on {share.minimum} parties in the sum, and this party "
            f"helps to open sums of {opened} of {task.parties}."
        )
    if share.colluders < known_shares(policy.colluding, task.parties):
        raise QueryRefused(
            f"the shares of noise are sized for {share.colluders} colluders; this party counts "
            f"the fraction {policy.colluding:g} of the parties, and one at least: every party "
            "knows its own share."
        )
    weighted = isinstance(query, ErmQuery) or (
        isinstance(query, GradientQuery) and query.weights == "equal"
    )
    found = share_mechanism(query, task)
    if found is None or query.event is None or not _same(found.event(), query.event):
        raise QueryRefused(
            "the event of the query is not that of the shares of noise which the parties add."
        )
    if weighted and found.adjacency is not Adjacency.REPLACE_ONE:
        raise QueryRefused(
            "the adjacency must be 'replace-one' where an answer rests on its party's true number "
            "of records: a minimiser, or equal weights."
        )


def _same(one: Event, other: Event) -> bool:
    """Equal up to rounding: relative noise is a quotient, formed at other sizes."""
    if type(one) is not type(other) or one.adjacency is not other.adjacency:
        return False
    return all(
        isclose(getattr(one, field.name), getattr(other, field.name), rel_tol=1e-12)
        for field in fields(one)
        if field.name != "adjacency"
    )
