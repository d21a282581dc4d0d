"""Counts of right and wrong answers, party by party: for a private evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv.learning.classes import classes_of

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.federation.queries.kinds import AccuracyQuery
    from fedpriv.federation.task import Task
    from fedpriv.learning.batch import RecordBatch


def right_or_wrong(query: AccuracyQuery, task: Task, batch: RecordBatch) -> Tensor:
    """For every record (1, 0) if the model is right about it, else (0, 1): int64 (n, 2).

    It follows from the record and the model alone: every score is one dot product, by the same
    instructions wherever the record stands. A score that is no number is of the first class, or
    the negative one.
    """
    from fedpriv.learning.row_scores import row_scores  # it loads a compiler

    points = torch.tensor(query.theta).reshape(-1, task.model.features)
    scores = row_scores(batch.features, points)
    scores = scores[:, 0] if task.loss.outputs == 1 else scores.nan_to_num(nan=-torch.inf)
    right = classes_of(scores, task.loss) == batch.labels
    return torch.stack([right, ~right], dim=1).to(torch.int64)
