"""Chunks: whole parties that one thread computes together, and what they add to a sum.

A chunk's answers are computed party by party and rounded to the fixed-point integers of the real
protocol, which add up exactly and in any order. So a sum has the same bits whoever computes which
chunk: another thread, another process, another machine. Matrix products may round a row by its
place in a chunk; then chunks follow from the records alone (`extents` with `CHUNKS`).
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
"""Most bytes of features in a chunk, about: it bounds the memory for answers."""

CHUNKS = 4
"""Into how many chunks small data are cut where workers must not matter."""

_KEPT_SHARE = 0.5  # of the memory that mapped records may have before nothing is kept beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where the parties of a chunk are: ranges of all parties, records, and units of privacy."""

    parties: slice
    records: slice
    units: slice


def extents(data: PartitionedDataset, task: Task, *, least: int) -> list[Extent]:
    """All parties in at least so many chunks, if there are as many parties; a large one is alone.

    A function of the records and of ``least``.
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
    """Whether no answer depends on which others are computed with it, to the bit.

    Sums in float64 do not either, since each party is cut by its own records; they keep the chunks
    that follow from the records, which cost them nothing.
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
        holdings: What they answer.
        trainees: What they answer after local training.
    """

    parties: slice
    units: slice
    bound_sizes: frozenset[int]
    task: Task
    holdings: Holdings
    trainees: Trainees

    @classmethod
    def open(cls, data: PartitionedDataset, task: Task, extent: Extent, *, apart: bool) -> Chunk:
        """Stack the records of an extent, checked against what the task promises of them."""
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
    """Some chunks, opened when they are first asked, and kept for the next round.

    Records that are mapped from a disk stay there, and what is computed from them once, norms and
    Gram matrices, can be as large as they are. Where that would not fit the memory, a chunk is
    opened for every question and let go: slower, with the same bits.

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
            # Control variates are what a party has kept of earlier rounds: they are not lost.
            if self._keep or _remembered(question.query):
                self._kept[index] = chunk
        return total, counts

    def _opened(self, index: int) -> Chunk:
        return Chunk.open(self._data, self._task, self._extents[index], apart=self._apart)


def fits_in_memory(data: PartitionedDataset, *, share: float = 1.0) -> bool:
    """Whether to keep what is computed from records: not of mapped ones as large as the memory.

    Args:
        data: The records of all parties.
        share: Of them, how much this machine computes.
    """
    if not data.mapped:
        return True
    return data.dataset.train.X.nbytes * share <= _KEPT_SHARE * memory_bytes()


def memory_bytes() -> int:
    """The memory of this machine, or of the container that this process is in."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text().strip()
    except OSError:
        return whole
    return min(whole, int(text)) if text.isdigit() else whole


def _remembered(query: Query) -> bool:
    return isinstance(query, LocalTrainingQuery) and query.control is not None
