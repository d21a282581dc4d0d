"""A party's sums for a `StatisticsQuery`: exact integers, then the weights of the design.

First, numbers are rounded to 2⁻¹⁶ of half their range. Where a person's m records are averaged,
each counts floor(2¹²/m)/2¹², so that together they count at most 1. From there on all arithmetic is
in integers, exact in any order: a record's contribution depends on that record alone. Records are
read once, some thousands at a time and column by column; there is no Python loop over them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.table_task import TableTask
from fedpriv.privacy.planning.statistics.statistics_blocks import (
    MEAN_RATIO,
    Block,
    complete_ratio,
    mean_ratio,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fedpriv.federation.queries.statistics import StatisticsQuery
    from fedpriv.federation.task import Task
    from fedpriv.learning.batch import RecordBatch
    from fedpriv.learning.clipping.persons import PersonGroups
    from fedpriv.privacy.planning.statistics.statistics_design import Design

    Numbers = NDArray[np.float64]

_PIECE = 1 << 14  # records at a time: sums of so many are below 2⁵³, hence exact in float64
_FINE, _COARSE = 16, 13  # bits of a number; the latter where records of a person are averaged
_SHARE = 12  # bits of the share of a record in a person's average
_LOW = 53  # bits of the lower part of a sum


def shares_of_records(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The weight of each record in units of 2⁻¹², for persons with these numbers of records."""
    return np.repeat((1 << _SHARE) // np.maximum(sizes, 1), sizes)


def table_sums(
    query: StatisticsQuery, task: Task, batch: RecordBatch, persons: PersonGroups | None
) -> Numbers:
    """The answer of every party to a query, (m, width)."""
    if not isinstance(task, TableTask):
        raise TypeError("statistics must be of a table.")
    averaged = persons if query.per_person == "mean" else None
    return party_statistics(
        query.design,
        batch.features.numpy(),
        batch.segments.offsets.tolist(),
        categories=[len(column.values) for column in task.columns],
        shares=None if averaged is None else shares_of_records(averaged.sizes),
    )


def side_by_side(answers: Numbers, *, first: int, parties: int) -> Numbers:
    """Each party's answer in the part of that party, and zeros in all others, (m, parties·width).

    >>> side_by_side(np.array([[1.0, 2.0]]), first=1, parties=3)
    array([[0., 0., 1., 2., 0., 0.]])
    """
    count, width = answers.shape
    wide = np.zeros((count, parties, width))
    rows = np.arange(count)
    wide[rows, first + rows] = answers
    return wide.reshape(count, -1)


def party_statistics(
    design: Design,
    codes: NDArray[np.float32],
    bounds: Sequence[int],
    *,
    categories: Sequence[int],
    shares: NDArray[np.int64] | None = None,
) -> Numbers:
    """One row per party: the sums of its records, float64 (m, width).

    Args:
        design: What to sum.
        codes: The columns, (n, c).
        bounds: Party j has the records bounds[j] to bounds[j + 1].
        categories: By column the number of declared values; 0 for a number.
        shares: By record, if a person's records are averaged: `shares_of_records`.
    """
    parts = [_Counter(block, categories, shared=shares is not None) for block in design.blocks]
    answers = np.zeros((len(bounds) - 1, design.width))
    used = sorted({column for block in design.blocks for column in block.columns})
    place = {column: row for row, column in enumerate(used)}
    for party, (first, last) in enumerate(itertools.pairwise(bounds)):
        totals = [_Total(part.block.width) for part in parts]
        for start in range(first, last, _PIECE):
            rows = slice(start, min(start + _PIECE, last))
            piece = np.ascontiguousarray(codes[rows][:, used].T)
            share = None if shares is None else shares[rows].astype(np.float64)
            for index, part in enumerate(parts):
                columns = [piece[place[column]] for column in part.block.columns]
                totals[index].add(part.count(columns, share, rows.stop - rows.start))
        answers[party] = np.concatenate(
            [part.weighed(total.rounded()) for part, total in zip(parts, totals, strict=True)]
        )
    return answers


class _Total:
    """Sums of any number of integers below 2⁵³: squares of many records can exceed 2⁶³."""

    def __init__(self, width: int) -> None:
        self._low, self._high = np.zeros(width, np.int64), np.zeros(width, np.int64)

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Add one number to each; the lower part stays below 2⁵³, and is not negative."""
        self._low += numbers
        self._high += self._low >> _LOW
        self._low &= (1 << _LOW) - 1

    def rounded(self) -> Numbers:
        """Each sum in float64, rounded once: both parts, and the product, are exact."""
        return np.asarray(self._high * 2.0**_LOW + self._low, np.float64)


class _Counter:
    """Counts one block, in integers."""

    def __init__(self, block: Block, categories: Sequence[int], *, shared: bool) -> None:
        self.block = block
        self._values = [categories[column] for column in block.columns]
        self._bits = _COARSE if shared else _FINE
        self._share = 2.0**-_SHARE if shared else 1.0
        self._edges = np.array(block.edges, np.float32)
        kinds: dict[str, Callable[..., Numbers]] = {
            "total": self._total,
            "missing": self._missing,
            "moments": self._moments,
            "histogram": self._histogram,
            "tree": self._tree,
            "covariance": self._covariance,
            "table": self._table,
            "survival": self._survival,
        }
        self._sums = kinds[block.kind]

    def count(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, records: int
    ) -> NDArray[np.int64]:
        """Sums over some records; whole numbers, below 2⁵³."""
        return self._sums(columns, share, records).astype(np.int64)

    def weighed(self, total: Numbers) -> Numbers:
        """What the party answers."""
        unit, d = 2.0**-self._bits, len(self.block.columns)
        scale = np.full(len(total), self.block.weight * self._share)
        if self.block.kind == "moments":
            scale *= (MEAN_RATIO * unit, unit**2)
        if self.block.kind == "covariance":
            rows, columns = np.triu_indices(d)
            scale[0] *= complete_ratio(d)
            scale[1 : 1 + d] *= mean_ratio(d) * unit
            scale[1 + d :] *= np.where(rows == columns, 1.0, np.sqrt(2.0)) * unit**2
        return np.asarray(total * scale)

    def _total(self, _columns: object, share: Numbers | None, records: int) -> Numbers:
        return np.array([records if share is None else share.sum()], np.float64)

    def _missing(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        absent = columns[0] > 1
        return np.array(
            [np.count_nonzero(absent) if share is None else share[absent].sum()], np.float64
        )

    def _moments(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        x = self._rounded(columns[0])
        weighted = x if share is None else x * share
        # Not by BLAS, whose threads cost more than they save on so few numbers.
        return np.array([weighted.sum(), np.einsum("i,i->", weighted, x)])

    def _rounded(self, column: NDArray[np.float32]) -> Numbers:
        """In units of 2⁻ᵇ; 0, the middle of the range, where a number is missing."""
        scaled = np.rint(column * np.float32(1 << self._bits))
        scaled[column > 1] = 0
        return np.asarray(scaled, np.float64)

    def _cells(self, index: NDArray[np.integer], cells: int, share: Numbers | None) -> Numbers:
        """How often each cell occurs; an extra cell takes values outside all others."""
        return np.bincount(index, share, minlength=cells + 1)[:cells].astype(np.float64)

    def _histogram(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        column, cells = columns[0], self.block.cells[0]
        if self._values[0]:
            return self._cells(column.astype(np.intp), cells, share)
        index = np.searchsorted(self._edges, column, side="right")
        index[column > 1] = cells
        return self._cells(index, cells, share)

    def _tree(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        column, leaves = columns[0], self.block.cells[0]
        index = ((column + np.float32(1)) * np.float32(leaves / 2)).astype(np.intp)
        np.minimum(index, leaves - 1, out=index)
        index[column > 1] = leaves
        level = self._cells(index, leaves, share)
        levels = []
        while len(level) > 1:
            levels.append(level)
            level = level[::2] + level[1::2]
        return np.concatenate(levels[::-1])

    def _covariance(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        complete = np.all([column <= 1 for column in columns], axis=0)
        x = np.stack([self._rounded(column) for column in columns]) * complete
        weights = complete.astype(np.float64) if share is None else share * complete
        weighted = x if share is None else x * share
        products = weighted @ x.T
        return np.concatenate(
            [[weights.sum()], weighted.sum(axis=1), products[np.triu_indices(len(columns))]]
        )

    def _table(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        rows, wide = self.block.cells
        first, second = (column.astype(np.intp) for column in columns)
        index = np.where((first < rows) & (second < wide), first * wide + second, rows * wide)
        return self._cells(index, rows * wide, share)

    def _survival(
        self, columns: list[NDArray[np.float32]], share: Numbers | None, _records: int
    ) -> Numbers:
        time, seen, *groups = columns
        intervals, count = self.block.cells
        index = np.searchsorted(self._edges, time, side="right")
        complete = (time <= 1) & (seen < self._values[1])
        if groups:
            index += groups[0].astype(np.intp) * intervals
            complete &= groups[0] < count
        index = 2 * index + (seen == self.block.event)
        last = 2 * intervals * count
        return self._cells(np.where(complete, index, last), last + 1, share)
