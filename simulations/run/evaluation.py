"""Accuracy and loss on the common test set."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.learning.classes import classes_of, classifies
from fedpriv.learning.threads import one_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.data import Records
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model

# A loss that has left the range of numbers; finite, so that means and files can hold it.
_WORST = 1e100


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Metrics of one model: the share of right classes, none for a regression; the mean loss."""

    accuracy: float | None
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluator:
    """Scores models on fixed records. The loss is without the regulariser."""

    model: Model
    loss: Loss
    features: Tensor
    labels: Tensor

    @classmethod
    def of(cls, model: Model, loss: Loss, records: Records) -> Evaluator:
        """Evaluate on ``records``, which are not copied."""
        return cls(
            model=model,
            loss=loss,
            features=from_dlpack(records.X),
            labels=from_dlpack(records.y),
        )

    def score(self, theta: NDArray[np.float64]) -> Score | None:
        """Metrics of the model with parameters ``theta``; None without test records."""
        if not len(self.labels):
            return None
        with one_thread():
            scores = self.model.scores(torch.from_numpy(np.array(theta)), self.features)
            loss = float(self.loss.value(scores, self.labels).mean(dtype=torch.float64))
        if not loss < _WORST:  # NaN, too
            loss = _WORST
        if not classifies(self.loss):
            return Score(accuracy=None, loss=loss)
        right = classes_of(scores, self.loss) == self.labels
        return Score(accuracy=int(right.count_nonzero()) / len(self.labels), loss=loss)

    def majority(self) -> float | None:
        """The accuracy of always naming the commonest class of the test set."""
        if not classifies(self.loss) or not len(self.labels):
            return None
        _, counts = np.unique(self.labels.numpy(), return_counts=True)
        return int(counts.max()) / len(self.labels)


def rounds_between(*, test_records: int, train_records: int) -> int:
    """How often metrics are worth their time: as much of it as half the training, at most.

    Scoring a record costs about half of its gradient.
    """
    return max(1, ceil(test_records / max(1, train_records)))
