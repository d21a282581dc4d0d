"""Privacy filters: budgets for adaptively chosen noise.

Composition theorems hold for noise fixed before the first release. When σ_t depends on earlier
releases (adaptive and learned schedules, early stopping), the spend must be checked by a *filter*:
a rule that admits or refuses each release, such that whatever it admitted is private.

A filter is an immutable value. ``admit`` is called before the query and returns the filter after
it, or raises `BudgetExceeded`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import inf, log, log1p, sqrt
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedpriv._validate import require_non_negative
from fedpriv.privacy.accountants.gdp import GdpAccountant
from fedpriv.privacy.accountants.rdp import DEFAULT_ORDERS, RdpAccountant
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.budget import Budget, BudgetExceeded, within
from fedpriv.privacy.conversions import rdp_epsilon
from fedpriv.privacy.events import GaussianEvent, PureEvent
from fedpriv.privacy.gaussian import gdp_epsilon, gdp_mu
from fedpriv.privacy.planning.plan import sampled
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.privacy.events import Event

_MOST_NOISE = 2.0**40  # of one release, in sensitivities


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyFilter(ABC):
    """Admits releases while their costs, in one measure that adds up, stay within a limit."""

    name: ClassVar[str]
    method: ClassVar[str]
    budget: Budget
    adjacency: Adjacency
    spent: float = 0.0
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))
        require_non_negative(spent=self.spent)

    @property
    @abstractmethod
    def limit(self) -> float:
        """What may be spent, in the measure of `cost`."""

    @abstractmethod
    def cost(self, event: Event) -> float:
        """What one release costs. Raises `UnsupportedEvent` for one without a price."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """The ε of what was spent, at the budget's δ: how much is used, not the guarantee.

        A filter guarantees its budget. What was actually spent depends on what was seen.
        """

    @property
    @abstractmethod
    def whole_noise(self) -> float:
        """σ/Δ of the one Gaussian release that would spend all of it."""

    @property
    def left(self) -> float:
        """What may still be spent, in the measure of `cost`."""
        return max(0.0, self.limit - self.spent)

    def affords(self, event: Event) -> bool:
        """Whether `admit` would let ``event`` through."""
        return within(self.spent + self.cost(event), self.limit)

    def admit(self, event: Event) -> Self:
        """The filter after ``event``; raises `BudgetExceeded` if it does not fit."""
        if not self.affords(event):
            raise BudgetExceeded(
                f"the release would spend {self.spent + self.cost(event):.6g} of {self.limit:.6g} "
                f"({self.budget}; {self._measure()}). Nothing was released. Stop here, or ask for "
                f"one that costs at most {self.left:.6g}."
            )
        return replace(self, spent=self.spent + self.cost(event))

    @abstractmethod
    def _measure(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GdpFilter(PrivacyFilter):
    """Admits full-batch Gaussian releases while Σμ_t² ≤ μ(ε, δ)².

    Guarantee. Whatever it admits, adaptively chosen, is μ-GDP and hence (ε, δ)-DP (Smith and
    Thakurta 2022; Koskela, Tobaben and Honkela 2022): adaptivity costs nothing.
    """

    name: ClassVar[str] = "gdp-filter"
    method: ClassVar[str] = "GDP filter, for Gaussian noise chosen on the way"

    @property
    def epsilon(self) -> float:
        """Exact for what was spent; at most the budget's, even with rounding."""
        if not self.spent:
            return 0.0
        return min(self.budget.epsilon, gdp_epsilon(mu=sqrt(self.spent), delta=self.budget.delta))

    @property
    def limit(self) -> float:
        """μ² of the budget."""
        return gdp_mu(epsilon=self.budget.epsilon, delta=self.budget.delta) ** 2

    @property
    def whole_noise(self) -> float:
        """1/μ."""
        return 1 / sqrt(self.limit) if self.limit > 0 else inf

    def cost(self, event: Event) -> float:
        """μ² of one release."""
        return GdpAccountant(adjacency=self.adjacency, unit=self.unit).compose(event).total

    def _measure(self) -> str:
        return "squared GDP"

    @property
    def least_noise(self) -> float:
        """Smallest σ/Δ that one more release could have; infinite when all is spent."""
        return 1 / sqrt(self.left) if self.left > 0 else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class RdpFilter(PrivacyFilter):
    """Admits any releases with a Rényi cost, at one order fixed beforehand.

    Guarantee. If Σ D_α ≤ B for the fixed α in every course of events, all together is (α, B)-RDP
    (Feldman and Zrnic 2021, Thm. 3.1), and B is the largest that converts to (ε, δ). The order must
    not be chosen afterwards; `for_releases` chooses it from the plan.
    """

    name: ClassVar[str] = "rdp-filter"
    method: ClassVar[str] = "Rényi filter at one order, for releases chosen on the way"
    order: float

    @property
    def epsilon(self) -> float:
        """What the spent divergence converts to, at the one order; at most the budget's."""
        spent = rdp_epsilon(
            orders=np.array([self.order]),
            divergences=np.array([self.spent]),
            delta=self.budget.delta,
        )
        return min(self.budget.epsilon, spent)

    @classmethod
    def for_releases(cls, *, budget: Budget, event: Event) -> Self:
        """A filter with the order that would admit most releases like ``event``."""
        costs = RdpAccountant(adjacency=event.adjacency, unit=event.unit).cost(event)
        if min(costs) == inf:
            raise OverflowError(f"the divergence of {event} is beyond the range of floats.")
        order = max(
            zip(DEFAULT_ORDERS, costs, strict=True),
            key=lambda pair: _rdp_limit(pair[0], budget) / pair[1],
        )[0]
        return cls(budget=budget, adjacency=event.adjacency, unit=event.unit, order=order)

    @classmethod
    def for_gaussians(
        cls, *, budget: Budget, adjacency: Adjacency | str, unit: Unit | str = DEFAULT_UNIT
    ) -> Self:
        """A filter with the order that buys most Gaussian releases, whatever their noise.

        D_α of Gaussian noise is proportional to α, so B(α)/α decides. Any order is sound.
        """
        orders = np.geomspace(1.01, 1e7, 4000)
        limits = np.array([_rdp_limit(order, budget) for order in orders])
        order = float(orders[np.argmax(limits / orders)])
        return cls(budget=budget, adjacency=Adjacency(adjacency), unit=Unit(unit), order=order)

    @property
    def limit(self) -> float:
        """B: the divergence at ``order`` that converts to exactly (ε, δ)."""
        return max(0.0, _rdp_limit(self.order, self.budget))

    @property
    def whole_noise(self) -> float:
        """√(α/2B), from D_α = α/(2z²)."""
        return sqrt(self.order / (2 * self.limit)) if self.limit > 0 else inf

    def cost(self, event: Event) -> float:
        """D_α of one release."""
        accountant = RdpAccountant(adjacency=self.adjacency, unit=self.unit, orders=(self.order,))
        return accountant.compose(event).divergences[0]

    def _measure(self) -> str:
        return f"Rényi divergence of order {self.order:g}"


def least_noise(
    fund: PrivacyFilter, *, amount: float, sampling_rate: float, parts: int = 1
) -> float:
    """Least σ/Δ of a Gaussian release, on a fresh Poisson sample, that costs ``amount`` at most.

    By bisection, which ends on the cheaper side. Infinite for an amount of 0.
    """

    def cost(noise: float) -> float:
        event = GaussianEvent(relative_noise=noise, adjacency=fund.adjacency, unit=fund.unit)
        return fund.cost(sampled(event, sampling_rate, parts=parts))

    return _edge(lambda noise: cost(noise) <= amount) if amount > 0 else inf


def most_epsilon(fund: PrivacyFilter, *, amount: float, sampling_rate: float) -> float:
    """Largest ε of a pure release, on a fresh Poisson sample, that costs ``amount`` at most.

    The inverse of `_edge` of 1/ε: the noise of a pure release is proportional to that.
    """

    def cost(noise: float) -> float:
        event = PureEvent(epsilon=1 / noise, adjacency=fund.adjacency, unit=fund.unit)
        return fund.cost(sampled(event, sampling_rate))

    return 1 / _edge(lambda noise: cost(noise) <= amount)


def _edge(cheap: Callable[[float], bool]) -> float:
    """The least noise that is cheap enough, rounded up, to 12 digits; all larger noise is cheaper.

    Raises:
        ValueError: No noise within the samplers' range is cheap enough.
    """
    low, high = 0.0, 2.0**-10
    while not cheap(high):
        low, high = high, 2 * high
        if high > _MOST_NOISE:
            raise ValueError(
                f"the budget must pay for one of the planned releases; it does not pay for one "
                f"with noise of {_MOST_NOISE:g} sensitivities. Raise epsilon or delta."
            )
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cheap(middle) else (middle, high)
    return high


def fresh_filter(
    name: str, *, budget: Budget, adjacency: Adjacency, unit: Unit = DEFAULT_UNIT
) -> PrivacyFilter:
    """The filter of this name with nothing spent; a Rényi filter at the order for Gaussians.

    Its order follows from the budget: it was not chosen afterwards.
    """
    if name == GdpFilter.name:
        return GdpFilter(budget=budget, adjacency=adjacency, unit=unit)
    if name == RdpFilter.name:
        return RdpFilter.for_gaussians(budget=budget, adjacency=adjacency, unit=unit)
    raise ValueError(f"name must be {GdpFilter.name!r} or {RdpFilter.name!r}, got {name!r}.")


FILTERS = (GdpFilter.name, RdpFilter.name)
"""The names of all filters, by which plans of adaptively chosen noise are accounted for."""


def _rdp_limit(order: float, budget: Budget) -> float:
    """The inverse of the conversion in `conversions.rdp_epsilon`, at one order."""
    if budget.delta == 0:
        return -inf
    return budget.epsilon - log1p(-1 / order) + (log(budget.delta) + log(order)) / (order - 1)
