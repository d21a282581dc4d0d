"""The `vectorized` engine: all parties in one process, and the ideal functionality of a secure sum.

Parties are grouped into chunks of whole parties (`chunks`): memory stays bounded, and threads share
the chunks, each with single-threaded kernels. Their sums are integers, and do not depend on the
number of threads. Records may be mapped from a store on disk, and then exceed memory.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count
from fedpriv.federation.engines import chunks
from fedpriv.federation.engines.chunks import Chunks, extents, fits_in_memory, place_free
from fedpriv.federation.engines.ideal import IdealFederation
from fedpriv.learning.crew import Crew, processors

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.engines.dropouts import Dropouts
    from fedpriv.federation.engines.question import Question
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.secagg.numbers.fixed_point import Ring


class VectorizedFederation(IdealFederation):
    """The vectorized federation: thousands of parties in one process.

    Guarantee. The sum is the sum that the real protocol yields on the same answers, to the bit;
    two runs agree to the bit on one machine, whatever ``workers`` is.

    >>> from fedpriv.simulations.experiment.file import parse_experiment
    >>> from fedpriv.simulations.run.prepare import build_strategy, prepare
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> prepared = prepare(parse_experiment(study))
    >>> strategy = build_strategy(prepared, run="example")
    >>> from fedpriv.privacy.randomness import RandomStream
    >>> federation = VectorizedFederation(
    ...     prepared.data,
    ...     task=prepared.task,
    ...     sampling=lambda number: RandomStream.seeded(0, "sampling", number),
    ... )
    >>> federation.sum(strategy.ask())
    Sum(11 coordinates of 20 parties)

    Args:
        data: The records, sorted by party; a party may hold more or fewer than its size says.
        task: The public facts; checked against the records.
        sampling: The stream from which the parties draw in a round: their Poisson samples, or noise
            of their own.
        workers: Threads; None for one per processor.
        dropouts: Who does not answer in which round; None if everybody always does.
        first_round: The round of the drop-outs that the first sum is in.
        apart: Whether every party trains alone, in strategies with local training: slower, but a
            party's answer then depends on no other's records, to the last bit. Releases need it.
    """

    def __init__(
        self,
        data: PartitionedDataset,
        *,
        task: Task,
        sampling: Callable[[int], RandomStream],
        workers: int | None = None,
        dropouts: Dropouts | None = None,
        first_round: int = 0,
        apart: bool = False,
    ) -> None:
        super().__init__(
            data, task=task, sampling=sampling, dropouts=dropouts, first_round=first_round
        )
        self._apart = apart
        count = workers or processors()
        require_count(workers=count)
        self._crew = Crew(count)

    def _add_up(self, question: Question) -> tuple[Ring, Counter[str]]:
        query = question.query
        total = np.zeros(query.answer_width(self._task), query.grid.dtype)
        counts: Counter[str] = Counter()
        for ring, more in self._crew.each(partial(_sum, question), self._stripes(query)):
            total += ring
            counts.update(more)
        return total, counts

    def _stripes(self, query: Query) -> list[Chunks]:
        """The chunks of every worker."""
        return self._even if place_free(query, self._task) else self._fixed

    @cached_property
    def _even(self) -> list[Chunks]:
        """As few chunks as the workers need, equally many for each: none waits long."""
        size, whole = self._crew.size, self._data.dataset.train.X.nbytes
        return self._dealt(size * max(1, -(-whole // (chunks.CHUNK_BYTES * size))))

    @cached_property
    def _fixed(self) -> list[Chunks]:
        """The same chunks for any number of workers."""
        return self._dealt(chunks.CHUNKS)

    def _dealt(self, least: int) -> list[Chunks]:
        """At least so many chunks, if there are as many parties; each worker gets every n-th."""
        data, task, count = self._data, self._task, self._crew.size
        cut, keep = extents(data, task, least=least), fits_in_memory(data)
        return [
            Chunks(data, task, cut[first::count], apart=self._apart, keep=keep)
            for first in range(min(count, len(cut)))
        ]


def _sum(question: Question, own: Chunks) -> tuple[Ring, Counter[str]]:
    return own.add_up(question)
