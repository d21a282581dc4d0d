"""HessianQuery: a party's sum of Hessians at a point, the last exchange of a fit with intervals.

Σ p(1-p)·x·xᵀ over its records, p = 1/(1 + e^(-x·θ)): the Hessian of the logistic losses at θ. A
weighted `MomentsQuery` (same sensitivity and exact sums) that serves the release of a joint fit: θ
is the fit's result, with its noise, and point and Hessian are charged as one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from fedpriv._validate import require_positive
from fedpriv.federation.queries.base import ARRAY, Query, point, require_index, require_point
from fedpriv.federation.queries.bounds import changes, headroom
from fedpriv.federation.queries.moments import WEIGHTINGS, MomentsQuery, moment_sensitivity
from fedpriv.learning import moments
from fedpriv.learning.losses import Logistic
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
class HessianQuery(Query):
    """The scaled upper triangle of Σ p(1-p)·x·xᵀ at θ: d(d+1)/2 numbers, exact.

    Attributes:
        theta: The point, float64 (d,).
        exchange: Which exchange of the fit, from 0.
        headroom: A party may hold up to so many times its size, for the bound on the sum.
    """

    kind: ClassVar[str] = "hessian"
    events: ClassVar[tuple[type[Event], ...]] = (ApproximateEvent,)
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD,)
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

    @property
    def moments(self) -> MomentsQuery:
        """The same query for second moments."""
        return MomentsQuery(
            run=self.run,
            round=self.round,
            grid=self.grid,
            event=None,
            weighting="logistic",
            theta=self.theta,
        )

    def record_bound(self, task: Task) -> float:
        """B²/4."""
        return task.feature_bound**2 * WEIGHTINGS["logistic"]

    def answer_width(self, task: Task) -> int:
        """d(d+1)/2."""
        return moments.width(task.model.features)

    def reach(self, task: Task, size: int) -> float:
        """B²/4, times the largest possible number of records."""
        return self.headroom * size * self.record_bound(task) * moments.SLACK

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """None: the parties add no noise to an exchange of a joint fit."""
        return None

    def check(self, task: Task) -> None:
        """The loss must be logistic, which the weights belong to."""
        require_point(self.theta, task)
        if not isinstance(task.loss, Logistic):
            raise ValueError(
                "a Hessian is asked for with logistic weights, and the loss of this task is "
                f"{type(task.loss).__name__}."
            )
        self.moments.check(task)
        event = self.event
        if event is not None and self.headroom < (least := headroom(event.adjacency, task)):
            raise ValueError(
                f"headroom must be at least {least:g} under {event.adjacency.value!r} adjacency, "
                f"got {self.headroom:g}."
            )

    def check_certain(self, task: Task) -> None:
        """A sum always exists."""


def hessian_sensitivity(task: Task, *, adjacency: Adjacency, step: float) -> float:
    """How far one record moves the sum in L2, the grid of width ``step`` included.

    B²/4 (add-remove) or √2·B²/4 (replace-one), plus rounding, as in `moment_sensitivity`. Here the
    rounding is for the largest possible number of records, since sums of a joint fit are not
    clamped, plus √width·step for the grid, since noise is added to a sum on it.
    """
    width = moments.width(task.model.features)
    radius = task.feature_bound * sqrt(WEIGHTINGS["logistic"])
    moved = moment_sensitivity(task, radius=radius, width=width, adjacency=adjacency, step=step)
    beyond = (headroom(adjacency, task) - 1) * task.largest * radius**2 * moments.SLACK**2
    rounded = 2 * changes(task, adjacency) * beyond * moments.ROUNDING
    return moved + sqrt(width) * (rounded + step)
