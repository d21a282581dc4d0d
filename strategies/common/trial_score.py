"""Score of a trial in paid tuning: a model's value on the parties' records, with noise.

"accuracy" is Σ over all records of 1 where the class is right and -1 where it is wrong; "loss" is
minus Σ of the losses of records, or of all records of a person together, clipped to c. Both are
sums of integers on their grid, so that one unit moves them by exactly what `sensitivity` says,
without a term for rounding; and both are of a linear model, whose scores of one record are the same
to the bit whatever the other records are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv._validate import require_positive
from fedpriv.federation.queries.accuracy import MOST_RECORDS, lead_sensitivity
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import AccuracyQuery, LossQuery
from fedpriv.federation.queries.loss import loss_sensitivity
from fedpriv.learning.classes import classifies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.events import Event

ScoreKind = Literal["accuracy", "loss"]
_COUNT_STEP = 2.0**-10  # of a count: noise is rounded to it
_LEVELS = 2**16  # least number of grid steps in the bound on one record's loss


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialScore:
    """How trials are scored: the higher, the better.

    Attributes:
        task: The problem.
        kind: What is summed.
        clip: c, the bound on the loss of one unit; unused for "accuracy".
    """

    task: Task
    kind: ScoreKind
    clip: float = 1.0

    def __post_init__(self) -> None:
        require_positive(clip=self.clip)
        self.task.require_convex("a tuning that is paid for")
        counted = classifies(self.task.loss) and self.task.persons is None
        if self.kind == "accuracy" and not counted:
            raise ValueError(
                "tuning.score must be 'loss' for a regression, and for the person unit of privacy: "
                "accuracy counts records, in classes."
            )

    @classmethod
    def usual(cls, task: Task) -> ScoreKind:
        """The default: accuracy, where it can be counted."""
        return "accuracy" if classifies(task.loss) and task.persons is None else "loss"

    def sensitivity(self, adjacency: Adjacency) -> float:
        """How far one unit moves the score, exactly."""
        if self.kind == "accuracy":
            return lead_sensitivity(adjacency)
        return loss_sensitivity(self.task, clip=self.clip)

    @property
    def step(self) -> float:
        """The grid step."""
        if self.kind == "accuracy":
            return _COUNT_STEP
        return float(2.0 ** floor(log2(self.clip / _LEVELS)))

    @property
    def in_words(self) -> str:
        """What a party is asked for."""
        if self.kind == "accuracy":
            return "how many of its records it classifies rightly, and how many wrongly,"
        whose = "records'" if self.task.persons is None else "persons'"
        return f"the sum of its {whose} losses, each clipped to {self.clip:g}"

    def query(
        self, theta: NDArray[np.float64], *, run: str, number: int, event: Event
    ) -> AccuracyQuery | LossQuery:
        """The query for the score of the model ``theta``."""
        task = self.task
        parties = task.parties
        bound = parties * MOST_RECORDS if self.kind == "accuracy" else task.records * self.clip
        common: dict[str, Any] = {
            "run": run,
            "round": number,
            "grid": grid_of(step=self.step, bound=bound, parties=parties),
            "event": event,
        }
        if self.kind == "accuracy":
            return AccuracyQuery(**common, theta=theta)
        return LossQuery(**common, points=theta[np.newaxis], clip=self.clip)

    def exact(self, answer: Sum) -> NDArray[np.int64]:
        """The score in steps of its grid, before noise. **Private**."""
        right = answer.total[0]
        return np.array([right - answer.total[1] if self.kind == "accuracy" else -right])
