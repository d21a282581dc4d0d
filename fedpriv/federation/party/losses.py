"""Clipped losses of parties at several points: what a `LossQuery` asks of their records.

Every loss is rounded down to the grid and added as an integer. So a sum is exact, and the
contribution of a record, or a person, depends on that record or person alone.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedpriv.federation.party.counting import PersonTotals, party_sums
from fedpriv.learning.clipping.dense import filled_values
from fedpriv.learning.models import LinearModel

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.federation.queries.kinds import LossQuery
    from fedpriv.federation.task import Task
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.persons import PersonGroups

_NUMBERS = 1 << 21  # losses at a time
_TOTALS = 1 << 24  # persons × points at a time: a server chooses the number of points


def clipped_loss_sums(
    query: LossQuery, task: Task, batch: RecordBatch, persons: PersonGroups | None
) -> NDArray[np.float64]:
    """The answer of every party, (m, k)."""
    points = torch.tensor(query.points)
    width = len(points) if persons is None else _TOTALS // (len(persons) + 1) + 1
    sums = [
        _sums(query, task, points[first : first + width], batch, persons)
        for first in range(0, len(points), width)
    ]
    return np.concatenate(sums, axis=1) * np.float64(query.grid.step)


def _sums(
    query: LossQuery,
    task: Task,
    points: Tensor,
    batch: RecordBatch,
    persons: PersonGroups | None,
) -> NDArray[np.int64]:
    """In steps of the grid, at some of the points."""
    step = query.grid.step
    sums = np.zeros((batch.parties, len(points)), np.int64)
    whose = None if persons is None else PersonTotals(persons, len(points))
    for parties, part in batch.parts(_NUMBERS // len(points) + 1):
        losses = _losses(task, points, part).double().nan_to_num(nan=query.clip)
        levels = (losses.clamp(0, query.clip) / step).floor().to(torch.int64)
        if whose is None:
            sums[parties] += party_sums(levels, part.segments.offsets)
        else:
            whose.add(levels)
    return sums if whose is None else whose.sums(most=floor(query.clip / step))


def _losses(task: Task, points: Tensor, batch: RecordBatch) -> Tensor:
    """The loss of every record at every point, (n, k)."""
    model, loss = task.model, task.loss
    if isinstance(model, LinearModel):  # one pass for all points
        from fedpriv.learning.row_scores import row_scores  # it loads a compiler

        scores = row_scores(batch.features, points.reshape(-1, model.width))
        labels = batch.labels[:, None].expand(-1, len(points))
        if model.classes > 1:
            scores = scores.reshape(len(scores), len(points), model.classes)
        losses = filled_values(loss, scores.flatten(0, 1), labels.flatten())
        return losses.view(labels.shape)
    columns = [
        filled_values(loss, model.scores(point, batch.features), batch.labels) for point in points
    ]
    return torch.stack(columns, dim=1)
