"""Guard of a party: the rules by which it refuses a query, before any record is used.

A party does not trust a query because it came from the server. The message of a refusal names the
rule and public numbers, never anything about a record.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import isclose
from typing import TYPE_CHECKING

from fedpriv._collusion import DEFAULT_COLLUDING, known_shares
from fedpriv._validate import require_choice, require_count, require_delta
from fedpriv.federation.queries.bounds import fits, share_mechanism
from fedpriv.federation.queries.kinds import QUERIES
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import Unit, sizes_are_public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning.shares import Sharing


class QueryRefused(ValueError):
    """A party will not answer this query. Nothing was computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a party is willing to answer.

    Attributes:
        queries: The kinds of query it knows.
        unpaid: Whether it answers queries without a privacy event: for non-private baselines in
            simulation.
        minimum: The least number of answers in a sum that it helps to open; a noise share that
            assumes more is refused. None if the party does not decide that, as in simulation.
        colluding: The fraction of the parties that it assumes may collude with the server; a noise
            share that assumes fewer is refused.
        sharing: Who contributes noise shares, as the experiment states; a share that assumes other
            numbers is refused. None if the party does not decide that.
    """

    queries: tuple[str, ...] = tuple(QUERIES)
    unpaid: bool = False
    minimum: int | None = None
    colluding: float = DEFAULT_COLLUDING
    sharing: Sharing | None = None

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
    _check_unit(query, task)
    with _refusing():
        query.check(task)
    if not fits(query, task):
        raise QueryRefused(
            f"the sum of all answers could wrap around: a step of {query.grid.step:g} in "
            f"{query.grid.bits} bits is too fine for the bounds that the query states."
        )
    _check_local_noise(query, task)
    _check_share(query, task, policy)


def _check_unit(query: Query, task: Task) -> None:
    """The event must be for a person where answers are computed by persons, and only there."""
    by_person = task.persons is not None
    if by_person and Unit.PERSON not in query.units:
        raise QueryRefused(
            f"queries of kind {query.kind!r} are not known for the person unit of privacy: how far "
            "all records of a person can move their sum is not bounded."
        )
    if query.event is not None and (query.event.unit is Unit.PERSON) != by_person:
        raise QueryRefused(
            f"the event is stated for {query.event.unit.words}, and this party "
            f"{'sums' if by_person else 'does not sum'} the records of a person before it bounds "
            "them."
        )


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn the query's own validation errors into refusals."""
    try:
        yield
    except ValueError as error:
        raise QueryRefused(str(error)) from None


def check_certain(query: Query, task: Task) -> None:
    """Raise `QueryRefused` if records, or noise, could decide whether the party answers."""
    with _refusing():
        query.check_certain(task)


def check_weighted(query: Query, adjacency: Adjacency, unit: Unit) -> None:
    """Raise `QueryRefused` if the answer depends on a number of records that is private."""
    if query.weighted and not sizes_are_public(unit, adjacency):
        raise QueryRefused(
            "the adjacency must be 'replace-one', and the unit 'record', where an answer rests on "
            "its party's true number of records: a minimiser, or equal weights."
        )


def _check_local_noise(query: Query, task: Task) -> None:
    """The event must match the noise that the party is asked to add itself."""
    event = query.local_event(task)
    if event is not None and (query.event is None or not _same(event, query.event)):
        raise QueryRefused(
            "the event of the query is not that of the noise which the party is asked to add."
        )


def _check_share(query: Query, task: Task, policy: Policy) -> None:
    """The event must match the noise shares, in the sums that this party helps to open."""
    share = query.share
    if share is None:
        return
    opened = task.parties if policy.minimum is None else policy.minimum
    if share.minimum > min(opened, task.parties):
        raise QueryRefused(
            f"the noise shares assume {share.minimum} parties in the sum, but this party "
            f"helps to open sums of {opened} of {task.parties}."
        )
    if share.colluders < known_shares(policy.colluding, task.parties):
        raise QueryRefused(
            f"the noise shares are sized for {share.colluders} colluders, but this party assumes "
            f"a fraction {policy.colluding:g} of the parties, and at least one: every party "
            "knows its own share."
        )
    own = policy.sharing
    if own is not None and (share.minimum, share.colluders) != (own.minimum, own.colluders):
        raise QueryRefused(
            f"the noise shares are sized for sums of {share.minimum} parties with "
            f"{share.colluders} colluders, but those of the experiment for {own.minimum} with "
            f"{own.colluders}."
        )
    mechanism = share_mechanism(query, task)
    with _refusing():  # a law whose amplification is not known
        event = None if mechanism is None else sampled(mechanism.event(), query.sampling_rate)
    if mechanism is None or event is None or query.event is None or not _same(event, query.event):
        raise QueryRefused(
            "the event of the query is not that of the shares of noise which the parties add."
        )
    check_weighted(query, mechanism.adjacency, mechanism.unit)


def _same(one: Event, other: Event) -> bool:
    """Equal up to rounding: relative noise is a quotient, formed at other sizes."""
    if (type(one), one.adjacency, one.unit) != (type(other), other.adjacency, other.unit):
        return False
    return all(
        isclose(getattr(one, field.name), getattr(other, field.name), rel_tol=1e-12)
        for field in fields(one)
        if field.name not in ("adjacency", "unit")
    )
