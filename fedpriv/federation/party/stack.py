"""Stacked records as tensors, checked once against what the task promises about them."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.learning.batch import RecordBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data import Records
    from fedpriv.federation.task import Task

_SLACK = 1 + 2.0**-40  # rounding of a float64 norm


def stack(records: Records, offsets: NDArray[np.int64], task: Task) -> RecordBatch:
    """Records of one or many parties, sharing the data's memory.

    Raises:
        ValueError: If a record breaks a promise of the task. Which one is not said.
    """
    features, labels = from_dlpack(records.X), from_dlpack(records.y)
    if features.shape[1] != task.model.features:
        raise ValueError(
            f"records must have {task.model.features} features, as the model, "
            f"got {features.shape[1]}."
        )
    task.loss.check_labels(labels)
    if not _longest(records.X) <= task.feature_bound * _SLACK:
        raise ValueError(
            f"records must have ‖x‖₂ ≤ feature_bound = {task.feature_bound:g}, intercept included. "
            "Enforce it with fedpriv.data.bound."
        )
    return RecordBatch(features=features, labels=labels, offsets=torch.tensor(offsets))


def _longest(X: NDArray[np.float32]) -> float:
    """The largest row norm, in float64, 0 of none; einsum makes no float64 copy of the records."""
    return sqrt(float(np.einsum("ij,ij->i", X, X, dtype=np.float64).max(initial=0.0)))
