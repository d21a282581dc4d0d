"""Shard: consecutive chunks of parties that one worker process holds, and their part of a sum.

A worker opens its records itself, from a store on its disk; no record is ever sent to it. It knows
its place among the workers, and all cut the parties by the same rule (`parts`), so that they agree
on who computes whom.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.engines import chunks
from fedpriv.federation.engines.chunks import Chunks, Extent, extents, fits_in_memory, place_free
from fedpriv.federation.engines.question import Question
from fedpriv.learning.crew import Crew, keep_to_own_processors

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.party.draws import Draws
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.secagg.numbers.fixed_point import Ring

    Opening = Callable[[], tuple[PartitionedDataset, Task]]
    """How a worker opens records and task, on its own machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a worker among all.

    Attributes:
        index: Which worker, from 0.
        workers: The number of workers.
        beside: About how many share its machine, itself included.
    """

    index: int
    workers: int
    beside: int = 1


def parts(
    data: PartitionedDataset, task: Task, *, workers: int, anywhere: bool
) -> list[tuple[Extent, ...]]:
    """The chunks of every worker: consecutive, with about equally many records each.

    The chunks are the same for any number of workers, unless an answer is the same ``anywhere``:
    then there are enough for all. With fewer chunks than workers, some get none.
    """
    least = max(workers, chunks.CHUNKS) if anywhere else chunks.CHUNKS
    cut = extents(data, task, least=least)
    middles = np.array([(extent.records.start + extent.records.stop) / 2 for extent in cut])
    whole = max(1, cut[-1].records.stop)
    owner = np.minimum((middles * workers / whole).astype(np.int64), workers - 1)
    edges = np.searchsorted(owner, np.arange(workers + 1)).tolist()
    return [tuple(cut[first:last]) for first, last in pairwise(edges)]


class Shard:
    """The parties of one worker, in its process.

    Args:
        opening: Opens records and task.
        place: Which worker it is.
        apart: See `VectorizedFederation`.
    """

    def __init__(self, opening: Opening, place: Place, *, apart: bool) -> None:
        self._opening, self._place, self._apart = opening, place, apart
        self._crew = Crew(1)
        if 1 < place.workers == place.beside:  # all of them on one machine
            keep_to_own_processors(place.index, place.workers)

    def ready(self) -> tuple[str, int]:
        """Open the records; returns the machine and the process that have them."""
        _ = self._held
        return socket.gethostname(), os.getpid()

    def answer(
        self, query: Query, draws: Draws, answering: np.ndarray | None, first: tuple[int, int]
    ) -> tuple[Ring, Counter[str]]:
        """This worker's part of the sum, and the simulation's counters; see `Question`."""
        question = Question(
            query=query,
            draws=draws,
            answering=answering,
            first_party=first[0],
            first_unit=first[1],
        )
        own = self._even if place_free(query, self._held[1]) else self._fixed
        return self._crew.each(own.add_up, [question])[0]

    @cached_property
    def _held(self) -> tuple[PartitionedDataset, Task]:
        return self._opening()

    @cached_property
    def _even(self) -> Chunks:
        return self._part(anywhere=True)

    @cached_property
    def _fixed(self) -> Chunks:
        return self._part(anywhere=False)

    def _part(self, *, anywhere: bool) -> Chunks:
        (data, task), place = self._held, self._place
        own = parts(data, task, workers=place.workers, anywhere=anywhere)[place.index]
        keep = fits_in_memory(data, share=place.beside / place.workers)
        return Chunks(data, task, own, apart=self._apart, keep=keep)
