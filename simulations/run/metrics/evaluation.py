"""Evaluation on the common test set: accuracy and loss per round, all metrics at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.learning.classes import classes_of, classifies
from fedpriv.learning.crew import Crew, processors
from fedpriv.learning.losses import Logistic, Softmax
from fedpriv.learning.threads import one_thread
from fedpriv.simulations.run.metrics import scores as metrics
from fedpriv.simulations.run.metrics.scores import Measures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.data import Records
    from fedpriv.learning.losses import Loss
    from fedpriv.learning.models import Model

WORST = 1e100
"""A loss that has left the range of numbers; finite, so that means and files can hold it."""
_PIECES, _FEW, _SMALL = 8, 500, 1 << 23  # most pieces; records and multiplications worth one
_CHUNK = 1 << 13  # records at a time: the activations of a network are many times their size


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Metrics of one model: the share of right classes, none for a regression; the mean loss."""

    accuracy: float | None
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluator:
    """Scores models on fixed records. The loss is without the regulariser.

    Attributes:
        model: What computes scores.
        loss: What gives them their meaning.
        features: (n, d).
        labels: (n,), as the parties have them.
        unit: What a step of one in the labels of a regression is in the unit of the table.
        crew: Who shares the work of a score. The numbers are the same for any.
    """

    model: Model
    loss: Loss
    features: Tensor
    labels: Tensor
    unit: float = 1.0
    crew: Crew = field(default_factory=lambda: Crew(processors()))

    @classmethod
    def of(cls, model: Model, loss: Loss, records: Records, *, unit: float = 1.0) -> Evaluator:
        """Evaluate on ``records``, which are not copied."""
        return cls(
            model=model,
            loss=loss,
            features=from_dlpack(records.X),
            labels=from_dlpack(records.y),
            unit=unit,
        )

    def on(self, records: Records) -> Evaluator:
        """The same on other records."""
        return replace(self, features=from_dlpack(records.X), labels=from_dlpack(records.y))

    def score(self, theta: NDArray[np.float64]) -> Score | None:
        """Metrics of the model with parameters ``theta``; None without test records."""
        if not len(self.labels):
            return None
        work = partial(self._judge, torch.from_numpy(np.array(theta)))
        pieces, hands = self._pieces, self.crew.size
        done = self.crew.each(work, [pieces[hand::hands] for hand in range(hands)][: len(pieces)])
        judged = [done[index % hands][index // hands] for index in range(len(pieces))]
        with one_thread():
            losses = torch.cat([values for values, _ in judged])
            loss = float(losses.mean(dtype=torch.float64))
        if not loss < WORST:  # NaN, too
            loss = WORST
        if not classifies(self.loss):
            return Score(accuracy=None, loss=loss)
        return Score(accuracy=sum(right for _, right in judged) / len(self.labels), loss=loss)

    def measure(self, theta: NDArray[np.float64], *, loss: float) -> Measures:
        """All metrics of the model ``theta``, whose mean loss is known already."""
        if not len(self.labels):
            return Measures()
        scores = torch.cat([part for _, part in self._scored(theta)])
        if not classifies(self.loss):
            return self._of_numbers(scores)
        return self._of_classes(scores, loss if isinstance(self.loss, Logistic | Softmax) else None)

    def wrong(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of every record: 1 if it is misclassified; of a regression its squared error."""
        parts = []
        for records, scores in self._scored(theta):
            labels = self.labels[records]
            if classifies(self.loss):
                parts.append((classes_of(scores, self.loss) != labels).double().numpy())
            else:
                parts.append(np.square(self._errors(scores, labels)))
        return np.concatenate(parts) if parts else np.empty(0)

    def majority(self) -> float | None:
        """The accuracy of always naming the commonest class of the test set."""
        if not classifies(self.loss) or not len(self.labels):
            return None
        _, counts = np.unique(self.labels.numpy(), return_counts=True)
        return int(counts.max()) / len(self.labels)

    @property
    def _pieces(self) -> list[slice]:
        """The records in pieces that are worth a thread: by the problem alone, not by the crew."""
        n = len(self.labels)
        count = max(1, min(_PIECES, n // _FEW, n * self.model.dimension // _SMALL))
        return [slice(n * k // count, n * (k + 1) // count) for k in range(count)]

    def _judge(self, theta: Tensor, pieces: list[slice]) -> list[tuple[Tensor, int]]:
        """Of each piece: the loss of every record, and how many are classified right."""
        judged = []
        for records in pieces:
            scores, labels = self.model.scores(theta, self.features[records]), self.labels[records]
            right = classes_of(scores, self.loss) == labels if classifies(self.loss) else labels[:0]
            judged.append((self.loss.value(scores, labels), int(right.count_nonzero())))
        return judged

    def _scored(self, theta: NDArray[np.float64]) -> Iterator[tuple[slice, Tensor]]:
        """Scores of so many records at a time that the memory stays bounded."""
        point = torch.from_numpy(np.array(theta))
        for start in range(0, len(self.labels), _CHUNK):
            records = slice(start, start + _CHUNK)
            with one_thread(), torch.no_grad():
                yield records, self.model.scores(point, self.features[records])

    def _of_classes(self, scores: Tensor, log_loss: float | None) -> Measures:
        named, labels = classes_of(scores, self.loss).numpy(), self.labels.numpy()
        if self.loss.outputs == 1:
            counts = metrics.confusion(named > 0, labels > 0, classes=2)
            f1 = metrics.f1(counts)[1]
            auc = metrics.auc(scores.double().numpy(), labels > 0)
        else:
            counts = metrics.confusion(named, labels, classes=self.loss.outputs)
            f1 = np.nanmean(metrics.f1(counts))
            comparable = isinstance(self.loss, Softmax)
            wide = torch.softmax(scores.double(), dim=1) if comparable else scores.double()
            auc = metrics.macro_auc(wide.numpy(), labels)
        return Measures(
            auc=auc,
            f1=float(f1) if isfinite(f1) else None,
            balanced_accuracy=metrics.balanced_accuracy(counts),
            log_loss=log_loss,
        )

    def _of_numbers(self, scores: Tensor) -> Measures:
        errors = self._errors(scores, self.labels)
        labels = self.unit * self.labels.double().numpy()
        return Measures(
            rmse=metrics.rmse(errors), mae=metrics.mae(errors), r2=metrics.r2(errors, labels)
        )

    def _errors(self, scores: Tensor, labels: Tensor) -> NDArray[np.float64]:
        """In the unit of the table; what is no number any more counts as the worst."""
        errors = self.unit * (scores.double() - labels.double()).numpy()
        told: NDArray[Any] = np.nan_to_num(errors, nan=WORST, posinf=WORST, neginf=-WORST)
        return told


def rounds_between(*, test_records: int, train_records: int) -> int:
    """How often metrics are worth their time: as much of it as half the training, at most.

    Scoring a record costs about half of its gradient.
    """
    return max(1, ceil(test_records / max(1, train_records)))
