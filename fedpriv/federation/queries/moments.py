"""MomentsQuery: a party's second moments, Σ z·zᵀ over its records: curvature, and regression.

**Sensitivity.** z·zᵀ has Frobenius norm ‖z‖² ≤ R². So adding or removing a record moves the sum by
at most R². Replacing one moves it by ‖zzᵀ − z′z′ᵀ‖² = ‖z‖⁴ + ‖z′‖⁴ − 2(z·z′)² ≤ 2R⁴, hence by √2·R²
and not by 2R²; where z and z′ are perpendicular and of length R, by that much. Weights w ≤ 1 change
nothing: w·zzᵀ is uuᵀ with u = √w·z, which is no longer than √(sup w)·R.

A person counts as the *mean* over that person's records at a party: a positive semidefinite matrix
A of norm at most R², whatever the number of records. Over p parties these add up to at most pR².
Replacing a person moves the sum by ‖A − A′‖² = ‖A‖² + ‖A′‖² − 2·tr(AA′) ≤ 2p²R⁴, since the trace of
a product of positive semidefinite matrices is not negative: √2·p·R². A mean, unlike a clipped sum,
needs no clipping, which would understate the curvature that steps are divided by. The trace is that
of whole matrices: where A is at one party and A′ at another, and one party's answer is clamped to
its bound coordinate by coordinate, the difference may have norm √(5/2)·R². So sums of persons are
not clamped: they have `room`.

The answer is the scaled upper triangle, off-diagonals times √2: an isometry of the Frobenius norm.
A party sums integers, exactly (`fedpriv.learning.moments`), so that rounding adds almost nothing,
however many records there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv._validate import require_choice, require_positive, require_rate
from fedpriv.federation.queries.base import ARRAY, LATER, ON_A_VECTOR, Query, point
from fedpriv.federation.queries.bounds import changes
from fedpriv.federation.queries.room import room
from fedpriv.learning import moments
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import PoissonGaussianEvent, PoissonPartsEvent
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event

Weighting = Literal["none", "logistic"]
WEIGHTINGS: dict[Weighting, float] = {"none": 1.0, "logistic": 0.25}
"""The largest weight of a record."""

_LONGEST_LABEL = 1e15  # as for features: its squares, and sums of them, do not overflow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MomentsQuery(Query):
    """Σ over a party's records of w·z·zᵀ, z = x or (x, s·y): d(d+1)/2 numbers.

    For the person unit of privacy (`Task.persons`) Σ over its persons of the mean of a person's
    w·z·zᵀ.

    Attributes:
        label_scale: s, if the label is the last coordinate of z; None for z = x.
        label_bound: Y: labels are clipped to [−Y, Y]; given with a scale, and only then.
        weighting: w = 1 ("none"); or w = p(1 − p), p = 1/(1 + e^(−x·θ)), at most ¼ ("logistic").
        theta: θ of the weights, float64, one entry per feature; None without any.
        sampling_rate: Poisson rate at which each record, or each person, joins, by a separate coin
            at every party; 1 is all of them.
    """

    kind: ClassVar[str] = "moments"
    events: ClassVar[tuple[type[Event], ...]] = (
        *ON_A_VECTOR,
        PoissonGaussianEvent,
        PoissonPartsEvent,
    )
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    own_noise: ClassVar[None] = None
    label_scale: float | None = None
    label_bound: float | None = None
    weighting: Weighting = "none"
    theta: NDArray[np.float64] | None = field(default=None, metadata=ARRAY)
    sampling_rate: float = field(default=1.0, metadata=LATER)

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        require_choice(WEIGHTINGS, weighting=self.weighting)
        require_rate(sampling_rate=self.sampling_rate)
        if (self.label_scale is None) != (self.label_bound is None):
            raise ValueError(
                "label_scale and label_bound must be given together, or neither: got "
                f"{self.label_scale!r} and {self.label_bound!r}."
            )
        for name in ("label_scale", "label_bound"):
            if (value := getattr(self, name)) is not None:
                require_positive(**{name: value})
        if (self.label_scale or 0.0) * (self.label_bound or 0.0) > _LONGEST_LABEL:
            raise ValueError(
                f"label_scale times label_bound must be at most {_LONGEST_LABEL:g}, got "
                f"{self.label_scale!r} times {self.label_bound!r}."
            )
        if (self.theta is None) != (self.weighting == "none"):
            raise ValueError(
                f"theta must be given with weighting = 'logistic', and only then, got weighting = "
                f"{self.weighting!r}."
            )
        if self.theta is not None:
            object.__setattr__(self, "theta", point(self.theta))

    @property
    def form(self) -> str:
        """Of features alone, or with labels; and whether weighted."""
        weighted = "" if self.weighting == "none" else "weighted "
        return f"{weighted}{self.kind}{'' if self.label_scale is None else ' with labels'}"

    def size(self, task: Task) -> int:
        """The number of rows of the matrix: the coordinates of z."""
        return task.model.features + (self.label_scale is not None)

    def radius(self, task: Task) -> float:
        """R: no √w·z is longer."""
        label = (self.label_scale or 0.0) * (self.label_bound or 0.0)
        return hypot(task.feature_bound, label) * sqrt(WEIGHTINGS[self.weighting])

    def record_bound(self, task: Task) -> float:
        """R², of a record or a person."""
        label = (self.label_scale or 0.0) * (self.label_bound or 0.0)
        return (task.feature_bound**2 + label**2) * WEIGHTINGS[self.weighting]

    def answer_width(self, task: Task) -> int:
        """d(d+1)/2."""
        return moments.width(self.size(task))

    def reach(self, task: Task, size: int) -> float:
        """n_j·R²: on the diagonal; elsewhere |√2·z_k·z_l| ≤ ‖z‖²/√2. For persons, of all there are.

        A record changes one answer, which clamping moves no further.
        """
        return most_in_answer(task, size) * self.radius(task) ** 2 * moments.SLACK

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """p·R² (add-remove) or √2·p·R² (replace-one), plus rounding; p = 1 for a record."""
        return moment_sensitivity(
            task,
            radius=self.radius(task),
            width=self.answer_width(task),
            adjacency=adjacency,
            step=self.grid.step,
        )

    def check(self, task: Task) -> None:
        """Labels must be numbers, and weights those of a linear model with one score."""
        self._check_parts(task)
        if self.label_scale is not None and task.loss.outputs > 1:
            raise ValueError(
                f"label_scale must be None where labels are one of {task.loss.outputs} classes, "
                f"got {self.label_scale!r}: their numbers mean nothing."
            )
        if self.theta is None:
            return
        if not isinstance(task.model, LinearModel) or task.model.classes > 1:
            raise ValueError(
                "weighting must be 'none' unless the model is linear with one score, got "
                f"{self.weighting!r}."
            )
        if self.theta.shape != (task.model.features,):
            raise ValueError(
                f"theta must have {task.model.features} coordinates, one per feature, got shape "
                f"{self.theta.shape}."
            )

    def check_certain(self, task: Task) -> None:
        """A sum always exists."""


def most_in_answer(task: Task, size: int) -> int:
    """How many records, or persons, fit in the answer of a party of ``size``."""
    return size if task.persons is None else room(task, size)


def moment_sensitivity(
    task: Task, *, radius: float, width: int, adjacency: Adjacency, step: float
) -> float:
    """How far one unit moves Σ z·zᵀ, ‖z‖ ≤ R = ``radius``, in L2, before the grid: see the module.

    Each float64 number of an answer is rounded from an exact sum by a factor of at most
    1 + `fedpriv.learning.moments.ROUNDING`, and is at most R² times `most_in_answer`; this counts
    twice for every answer that changes. The result includes all but one of the grid's √width·step.
    """
    parties = 1 if task.persons is None else task.persons.parties
    answers = 1 if task.in_place else changes(task, adjacency)
    factor = sqrt(2.0) if adjacency is Adjacency.REPLACE_ONE else 1.0
    largest = most_in_answer(task, task.largest)
    rounded = 2 * answers * largest * moments.ROUNDING * sqrt(width)
    moved = parties * factor + rounded
    return moved * radius**2 * moments.SLACK**2 + (answers - 1) * sqrt(width) * step
