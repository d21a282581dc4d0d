"""Composition over runs: three rules by which spend adds up, each a valid filter.

What a second run asks, and its noise, may depend on what the first one released. So every rule here
holds for fully adaptive sequences of releases, also when rounds of several runs interleave
(concurrent composition: Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang 2023). The owner fixes
a rule when creating the ledger, and it never changes: choosing among rules by what was released
would be no filter.

A *declared block* is a run whose releases are all fixed before its first one. It may be priced as
one interactive mechanism, by an accountant that is valid only for fixed parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import fsum, inf, nextafter, sqrt, tanh
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import erfinv, ndtri_exp

from fedpriv._validate import require_non_negative
from fedpriv.privacy.accountants import GdpAccountant, UnsupportedEvent, account
from fedpriv.privacy.budget import within
from fedpriv.privacy.conversions import PrivacyLoss, rdp_epsilon
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonPureEvent,
    PureEvent,
    require_same_terms,
)
from fedpriv.privacy.gaussian import gdp_epsilon, gdp_mu
from fedpriv.privacy.planning.filters import RdpFilter
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.events import Event

Block = tuple[tuple["Event", int], ...]

_PURE = (LaplaceEvent, PureEvent, PoissonPureEvent, BoundedRangeEvent)
# What to do about a release without a price. Never: use another ledger, which would be a second
# budget for the same people.
_FIXED = (
    "Nothing was charged. The rule of a ledger is fixed at its creation, by `fedpriv ledger init "
    "--composition`: gdp prices Gaussian and pure noise; rdp also sampled rounds, shares of noise "
    "and paid tuning; basic pairs of epsilon and delta and declared runs, paid tuning included. "
    "A ledger that has charged nothing yet may be created again with another rule."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What releases add: ``amount`` in the composition's measure, and ``delta`` directly."""

    amount: float = 0.0
    delta: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            amount=_sum_from_above(self.amount, other.amount),
            delta=_sum_from_above(self.delta, other.delta),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition(ABC):
    """A rule by which spend adds up, for one budget, adjacency and unit of privacy."""

    name: ClassVar[str]
    measure: ClassVar[str]  # what it adds up
    budget: Budget
    adjacency: Adjacency
    unit: Unit = DEFAULT_UNIT

    def price(self, event: Event) -> Cost:
        """The cost of one release that was not declared. Raises `UnsupportedEvent`."""
        self._require_terms(event)
        try:
            return self._price(event)
        except ArithmeticError:  # beyond the range of floats
            return Cost(amount=inf)

    def price_block(self, block: Block, *, delta: float | None, spent: Cost) -> Cost:
        """The cost of a declared block after ``spent``, ``delta`` being its share of δ, if any."""
        for event, _ in block:
            self._require_terms(event)
        try:
            return self._price_block(block, delta, spent)
        except ArithmeticError:  # beyond the range of floats
            return Cost(amount=inf)

    def _require_terms(self, event: Event) -> None:
        require_same_terms(
            event, adjacency=self.adjacency, unit=self.unit, adds="this ledger adds up"
        )

    def price_each(self, block: Block) -> Cost:
        """The cost of a block's releases one by one. Raises `UnsupportedEvent`."""
        priced = [(self.price(event), count) for event, count in block]
        return Cost(
            amount=sum(count * cost.amount for cost, count in priced),
            delta=sum(count * cost.delta for cost, count in priced),
        )

    def _price_block(self, block: Block, delta: float | None, spent: Cost) -> Cost:
        """By default: the sum of its releases."""
        del delta, spent
        return self.price_each(block)

    @abstractmethod
    def _price(self, event: Event) -> Cost: ...

    @abstractmethod
    def limit(self) -> float:
        """The largest total amount within the budget: a constant, as a filter needs."""

    @abstractmethod
    def guarantee(self, total: Cost) -> PrivacyLoss:
        """How much of the budget ``total`` uses, as an (ε, δ).

        A guarantee by itself only if the total was fixed in advance: a filter guarantees its
        budget, and what was spent depends on what was seen (Rogers et al. 2016).
        """

    def admits(self, total: Cost) -> bool:
        """Whether ``total`` is within the budget."""
        return within(total.delta, self.budget.delta) and within(total.amount, self.limit())

    def to_dict(self) -> dict[str, Any]:
        """The values that the ledger records; `choice.composition_from_dict` inverts it."""
        return {"mode": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class GdpComposition(Composition):
    """Squared GDP parameters add up.

    Guarantee. Adaptively chosen Gaussian releases with Σμ² ≤ M in every course of events, M fixed
    beforehand, are √M-GDP (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2022): adaptivity
    costs nothing. A pure release counts as the Gaussian that it can be computed from,
    `randomised_response_mu`.

    Refuses what has no μ, declared or not. If (ε, δ) blocks shared δ with the Gaussians, M would
    depend on outputs: an analyst could buy a block in the courses of events where the Gaussians
    revealed little and more Gaussians in the others, and spend almost 2δ.
    """

    name: ClassVar[str] = "gdp"
    measure: ClassVar[str] = "squared GDP"

    def _price(self, event: Event) -> Cost:
        if isinstance(event, _PURE):
            return Cost(amount=randomised_response_mu(event.pure_epsilon) ** 2)
        if isinstance(event, GaussianEvent):
            return Cost(amount=GdpAccountant(adjacency=self.adjacency, unit=self.unit).cost(event))
        raise UnsupportedEvent(
            f"gdp composition cannot price {event.kind} releases: they have no exact Gaussian "
            f"equivalent. {_FIXED}"
        )

    def limit(self) -> float:
        """μ² of the budget."""
        return _largest_squared_mu(self.budget.epsilon, self.budget.delta)

    def guarantee(self, total: Cost) -> PrivacyLoss:
        """ε at the δ of the budget, exact for Gaussian releases."""
        if total.amount == 0:
            return PrivacyLoss(epsilon=0.0, delta=0.0)
        mu = sqrt(total.amount)
        epsilon = inf if mu == inf else gdp_epsilon(mu=mu, delta=self.budget.delta)
        return PrivacyLoss(epsilon=epsilon, delta=self.budget.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicComposition(Composition):
    """ε and δ add up: the weakest rule, and the only one at δ = 0.

    Guarantee. Adaptively chosen (ε_i, δ_i)-DP releases with Σε_i ≤ ε and Σδ_i ≤ δ in every course
    of events are (ε, δ)-DP (Rogers, Roth, Ullman and Vadhan 2016).
    """

    name: ClassVar[str] = "basic"
    measure: ClassVar[str] = "epsilon"

    def _price(self, event: Event) -> Cost:
        if isinstance(event, _PURE):
            return Cost(amount=event.pure_epsilon)
        if isinstance(event, ApproximateEvent):
            return Cost(amount=event.epsilon, delta=event.delta)
        raise UnsupportedEvent(
            f"basic composition cannot price {event.kind} releases one by one: declare the run, so "
            f"that it is charged as a whole. {_FIXED}"
        )

    def _price_block(self, block: Block, delta: float | None, spent: Cost) -> Cost:
        """(ε, ``delta``) of the block by the tightest accountant.

        If ``delta`` is None, a block whose releases all state their δ, pure ones included, takes
        the sum of these, and any other block everything that is left.
        """
        stated = all(isinstance(event, (*_PURE, ApproximateEvent)) for event, _ in block)
        if stated and delta is None:
            return self.price_each(block)
        share = max(0.0, self.budget.delta - spent.delta) if delta is None else delta
        priced = Cost(amount=block_epsilon(block, share), delta=share)
        plain = self.price_each(block) if stated else priced
        return plain if plain.amount <= priced.amount and plain.delta <= share else priced

    def limit(self) -> float:
        """ε."""
        return self.budget.epsilon

    def guarantee(self, total: Cost) -> PrivacyLoss:
        """(Σε, Σδ)."""
        return PrivacyLoss(epsilon=total.amount, delta=total.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class RdpComposition(Composition):
    """Rényi divergences of one fixed order add up: for sampled releases that are not declared.

    Guarantee. That of `RdpFilter` (Feldman and Zrnic 2021).
    """

    name: ClassVar[str] = "rdp"
    measure: ClassVar[str] = "Rényi divergence"
    order: float

    def _price(self, event: Event) -> Cost:
        if isinstance(event, ApproximateEvent):
            raise UnsupportedEvent(
                f"rdp composition cannot price {event.kind} releases: with probability delta they "
                f"may reveal anything. {_FIXED}"
            )
        return Cost(amount=self._filter.cost(event))

    def limit(self) -> float:
        """The divergence that converts to exactly (ε, δ)."""
        return self._filter.limit

    def guarantee(self, total: Cost) -> PrivacyLoss:
        """ε at the δ of the budget, from the one order."""
        if total.amount == 0:
            return PrivacyLoss(epsilon=0.0, delta=total.delta)
        epsilon = rdp_epsilon(
            orders=np.array([self.order]),
            divergences=np.array([total.amount]),
            delta=self.budget.delta,
        )
        return PrivacyLoss(epsilon=epsilon, delta=self.budget.delta)

    def to_dict(self) -> dict[str, Any]:
        """As in the base class, plus the order."""
        return {"mode": self.name, "order": self.order}

    @property
    def _filter(self) -> RdpFilter:
        return RdpFilter(
            budget=self.budget, adjacency=self.adjacency, unit=self.unit, order=self.order
        )


def is_exact(block: Block) -> bool:
    """Whether `GdpComposition` prices every release of ``block`` by itself."""
    return all(isinstance(event, (GaussianEvent, *_PURE)) for event, _ in block)


def randomised_response_mu(epsilon: float) -> float:
    """The μ for which randomised response with ε, hence any ε-DP release, is μ-GDP.

    μ = 2·Φ⁻¹(e^ε/(1 + e^ε)). The trade-off curve of randomised response is the polygon through
    (0, 1), (a, a) and (1, 0) with a = 1/(1 + e^ε). The curve of μ-GDP, Φ(Φ⁻¹(1 − α) − μ), is convex
    and passes through the same three points, so it lies nowhere above the polygon.
    """
    require_non_negative(epsilon=epsilon)
    if epsilon < 1:  # Φ⁻¹(1/2 + x) for small x
        return float(2 * sqrt(2) * erfinv(tanh(epsilon / 2)))
    return float(-2 * ndtri_exp(-np.logaddexp(0.0, epsilon)))


def _sum_from_above(left: float, right: float) -> float:
    """left + right, rounded up: even a tiny cost always increases the total."""
    total = left + right
    exact = total == inf or fsum((left, right, -total)) <= 0
    return total if exact else nextafter(total, inf)


@lru_cache(maxsize=256)
def block_epsilon(block: Block, delta: float) -> float:
    """ε of a declared block at ``delta`` by the tightest accountant; infinite if there is none."""
    epsilon = account(list(block), delta=delta).epsilon
    return inf if epsilon is None else epsilon


@lru_cache(maxsize=256)
def _largest_squared_mu(epsilon: float, delta: float) -> float:
    return gdp_mu(epsilon=epsilon, delta=delta) ** 2 if delta > 0 else 0.0
