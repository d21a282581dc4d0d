"""Metrics from scores and labels: AUC, F1, balanced accuracy; RMSE, MAE, R².

Each is defined as in scikit-learn, which the tests compare with. None where it is not defined: an
AUC of one class, an R² of labels that are all alike. Accuracy and loss are in `evaluation`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """All metrics of one model on the test records; None where there is no such metric.

    Attributes:
        auc: Area under the ROC curve; of several classes, the mean of each against all others.
        f1: Of the positive class; of several, the mean over those that occur or are named.
        balanced_accuracy: The mean over the classes of the share that is classified correctly.
        log_loss: Mean of −ln of the probability of the true class; for logistic and softmax losses.
        rmse: Root mean square error, in the unit of the label as the table has it.
        mae: Mean absolute error, in the same unit.
        r2: Share of the variance that is explained.
    """

    auc: float | None = None
    f1: float | None = None
    balanced_accuracy: float | None = None
    log_loss: float | None = None
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None


MEASURES = tuple(field.name for field in fields(Measures))


def auc(scores: Vector, positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a positive record scores above a negative one.

    By ranks (Mann and Whitney 1947): (Σ ranks of positives − p(p + 1)/2)/(p·n), ties at their mean
    rank. None without both classes, and for scores that are no numbers.
    """
    positives = int(np.count_nonzero(positive))
    negatives = len(positive) - positives
    if not positives or not negatives or np.isnan(scores).any():
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts, dtype=np.float64)
    ranks = (ends - (counts - 1) / 2)[place]  # of equal scores: the mean of their places
    above = float(ranks[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def macro_auc(scores: Vector, labels: NDArray[np.int64]) -> float | None:
    """The mean AUC of each class against all others, over the classes for which there is one.

    Args:
        scores: (n, classes), comparable from record to record: probabilities.
        labels: Indices of classes, (n,).
    """
    found = [auc(scores[:, k], labels == k) for k in range(scores.shape[1])]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


def confusion(named: NDArray[Any], labels: NDArray[Any], *, classes: int) -> NDArray[np.int64]:
    """How many records of each class (rows) were named as each class (columns), by index."""
    flat = labels.astype(np.int64) * classes + named.astype(np.int64)
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def f1(counts: NDArray[np.int64]) -> Vector:
    """F1 of every class of a confusion matrix, 2·tp/(2·tp + fp + fn); 0 where nothing is right.

    NaN for a class that neither occurs nor is named.
    """
    occurs = counts.sum(axis=1) + counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        values: Vector = 2 * counts.diagonal() / occurs
    return values


def balanced_accuracy(counts: NDArray[np.int64]) -> float:
    """The mean recall over the classes that occur: what guessing one class gets is 1/classes."""
    there = counts.sum(axis=1) > 0
    recalls = counts.diagonal()[there] / counts.sum(axis=1)[there]
    return float(recalls.mean())


def rmse(errors: Vector) -> float:
    """Root mean square of prediction errors."""
    return float(np.sqrt(np.mean(np.square(errors))))


def mae(errors: Vector) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(errors)))


def r2(errors: Vector, labels: Vector) -> float | None:
    """Coefficient of determination: 1 − Σ e²/Σ (y − ȳ)²; 0 is as good as always naming the mean."""
    spread = float(np.square(labels - labels.mean()).sum())
    return 1 - float(np.square(errors).sum()) / spread if spread else None
