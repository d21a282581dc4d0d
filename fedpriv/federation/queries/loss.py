"""LossQuery: a party's sums of clipped losses at several points, to select one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv._validate import require_positive, require_rate
from fedpriv.federation.queries.base import ARRAY, LATER, Query
from fedpriv.privacy.events import BoundedRangeEvent, PoissonPureEvent, PureEvent
from fedpriv.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossQuery(Query):
    """Σ over a party's records of min(loss, clip) at each of k points: k numbers.

    Each record's clipped loss is rounded down to the grid before it is summed, so that the sum is
    over integers, and adding, removing or replacing a record moves each of the k by at most
    ``clip``, without a term for rounding; adding one decreases none of them. As for gradients
    (`fedpriv.learning.clipping.clipped_sum`), the losses of all other records must stay the same.

    For the person unit of privacy (`Task.persons`) Σ over its persons: the losses of a person's
    records, rounded down, are summed, and the sum is clipped. A person at p parties moves each of
    the k by at most p times the clip.

    Attributes:
        points: The k points, float64 (k, d).
        clip: The bound on the loss of one record, or person.
        sampling_rate: Poisson rate at which each record joins, or each person; 1 is all of them.
    """

    kind: ClassVar[str] = "loss"
    # Of a selection.
    events: ClassVar[tuple[type[Event], ...]] = (BoundedRangeEvent, PureEvent, PoissonPureEvent)
    units: ClassVar[tuple[Unit, ...]] = (Unit.RECORD, Unit.PERSON)
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    own_noise: ClassVar[None] = None
    points: NDArray[np.float64] = field(metadata=ARRAY)
    clip: float
    sampling_rate: float = field(default=1.0, metadata=LATER)

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        points = np.array(self.points, dtype=np.float64)
        if points.ndim != 2 or not len(points) or not np.isfinite(points).all():
            raise ValueError(f"points must be finite vectors, (k, d), got shape {points.shape}.")
        points.flags.writeable = False
        object.__setattr__(self, "points", points)
        require_positive(clip=self.clip)
        require_rate(sampling_rate=self.sampling_rate)
        if self.share is not None:
            raise ValueError("share must be None: losses are selected from, and get no noise.")

    def record_bound(self, task: Task) -> float:
        """The clip."""
        return self.clip

    def answer_width(self, task: Task) -> int:
        """k."""
        return len(self.points)

    def reach(self, task: Task, size: int) -> float:
        """n_j times the clip."""
        return size * self.clip

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """None: losses are used for a selection, and get no noise."""
        return None

    def check(self, task: Task) -> None:
        """The points must fit the model; sampled units must have one coin each."""
        if self.sampling_rate < 1 and task.persons is not None and task.persons.parties > 1:
            raise ValueError(
                "sampling_rate must be 1 for losses of persons at several parties, got "
                f"{self.sampling_rate!r}: a selection is not a sum of one release per party."
            )
        if self.points.shape[1] != task.dimension:
            raise ValueError(
                f"points must have {task.dimension} coordinates, got shape {self.points.shape}."
            )

    def check_certain(self, task: Task) -> None:
        """A sum always exists."""


def loss_sensitivity(task: Task, *, clip: float) -> float:
    """How far one unit moves a sum of clipped losses: the clip, or p times that for a person.

    Under either adjacency, because losses are not negative: of the answers that an exchange
    changes, at most p rise, by at most the clip, and at most p fall.
    """
    return clip * (1 if task.persons is None else task.persons.parties)
