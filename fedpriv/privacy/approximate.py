"""A single (ε, δ)-DP release: when the pair is all that is known of it.

Such a release composes by adding up ε and δ, and by nothing better. It has no Rényi divergence and
no Gaussian equivalent, because with probability δ anything may happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedpriv._validate import require_open_unit, require_positive
from fedpriv.privacy.budget import BudgetExceeded, within
from fedpriv.privacy.events import Event
from fedpriv.privacy.events import event_from_dict as _known_event
from fedpriv.privacy.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateEvent(Event):
    """Any (ε, δ)-DP release: nothing but the pair is assumed."""

    kind: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        require_positive(epsilon=self.epsilon)
        require_open_unit(delta=self.delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximatePlan(Plan):
    """The plan of a single (ε, δ)-DP release, whose cost is the pair that its event states."""

    def __post_init__(self) -> None:
        if len(self.mechanisms) != 1 or not isinstance(self.event(0), ApproximateEvent):
            raise ValueError("mechanisms must hold one release, with an approximate event.")
        event = self.event(0)
        if not (
            isinstance(event, ApproximateEvent)
            and within(event.epsilon, self.budget.epsilon)
            and within(event.delta, self.budget.delta)
        ):
            raise BudgetExceeded(
                f"the release does not fit {self.budget}. Nothing was released. Add noise."
            )
        object.__setattr__(self, "accountant", "basic")
        object.__setattr__(self, "epsilon", event.epsilon)


def event_from_dict(values: dict[str, Any]) -> Event:
    """As `fedpriv.privacy.events.event_from_dict`, and approximate events too."""
    if values.get("kind") == ApproximateEvent.kind:
        rest = {name: value for name, value in values.items() if name != "kind"}
        return ApproximateEvent(**rest)
    return _known_event(values)
