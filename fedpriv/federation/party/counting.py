"""Sums of integers, party by party and person by person: counts of answers, and losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fedpriv.learning.classes import classes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.federation.queries.kinds import AccuracyQuery
    from fedpriv.federation.task import Task
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.persons import PersonGroups


def right_or_wrong(query: AccuracyQuery, task: Task, batch: RecordBatch) -> Tensor:
    """For every record (1, 0) if the model is right about it, else (0, 1): int64 (n, 2).

    The result depends on the record and the model alone: every score is one dot product, by the
    same instructions whatever the record's position. A NaN score counts as the first class, or the
    negative one.
    """
    from fedpriv.learning.row_scores import row_scores  # it loads a compiler

    points = torch.tensor(query.theta).reshape(-1, task.model.features)
    scores = row_scores(batch.features, points)
    scores = scores[:, 0] if task.loss.outputs == 1 else scores.nan_to_num(nan=-torch.inf)
    right = classes_of(scores, task.loss) == batch.labels
    return torch.stack([right, ~right], dim=1).to(torch.int64)


class PersonTotals:
    """Integers of records, given in their order, added up by person; exact."""

    def __init__(self, persons: PersonGroups, width: int) -> None:
        self._parties = torch.from_numpy(persons.parties)
        self._owner = torch.arange(len(persons)).repeat_interleave(torch.from_numpy(persons.sizes))
        self._totals = torch.zeros((len(persons), width), dtype=torch.int64)
        self._done = 0

    def add(self, values: Tensor) -> None:
        """Add the integers of the next records."""
        rows = slice(self._done, self._done + len(values))
        self._totals.index_add_(0, self._owner[rows], values)
        self._done += len(values)

    def sums(self, *, most: int) -> NDArray[np.int64]:
        """The sum over each party's persons, each capped at ``most``."""
        return party_sums(self._totals.clamp(max=most), self._parties)


def party_sums(values: Tensor, offsets: Tensor) -> NDArray[np.int64]:
    """The sum over each party's records, of integers: exact, in any order."""
    total = torch.cat([values.new_zeros((1, *values.shape[1:])), values.cumsum(0)])
    return total[offsets].diff(dim=0).numpy()
