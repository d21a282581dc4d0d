"""Chunks: whole parties that one thread computes together, and their part of a sum.

A chunk's answers are computed party by party and rounded to the fixed-point integers of the real
protocol, which add up exactly and in any order. So a sum has the same bits whichever thread,
process or machine computes a chunk. Matrix products may round a row differently by its place in a
chunk; chunks then depend on the records alone (`extents` with `CHUNKS`).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.stack import stack_persons, unit_counts
from fedpriv.federation.party.training import Trainees
from fedpriv.federation.queries.bounds import summed_in_float64
from fedpriv.federation.queries.kinds import GradientQuery, LocalTrainingQuery
from fedpriv.learning.clipping.linear import in_one_pass
from fedpriv.learning.models import LinearModel
from fedpriv.learning.training.trainer import place_free as trained_place_free

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.engines.question import Question
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.secagg.numbers.fixed_point import Ring

CHUNK_BYTES = 1 << 24
"""Approximate maximum of feature bytes in a chunk: it bounds the memory for answers."""

CHUNKS = 4
"""The number of chunks of small data where the number of workers must not matter."""

_KEPT_SHARE = 0.5  # share of memory that mapped records may take before nothing else is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where the parties of a chunk are: ranges of all parties, records, and units of privacy."""

    parties: slice
    records: slice
    units: slice


def extents(data: PartitionedDataset, task: Task, *, least: int) -> list[Extent]:
    """All parties in at least ``least`` chunks, if there are as many; a large party is alone.

    Depends on the records and ``least`` only.
    """
    train, offsets = data.dataset.train, data.offsets
    units = np.concatenate([np.zeros(1, np.int64), np.cumsum(unit_counts(data, task))])
    share = min(CHUNK_BYTES, train.X.nbytes // least)
    most = max(1, -(-share // max(1, train.X[:1].nbytes)))
    found, first = [], 0
    while first < data.parties:
        last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = max(last, first + 1)
        found.append(
            Extent(
                parties=slice(first, last),
                records=slice(int(offsets[first]), int(offsets[last])),
                units=slice(int(units[first]), int(units[last])),
            )
        )
        first = last
    return found


def place_free(query: Query, task: Task) -> bool:
    """Whether no answer depends, to the bit, on which others are computed with it.

    Sums in float64 do not depend on it either, since each party is cut by its own records; they
    keep the chunks that follow from the records, which cost them nothing.
    """
    if isinstance(query, LocalTrainingQuery):
        return trained_place_free(task.model, task.loss)
    return (
        isinstance(query, GradientQuery)
        and query.centre is query.scale is None
        and isinstance(task.model, LinearModel)
        and task.model.classes == 1
        and in_one_pass(task.loss)
        and task.persons is None
        and not summed_in_float64(query, task)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Chunk:
    """The records of some parties, stacked.

    Attributes:
        parties: Which of all parties.
        units: Their records, or persons, as a range of all.
        bound_sizes: All sizes that occur among them.
        holdings: Computes their answers.
        trainees: Computes their answers after local training.
    """

    parties: slice
    units: slice
    bound_sizes: frozenset[int]
    task: Task
    holdings: Holdings
    trainees: Trainees

    @classmethod
    def open(cls, data: PartitionedDataset, task: Task, extent: Extent, *, apart: bool) -> Chunk:
        """Stack the records of an extent, checked against what the task states about them."""
        records, first = extent.records, extent.parties.start
        own = data.offsets[first : extent.parties.stop + 1] - records.start
        sizes = task.sizes[extent.parties]
        batch, persons = stack_persons(data.dataset.train.take(records), own, task)
        return cls(
            parties=extent.parties,
            units=extent.units,
            bound_sizes=frozenset(sizes),
            task=task,
            holdings=Holdings(task, batch, sizes=sizes, first=first, persons=persons),
            trainees=Trainees(task, batch, sizes=sizes, first=first, apart=apart),
        )

    def answer(self, question: Question) -> tuple[Ring, Counter[str]]:
        """Σ over the parties of their quantised answers, and what a simulation counts."""
        own = question.of(self.parties, self.units)
        if isinstance(own.query, LocalTrainingQuery):
            ring, counts = self.trainees.answer(own.query, own.answering)
            return ring, Counter(counts)
        answers = self.holdings.answer(own.query, own.draws)
        bound = max(own.query.answer_bound(self.task, size) for size in self.bound_sizes)
        vectors = answers.vectors if own.answering is None else answers.vectors[own.answering]
        return own.query.grid.encode_sum(vectors, bound=bound), Counter(answers.counts)


class Chunks:
    """Some chunks, opened on their first query, and kept for the next round.

    Records mapped from a disk stay there, but what is computed from them once, norms and Gram
    matrices, can be as large as they are. Where that would not fit in memory, a chunk is opened for
    every query and then closed: slower, with the same bits.

    Args:
        data: The records of all parties.
        task: The public facts.
        chosen: Which chunks.
        apart: See `VectorizedFederation`.
        keep: Whether opened chunks stay in memory.
    """

    def __init__(
        self,
        data: PartitionedDataset,
        task: Task,
        chosen: Sequence[Extent],
        *,
        apart: bool,
        keep: bool = True,
    ) -> None:
        self._data, self._task, self._apart, self._keep = data, task, apart, keep
        self._extents = tuple(chosen)
        self._kept: dict[int, Chunk] = {}

    def __len__(self) -> int:
        return len(self._extents)

    def __getitem__(self, index: int) -> Chunk:
        """The chunk with this index among these."""
        return self._kept.get(index) or self._opened(range(len(self))[index])

    def __iter__(self) -> Iterator[Chunk]:
        return (self[index] for index in range(len(self)))

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Where they are."""
        return self._extents

    def add_up(self, question: Question) -> tuple[Ring, Counter[str]]:
        """Σ over all of these chunks, in the query's ring, and what a simulation counts."""
        total = np.zeros(question.query.answer_width(self._task), question.query.grid.dtype)
        counts: Counter[str] = Counter()
        for index in range(len(self)):
            chunk = self[index]
            ring, more = chunk.answer(question)
            total += ring
            counts.update(more)
            # A party keeps its control variates from earlier rounds: they must not be lost.
            if self._keep or _remembered(question.query):
                self._kept[index] = chunk
        return total, counts

    def _opened(self, index: int) -> Chunk:
        return Chunk.open(self._data, self._task, self._extents[index], apart=self._apart)


def fits_in_memory(data: PartitionedDataset, *, share: float = 1.0) -> bool:
    """Whether to keep what is computed from records: not if mapped records nearly fill memory.

    Args:
        data: The records of all parties.
        share: The fraction of them that this machine computes.
    """
    if not data.mapped:
        return True
    return data.dataset.train.X.nbytes * share <= _KEPT_SHARE * memory_bytes()


def memory_bytes() -> int:
    """The memory of this machine, or of the container that this process runs in."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text().strip()
    except OSError:
        return whole
    return min(whole, int(text)) if text.isdigit() else whole


def _remembered(query: Query) -> bool:
    return isinstance(query, LocalTrainingQuery) and query.control is not None
