"""The accountant interface, and what every accountant guarantees.

An accountant composes events into a guarantee that is always an upper bound on what was spent. It
is an immutable value: ``compose`` returns a new one. For every accountant ``compose(e, n)`` equals
n times ``compose(e)``, the order of events does not matter, and more events never cost less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from sys import float_info
from typing import TYPE_CHECKING, ClassVar, Self

from fedpriv._validate import require_count, require_non_negative
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import require_same_terms
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedpriv.privacy.events import Event

_SMALLEST_LOG_DELTA = -700.0


class UnsupportedEvent(ValueError):
    """This accountant has no sound cost for an event; the message says why, and what to use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accountant(ABC):
    """Composes events of one adjacency and one unit into (ε, δ).

    ``most_levels`` is the largest number of distinct sampled Gaussians that it is given; beyond it
    `on_levels` rounds their noise down. The time that each takes differs between accountants.
    """

    name: ClassVar[str]
    method: ClassVar[str]
    most_levels: ClassVar[int] = 500
    adjacency: Adjacency
    unit: Unit = DEFAULT_UNIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))

    def compose(self, event: Event, count: int = 1) -> Self:
        """The accountant after ``count`` more releases of ``event``."""
        require_count(count=count)
        require_same_terms(
            event, adjacency=self.adjacency, unit=self.unit, adds="this accountant composes"
        )
        return self._add(event, count)

    def compose_all(self, releases: Iterable[tuple[Event, int]]) -> Self:
        """The accountant after every (event, count) of ``releases``."""
        accountant = self
        for event, count in releases:
            accountant = accountant.compose(event, count)
        return accountant

    @abstractmethod
    def _add(self, event: Event, count: int) -> Self: ...

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """An ε for which everything composed so far is (ε, δ)-DP; infinite if there is none."""

    def delta(self, epsilon: float) -> float:
        """A δ for which everything composed so far is (ε, δ)-DP, by bisection of `epsilon`."""
        require_non_negative(epsilon=epsilon)
        if self.epsilon(0.0) <= epsilon:
            return 0.0
        low, high = _SMALLEST_LOG_DELTA, 0.0
        for _ in range(100):
            middle = (low + high) / 2
            if self.epsilon(exp(middle)) <= epsilon:
                high = middle
            else:
                low = middle
            if high - low <= 1e-12 * max(1.0, abs(low)):
                break
        return exp(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveAccountant(Accountant):
    """An accountant whose cost is one number that adds up."""

    total: float = 0.0

    def _add(self, event: Event, count: int) -> Self:
        return replace(self, total=self.total + count * self.cost(event))

    @abstractmethod
    def cost(self, event: Event) -> float:
        """What one release of ``event`` costs, in the measure that this accountant adds up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingAccountant(Accountant):
    """An accountant that must see all events together: it counts how often each occurred."""

    counts: Mapping[Event, int] = field(default_factory=dict)

    def _add(self, event: Event, count: int) -> Self:
        self._check(event)
        return replace(self, counts={**self.counts, event: self.counts.get(event, 0) + count})

    def compose_all(self, releases: Iterable[tuple[Event, int]]) -> Self:
        """As in the base class, but the counts are copied only once."""
        counts = dict(self.counts)
        for event, count in releases:
            # Validates adjacency, unit and support in the same way as `compose`.
            ((_, added),) = replace(self, counts={}).compose(event, count).counts.items()
            counts[event] = counts.get(event, 0) + added
        return replace(self, counts=counts)

    @abstractmethod
    def _check(self, event: Event) -> None:
        """Raise `UnsupportedEvent` if this accountant has no cost for ``event``."""


def unsupported(accountant: Accountant, event: Event, remedy: str) -> UnsupportedEvent:
    """The error for an event that an accountant cannot cost soundly."""
    return UnsupportedEvent(f"{accountant.name} cannot cost {event.kind} releases: {remedy}.")


def squared(value: float) -> float:
    """value², infinite where it overflows and never 0 where it underflows: a cost stays a cost."""
    return max(value * value, float_info.min)


def log_inverse(delta: float) -> float:
    """L = ln(1/δ), infinite at zero."""
    return -log(delta) if delta > 0 else inf
