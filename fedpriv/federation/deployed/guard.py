"""Guard of a deployed party: the run, the query and its cost, checked before a record is used.

What is charged. A party's ledger is charged with the cost of the release *as seen by the worst
observer that its policy does not trust*:

- Noise of the party's own (``local``, ``objective``). What leaves the party is private by itself,
  whoever looks: the server, all other parties, and the two together. The party computes the event
  from its own bounds, the grid and the noise that it is told to add, and the query must state the
  same one. Nothing is taken on trust.
  That holds for a party's own statistics, too (``by_party``), whose sums nobody else is in: a query
  that keeps the parties apart without noise of their own is refused, and one with it unless
  ``by_party`` of the policy allows it. For persons the noise covers what all the parties show of
  one (`fedpriv.federation.queries.statistics`).
- Shares of noise (``share``). The observer is the server with the colluding parties of the policy.
  It sees the sum over at least ``share.minimum`` parties and subtracts the colluders' shares; what
  is left is the noise of n_min = minimum − colluders honest parties
  (`fedpriv.privacy.mechanisms.shares`). The party computes that event itself, from its own bounds
  and roster. A peer that only looks at the release knows its own share: ``colluding`` of at least
  1/m counts it in. The charge rests on the masks hiding all but the sum, on the other parties
  adding their shares, and on a release being opened over one set of parties only: see
  `fedpriv.federation.deployed.host`.
- Noise of the server. The observer is whoever sees releases, and *not* the server, who sees exact
  sums: ``noise_at = "server"`` is that trust, written down. In a joint fit it is not the other
  parties either: they are told points that follow from exact sums, and ``risk-gradient`` among the
  ``queries`` of a policy is trust in them. Nobody can verify at a party that noise
  was added elsewhere. The party charges the event that the query states, and refuses one below
  ``min_noise``, an amplification by sampling that is larger than its own sampling, and an adjacency
  for which its answer has no bounded sensitivity. Relative noise is relative to the sensitivity, so
  the event holds whatever clip norm, grid or number of parties the server had in mind, provided
  that it adds noise in proportion to them.

Samples. Every coin is the party's own, of its own generator, and leaves it in no message: that is
what amplification by sampling rests on, towards whoever sees releases. Of records it is hidden in
the party's sum. Where whole parties are sampled, who stays out answers zeros: masks hide that, and
without them such an event is refused; and it trains all the same, so that the time that it takes
tells nothing. With noise of the server nothing is promised towards the server itself, sampled or
not.

Sums over records of several parties: by parallel composition a release costs each party what it
costs one record anywhere in the sum (McSherry 2009), hence every party is charged the same event.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from fedpriv._collusion import colluders_of
from fedpriv.federation.deployed.asked import require_asked
from fedpriv.federation.deployed.stated_plan import rate_of
from fedpriv.federation.party.guard import (
    Policy,
    QueryRefused,
    check_certain,
    check_query,
    check_weighted,
)
from fedpriv.federation.protocol.level import LEVELS
from fedpriv.federation.queries.statistics import BY_PARTY
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    DistributedGaussianEvent,
    PoissonPureEvent,
    PoissonSkellamEvent,
    PureEvent,
    SkellamEvent,
    ZcdpEvent,
)
from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from fedpriv.federation.deployed.engagement import Engagement
    from fedpriv.federation.deployed.policy import PartyPolicy
    from fedpriv.federation.deployed.stated_plan import StatedPlan
    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.mechanisms import Mechanism


BY_ITSELF = (
    "this party is not described by itself: policy.by_party of its own file is false, which it is "
    "by default."
)
_EVENTS_OF_SHARES: tuple[type[Event], ...] = (
    SkellamEvent,
    PoissonSkellamEvent,
    DistributedGaussianEvent,
)


def check_engagement(engagement: Engagement, policy: PartyPolicy) -> None:
    """Raise `QueryRefused` unless a party of this policy takes part in the run at all."""
    if engagement.strategy not in policy.strategies:
        raise QueryRefused(
            f"this party takes part in no run of strategy {engagement.strategy!r}; its policy "
            f"allows {', '.join(policy.strategies)}."
        )
    stated, least = engagement.protection, policy.secure_aggregation
    if LEVELS.index(stated.level) < LEVELS.index(least):
        raise QueryRefused(
            f"the run asks for secure aggregation {stated.level!r}, and this party insists on "
            f"{least!r}."
        )
    parties = engagement.task.parties
    if colluders_of(stated.corrupt, parties) < colluders_of(policy.colluding, parties):
        raise QueryRefused(
            f"the run allows for a fraction of {stated.corrupt:g} of colluding parties, and this "
            f"party for {policy.colluding:g}."
        )
    persons = engagement.task.persons
    if persons is not None and persons.parties < policy.person_parties:
        raise QueryRefused(
            f"the run counts on persons with records at {persons.parties} parties at most, and "
            f"this party on {policy.person_parties}."
        )
    _check_willing(engagement, policy)
    if policy.min_parties > parties:
        raise QueryRefused(
            f"the roster has {parties} parties, and this party answers in sums of at least "
            f"{policy.min_parties}."
        )


def _check_willing(engagement: Engagement, policy: PartyPolicy) -> None:
    """What a description tells beside sums over all parties of columns with public bounds.

    Decided by the experiment, before the run is joined, and so before anybody has paid.
    """
    if BY_PARTY in (engagement.forms or ()) and not policy.by_party:
        raise QueryRefused(BY_ITSELF)
    unlisted = sorted(set(engagement.magnitudes) - set(policy.suggest_bounds))
    if unlisted:
        raise QueryRefused(
            f"the run asks for the magnitudes of {', '.join(map(repr, unlisted))}, and "
            "policy.suggest_bounds of this party does not list them: it says nothing about columns "
            "that have no bounds."
        )


def check_terms(
    query: Query,
    engagement: Engagement,
    policy: PartyPolicy,
    adjacency: Adjacency,
    unit: Unit,
) -> Event:
    """What the answer to ``query`` costs this party; `QueryRefused` if its policy forbids it."""
    check_engagement(engagement, policy)
    _check_run(query.run, engagement)
    require_asked(query, engagement)
    _check_number(query.round, policy)
    sharing, colluding = engagement.sharing, policy.colluding
    guard = Policy(queries=policy.queries, colluding=colluding, sharing=sharing)
    check_query(query, engagement.task, guard)
    event = query.event
    if event is None:
        raise QueryRefused("this party answers no query that states no privacy event.")
    _check_adjacency(event, adjacency)
    _check_unit(event, policy, unit)
    _check_kind(query, event)
    _check_bounds(query, event, engagement.task, policy)
    _check_sum(query, engagement, policy)
    _check_noise(query, event, engagement.task, policy)
    if event.unit is Unit.PARTY and rate_of(event) < 1 and not engagement.protection.masked:
        raise QueryRefused(
            "the event counts on a coin of this party's that nobody sees, and without masks an "
            "answer of zeros shows that it stayed out: secure_aggregation must not be 'off'."
        )
    return event


def check_plan(
    plan: StatedPlan,
    engagement: Engagement,
    policy: PartyPolicy,
    adjacency: Adjacency,
    unit: Unit,
) -> None:
    """Raise `QueryRefused` if the policy forbids what a plan states of its releases.

    A courtesy before a run is joined: every query is checked by itself, when it comes.
    """
    check_engagement(engagement, policy)
    _check_run(plan.run, engagement)
    _check_number(plan.rounds - 1, policy)
    for event, _ in plan.releases:
        _check_adjacency(event, adjacency)
        _check_unit(event, policy, unit)
        _check_least_noise(event, policy)


def _check_run(name: str, engagement: Engagement) -> None:
    if name != engagement.run and not name.startswith(f"{engagement.run}-"):
        raise QueryRefused("the query is of another run than the one that this party was shown.")


def _check_number(release: int, policy: PartyPolicy) -> None:
    if release >= policy.max_releases:
        raise QueryRefused(
            f"release {release} is asked for, counted from 0, and this party answers for at most "
            f"{policy.max_releases} releases of a run."
        )


def _check_adjacency(event: Event, adjacency: Adjacency) -> None:
    if event.adjacency is not adjacency:
        raise QueryRefused(
            f"the event is stated under {event.adjacency.value!r} adjacency, and the budget of "
            f"this party under {adjacency.value!r}."
        )


def _check_unit(event: Event, policy: PartyPolicy, unit: Unit) -> None:
    """Whose privacy the release is planned for: what the policy allows, and the ledger pays for."""
    if event.unit not in policy.units:
        allowed = ", ".join(each.value for each in policy.units)
        raise QueryRefused(
            f"the release is planned for unit {event.unit.value!r}, {event.unit.words}, and the "
            f"policy of this party allows {allowed}."
        )
    if event.unit is not unit:
        raise QueryRefused(
            f"the release is planned for unit {event.unit.value!r}, and the budget of this party "
            f"is for {unit.words}: one does not pay for the other."
        )


def relative_noise(event: Event) -> float:
    """The noise of a release in units of its sensitivity, on one scale for all kinds of event.

    Standard deviation / L2 sensitivity for what is Gaussian or nearly so, and for ρ-zCDP that of
    the Gaussian with the same ρ = 1/(2z²); scale / sensitivity = 1/ε for what states ε.
    """
    match event:
        case SkellamEvent():
            return sqrt(event.variance) / event.l2_sensitivity
        case DistributedGaussianEvent():
            return sqrt(event.shares) * event.share_stddev / event.l2_sensitivity
        case ZcdpEvent():
            return 1 / sqrt(2 * event.rho)
        case PureEvent() | PoissonPureEvent() | BoundedRangeEvent() | ApproximateEvent():
            return 1 / event.epsilon
    return float(getattr(event, "relative_noise", 0.0))


def _check_kind(query: Query, event: Event) -> None:
    """An event is charged for the kind of release that its theorem is about, and for no other."""
    allowed = _EVENTS_OF_SHARES if query.share is not None else query.events
    if type(event) not in allowed:
        what = "with shares of noise " if query.share is not None else ""
        raise QueryRefused(
            f"a query of kind {query.kind!r} {what}is charged as "
            f"{', '.join(each.kind for each in allowed)}, and this one states {event.kind!r}."
        )


def _check_bounds(query: Query, event: Event, task: Task, policy: PartyPolicy) -> None:
    """One record's part in the answer, and in whether there is one; and the sampling."""
    if (part := query.record_bound(task)) > policy.max_clip:
        raise QueryRefused(
            f"the query bounds one record's part in the answer by {part:g}, and this party allows "
            f"at most {policy.max_clip:g}."
        )
    if (steps := query.local_steps(task)) > policy.max_local_steps:
        raise QueryRefused(
            f"the query asks for up to {steps} steps of local training, and this party takes at "
            f"most {policy.max_local_steps}."
        )
    check_certain(query, task)
    counted_on = rate_of(event)
    if counted_on < query.sampling_rate:
        raise QueryRefused(
            f"the event counts on a sample of {counted_on:g} of the data, and the query asks "
            f"for {query.sampling_rate:g} of them."
        )
    check_weighted(query, event.adjacency, event.unit)


def _check_sum(query: Query, engagement: Engagement, policy: PartyPolicy) -> None:
    """A sum without noise must be one of several answers that the server does not know.

    Of a public cohort all others answer zero: the sum over everybody is then one over the cohort,
    and over a cohort of one that party's answer. Those who may be missing may be of the cohort.
    Shares of noise are in every answer, and noise of a party's own is its own.
    """
    protection, parties = engagement.protection, engagement.task.parties
    if query.shows_parties and not policy.by_party:
        raise QueryRefused(BY_ITSELF)
    if query.shows_parties and query.own_noise is None:
        raise QueryRefused(
            "the query keeps the answers of all parties apart, so that masks hide none of them and "
            "whoever opens the sum sees what each of them answered."
        )
    contributors = query.contributors(parties)
    if contributors == parties or query.noise_by_party or not protection.masked:
        return
    masks = protection.parameters(parties)
    opened = max(masks.minimum, policy.min_parties)
    least = max(policy.min_parties, masks.colluders + 2)
    if (there := contributors - (parties - opened)) < least:
        raise QueryRefused(
            f"a sum of {opened} parties would have the answers of {max(there, 0)} out of the "
            f"cohort of {contributors}, and zeros; this party insists on {least} answers."
        )


def _check_noise(query: Query, event: Event, task: Task, policy: PartyPolicy) -> None:
    mechanism = query.local_mechanism(task, task.smallest)
    if mechanism is not None and not mechanism.sound:
        raise QueryRefused(
            f"the law {mechanism.name!r} is for study: it does not give the guarantee that it "
            "states, and no deployed party adds it."
        )
    if policy.noise_at == "parties" and not query.noise_by_party:
        raise QueryRefused(
            f"the {query.kind} query asks for a sum that gets its noise at the server, and this "
            "party answers only where the parties add it."
        )
    _check_least_noise(event, policy)
    _check_drawn(query, mechanism, task)


def _check_drawn(query: Query, mechanism: Mechanism | None, task: Task) -> None:
    """Noise that no sampler draws on so fine a grid would be paid for, and never be answered."""
    try:
        if query.share is not None:
            query.share.sampler(1)
        if mechanism is not None:
            none = (0, query.answer_width(task))
            mechanism.noise(none, step=query.grid.step, stream=RandomStream.from_os())
    except ValueError as error:
        raise QueryRefused(f"the noise cannot be drawn: {error}") from None


def _check_least_noise(event: Event, policy: PartyPolicy) -> None:
    if (noise := relative_noise(event)) < policy.min_noise:
        raise QueryRefused(
            f"the release would have noise of {noise:.6g} sensitivities, and this party insists "
            f"on {policy.min_noise:g}."
        )
