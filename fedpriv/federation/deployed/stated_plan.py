"""Stated plan: all releases of a run, which its server signs before a party joins it.

A party that knows the plan adds up by it. Release by release, what a Poisson-sampled run costs is
known to a party by its Rényi divergence alone, which is more than the run was planned for, so that
budgets end before the run does. As a whole it is priced like a plan is: by the convolution of its
privacy-loss distributions, with the party's own computation, from the events that stand here.

Guarantee. A run whose releases are those of a plan that was fixed before the first one, of which
the party pays for all before it uses a record, costs its records at most what `Ledger.declare`
charges: ε at the plan's δ, where its ledger adds up pairs of them.

*Why.* (1) What is asked on the way (the point, the clip norm in its units, who is in a sum) may
depend on earlier releases; but the pair of laws that dominates release t, Gaussian noise z_t on a
sample of rate q_t, may not: it is fixed by the plan. Then the product of the pairs dominates the
run (Zhu, Dong and Wang 2022, Thm. 10), and a loss distribution of the product bounds ε at δ.
(2) A run that stops early, or leaves releases out, shows a part of what the whole would have shown:
post-processing. When it stops may depend on what was seen, so that the *whole* plan stays charged.
To charge the part that was used, at the ε of that part, would let a server stop where little was
seen and spend the rest on the same records: a total that depends on outputs, for which no theorem
of fixed plans holds. (3) Other runs of the same ledger may be interleaved with this one, and
chosen on the way: (ε, δ) of interactive mechanisms add up (Haney et al. 2023), and so do
divergences of one order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice, require_delta, require_non_negative, require_positive
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.accountants import ACCOUNTANTS
from fedpriv.privacy.ledger.reservations import allowances, declaration_to_dict, merged
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.written_events import event_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedpriv.federation.queries.base import Query
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.ledger.composition import Block
    from fedpriv.privacy.planning.fixed_plan import FixedPlan

_KEYS = ("run", "epsilon", "delta", "accountant", "clip", "releases")
_MOST_RELEASES = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPlan:
    """All releases of a run, in order. Claims of a server: a party prices them by itself.

    Attributes:
        run: The run, as its queries call it.
        epsilon: What the server says that it costs; a party refuses a plan that costs more.
        delta: The δ at which it costs that, and which the run takes of a ledger of pairs.
        accountant: What the server planned by. A party takes the tightest that is sound.
        clip: The clip norm of every query; None where there is none, or it changes on the way.
        steps: (event, count) pairs: releases in order, equal neighbours together.
    """

    run: str
    epsilon: float
    delta: float
    accountant: str
    clip: float | None
    steps: Block

    def __post_init__(self) -> None:
        if not isinstance(self.run, str):
            raise ValueError("run of a plan must be text.")
        require_non_negative(epsilon=self.epsilon)
        require_delta(delta=self.delta)
        require_choice(ACCOUNTANTS, accountant=self.accountant)
        if self.clip is not None:
            require_positive(clip=self.clip)
        merged(self.steps)  # refuses none, and counts that are none
        if self.rounds > _MOST_RELEASES:
            raise ValueError(f"a plan must have at most {_MOST_RELEASES} releases.")

    @classmethod
    def of(cls, plan: FixedPlan, *, run: str, clip: float | None) -> StatedPlan:
        """What a server states of a plan of its own."""
        events = groupby(map(plan.event, range(plan.rounds)))
        return cls(
            run=run,
            epsilon=plan.epsilon,
            delta=plan.budget.delta,
            accountant=plan.accountant,
            clip=clip,
            steps=tuple((event, sum(1 for _ in equal)) for event, equal in events),
        )

    @property
    def rounds(self) -> int:
        """How many releases there are."""
        return sum(count for _, count in self.steps)

    @property
    def releases(self) -> Block:
        """The releases as a ledger takes them: equal ones together."""
        return merged(self.steps)

    @property
    def digest(self) -> bytes:
        """What its releases are known by."""
        return digest_of_releases(self.steps)

    @property
    def sampled(self) -> bool:
        """Whether a release is one on a sample."""
        return any(rate_of(event) < 1 for event, _ in self.steps)

    def event(self, index: int) -> Event | None:
        """The event of release ``index``, from 0; None after the last one."""
        ends = accumulate(count for _, count in self.steps)
        return next(
            (event for (event, _), end in zip(self.steps, ends, strict=True) if index < end), None
        )

    def to_bytes(self) -> bytes:
        """The one encoding of the plan."""
        values = {
            "run": self.run,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "clip": self.clip,
            "releases": [[event.to_dict(), count] for event, count in self.steps],
        }
        return canonical_json(values).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> StatedPlan:
        """Read back what `to_bytes` wrote.

        Raises:
            QueryRefused: These bytes are no plan.
        """
        try:
            plan = cls._read(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise QueryRefused("the plan of the run cannot be read.") from None
        if plan.to_bytes() != data:
            raise QueryRefused("the plan of the run is not in its one form.")
        return plan

    @classmethod
    def _read(cls, values: Mapping[str, Any]) -> StatedPlan:
        if tuple(sorted(values)) != tuple(sorted(_KEYS)):
            raise ValueError(f"a plan has {', '.join(_KEYS)}")
        steps = tuple((event_from_dict(event), count) for event, count in values["releases"])
        facts = {key: values[key] for key in _KEYS if key != "releases"}
        return cls(**facts, steps=steps)


def digest_of_releases(releases: Iterable[tuple[Event, int]]) -> bytes:
    """What releases are known by, whatever their order: SHA-256 of how often there is each event.

    The order need not be known: a server that takes the releases of a fixed plan in an order of its
    own choosing, on the way, composes mechanisms that are all fixed, and concurrent composition
    costs no more than one after the other (Vadhan and Zhang 2023).
    """
    counts = allowances(declaration_to_dict(merged(releases), None))
    return sha256(canonical_json(sorted(counts.items())).encode()).digest()


def rate_of(event: Event | None) -> float:
    """The Poisson rate that an event counts on; 1 where there is no sampling in it."""
    return float(getattr(event, "sampling_rate", 1.0))


def require_planned(query: Query, plan: StatedPlan) -> None:
    """Refuse a query that departs from the plan of its run, before anything is read or paid.

    A release may be left out: whoever was away for a round is asked for the next one. What comes
    must be the release of its own number, with the noise, the rate and the clip norm of the plan.

    Raises:
        QueryRefused: It departs, and how.
    """
    if query.run != plan.run:
        raise QueryRefused("the query is of another run than the plan that this party joined.")
    planned = plan.event(query.round)
    if planned is None:
        raise QueryRefused(
            f"the plan that this party joined has {plan.rounds} releases, and the query is for "
            f"release {query.round}, counted from 0."
        )
    if query.event != planned:
        raise QueryRefused(
            f"the query states another event for release {query.round} than the plan that this "
            "party joined: other noise, another rate or another kind."
        )
    if query.sampling_rate != rate_of(planned):
        raise QueryRefused(
            f"the query asks for a sample of {query.sampling_rate:g} in release {query.round}, and "
            f"the plan that this party joined for {rate_of(planned):g}."
        )
    if plan.clip not in (None, clip := getattr(query, "clip_norm", None)):
        raise QueryRefused(
            f"the query clips to {clip!r} in release {query.round}, and the plan that this party "
            f"joined to {plan.clip!r}."
        )
