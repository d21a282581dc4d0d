"""Second moments of parties: what a `MomentsQuery` asks of their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from fedpriv.learning.clipping.dense import ROWS, filled
from fedpriv.learning.moments import moment_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.federation.queries.moments import MomentsQuery
    from fedpriv.federation.task import Task
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.persons import PersonGroups

# Weights at a time: fewer numbers than PyTorch shares between threads, whose shares would end at
# other records in another batch.
_AT_ONCE = 64 * ROWS


def second_moments(
    query: MomentsQuery, task: Task, batch: RecordBatch, persons: PersonGroups | None
) -> NDArray[np.float64]:
    """The answer of every party, (m, width): each number follows from exact sums of integers.

    A record's contribution depends on that record and the query alone and, for persons, on how many
    records that person has there. A NaN label counts as zero, and so does a NaN weight.
    """
    last = None
    if query.label_scale is not None and query.label_bound is not None:
        labels = batch.labels.numpy().astype(np.float64)
        clipped = np.nan_to_num(labels).clip(-query.label_bound, query.label_bound)
        # A record without usable features adds nothing.
        last = np.where(batch.squares.isinf().numpy(), 0.0, clipped * query.label_scale)
    factors = None
    if query.theta is not None:
        factors = np.sqrt(_weights(query.theta, batch))
    if persons is not None:
        alone = 1 / np.sqrt(np.repeat(persons.sizes, persons.sizes))
        factors = alone if factors is None else factors * alone
    return moment_sums(
        batch.features.numpy(),
        batch.segments.offsets.numpy(),
        radius=query.radius(task),
        last=last,
        factors=factors,
    )


def _weights(theta: NDArray[np.float64], batch: RecordBatch) -> NDArray[np.float64]:
    """p(1 − p) of every record, by the same instructions whatever its position."""
    from fedpriv.learning.row_scores import row_scores  # it loads a compiler

    with np.errstate(over="ignore"):  # a NaN score has no weight
        point = theta.astype(batch.features.numpy().dtype)
    scores = row_scores(batch.features, torch.from_numpy(point)[None])[:, 0].double()
    weights = np.zeros(len(scores))
    for first in range(0, len(scores), _AT_ONCE):
        piece = scores[first : first + _AT_ONCE]
        weights[first : first + _AT_ONCE] = filled(_variance, piece, piece).nan_to_num(nan=0.0)
    return weights


def _variance(scores: Tensor, _labels: Tensor) -> Tensor:
    return scores.sigmoid() * (-scores).sigmoid()
