"""AccuracyQuery: how many of a party's records a model classifies rightly, and how many wrongly.

It serves private evaluation, on records that a deployed party holds out, and scoring of a trial in
paid tuning, where all records are in one place. It asks for two counts, not for a count and a
total: adding or removing a record then moves only one of them, by one, and their sum is the number
of records, which nobody needs to know beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nextafter, sqrt
from typing import TYPE_CHECKING, ClassVar

from fedpriv.federation.queries.base import ARRAY, Query, point, require_point
from fedpriv.learning.classes import classifies
from fedpriv.learning.models import LinearModel
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent, ZcdpEvent

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event

COUNTS = 2
MOST_RECORDS = 1 << 24
"""At most so many held-out records of a party are counted, since a ring is finite."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyQuery(Query):
    """Over a party's records: how many are classified rightly, and how many wrongly.

    Sensitivity, in L2, of the two counts over all parties: 1 if a record is added or removed, since
    it is right or wrong; √2 if one is replaced, which at worst moves both counts by one. A count
    clamped at `MOST_RECORDS` moves no further. Whether a record is classified rightly must not
    depend on the others, to the last bit: so the model must be linear, whose scores are one dot
    product per record, by the same instructions (`fedpriv.learning.row_scores`).

    Attributes:
        theta: The model, float64 (d,).
    """

    kind: ClassVar[str] = "accuracy"
    events: ClassVar[tuple[type[Event], ...]] = (GaussianEvent, ZcdpEvent)
    sampling_rate: ClassVar[float] = 1.0
    weighted: ClassVar[bool] = False
    joint_fit: ClassVar[bool] = False
    held_out: ClassVar[bool] = True
    own_noise: ClassVar[None] = None
    theta: NDArray[np.float64] = field(metadata=ARRAY)

    def __post_init__(self) -> None:
        Query.__post_init__(self)
        object.__setattr__(self, "theta", point(self.theta))

    def record_bound(self, task: Task) -> float:
        """1: a record counts once."""
        return 1.0

    def answer_width(self, task: Task) -> int:
        """2: right and wrong."""
        return COUNTS

    def reach(self, task: Task, size: int) -> float:
        """Independent of the party's size: the number of held-out records is private."""
        return float(MOST_RECORDS)

    def sensitivity(
        self, task: Task, *, sizes: Collection[int], adjacency: Adjacency
    ) -> float | None:
        """√2 (replace-one) or 1 (add-remove); rounded up."""
        return count_sensitivity(adjacency)

    def check(self, task: Task) -> None:
        """The model must be linear, with classes, and the point one of its own."""
        require_point(self.theta, task)
        if not isinstance(task.model, LinearModel) or not classifies(task.loss):
            raise ValueError(
                "an accuracy query must be about a linear classifier: for other models, whether "
                "one record is classified correctly may depend on the other records, or has no "
                "meaning."
            )

    def check_certain(self, task: Task) -> None:
        """Counts always exist."""


def count_sensitivity(adjacency: Adjacency) -> float:
    """How far one record moves (right, wrong) in L2."""
    return nextafter(sqrt(2), inf) if adjacency is Adjacency.REPLACE_ONE else 1.0


def lead_sensitivity(adjacency: Adjacency) -> float:
    """How far one record moves right - wrong: 1, or 2 where a right one replaces a wrong one.

    As much as the count of right ones alone under add-remove, and twice that under replace-one,
    where the difference moves by two whenever that count moves by one.
    """
    return adjacency.sum_sensitivity
