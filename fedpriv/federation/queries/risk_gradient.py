"""RiskGradientQuery: a party's exact sum of gradients, one exchange of a joint fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_positive
from fedpriv.federation.queries.base import (
    ARRAY,
    ON_A_VECTOR,
    Query,
    point,
    require_index,
    require_point,
)
from fedpriv.federation.queries.bounds import headroom
from fedpriv.privacy.events import ApproximateEvent
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskGradientQuery(Query):
    """Σ over a party's records of the exact gradient at θ: one exchange of a joint fit.

    For the person unit of privacy (`Task.persons`) Σ over its persons of the *mean* of a person's
    gradients, which is no longer than one record's.

    Nothing is clipped and nothing is noisy: the server learns an exact sum, with which it must be
    trusted. Many exchanges serve the one release at the end.

    Attributes:
        theta: The point, float64 (d,).
        exchange: Which exchange of the fit, from 0.
        headroom: A party may hold up to so many times its size, in records or persons, for the
            bound on the sum.
    """

    kind: ClassVar[str] = "risk-gradient"
    events: ClassVar[tuple[type[Event], ...]] = (*ON_A_VECTOR, ApproximateEvent)
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    sampling_rate: ClassVar[float] = 1.0
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = True
    own_noise: ClassVar[None] = None
    theta: NDArray[np.float64] = field(metadata=ARRAY)
    exchange: int
    headroom: float = 1.0

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", point(self.theta))
        require_index(exchange=self.exchange)
        require_positive(headroom=self.headroom)
        if self.share is not None:
            raise ValueError("share must be None: a joint fit needs exact sums.")

    def record_bound(self, task: Task) -> float:
        """The bound on a record's gradient at θ: nothing is clipped."""
        return task.gradient_bound(self.theta)

    def answer_width(self, task: Task) -> int:
        """d."""
        return task.dimension

    def reach(self, task: Task, size: int) -> float:
        """The bound on a gradient, times the largest possible number of records."""
        return self.headroom * size * task.gradient_bound(self.theta)

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """None: noise is added to the final model, not to these sums."""
        return None

    def check(self, task: Task) -> None:
        """With less headroom, the number of records would decide whether the sum fits."""
        require_point(self.theta, task)
        if task.persons is not None:
            task.require_convex("a joint fit")
        event = self.event
        if event is not None and self.headroom < (least := headroom(event.adjacency, task)):
            raise ValueError(
                f"headroom must be at least {least:g} under {event.adjacency.value!r} adjacency, "
                f"got {self.headroom:g}."
            )

    def check_certain(self, task: Task) -> None:
        """A sum always exists."""
