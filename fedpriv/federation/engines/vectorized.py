"""The `vectorized` engine: all parties in one process, and the ideal functionality of a secure sum.

Parties are cut into chunks of whole parties: memory stays bounded, and workers share them. A chunk
is computed by one thread with single-threaded kernels: its answers, party by party, rounded to the
same fixed-point integers as in the real protocol. Integers add up exactly and in any order. So the
sum has the same bits whatever the number of workers: matrix products may round a row by its place
in a chunk, but then chunks follow from the records alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from fedpriv._validate import require_count
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import draw, draw_local_noise
from fedpriv.federation.party.guard import Policy, check_query
from fedpriv.federation.party.stack import stack_persons, unit_counts
from fedpriv.federation.party.training import Trainees, coins
from fedpriv.federation.queries.bounds import require_minimum, summed_in_float64
from fedpriv.federation.queries.kinds import GradientQuery, LocalTrainingQuery
from fedpriv.learning.clipping.linear import in_one_pass
from fedpriv.learning.crew import Crew, processors
from fedpriv.learning.models import LinearModel
from fedpriv.learning.training.trainer import place_free

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.engines.dropouts import Dropouts
    from fedpriv.federation.party.draws import Draws
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.secagg.numbers.fixed_point import Ring

CHUNK_BYTES = 1 << 24
"""Most bytes of features in a chunk, about: it bounds the memory for answers."""

CHUNKS = 4
"""Into how many chunks small data are cut where workers must not matter."""

_SIMULATION = Policy(unpaid=True, colluding=0.0)  # the plan says how many may collude


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Chunk:
    """Parties ``parties`` with their ``units``, records or persons, both as ranges of the whole.

    ``sizes`` are all that occur among the parties.
    """

    parties: slice
    units: slice
    sizes: frozenset[int]
    holdings: Holdings
    trainees: Trainees


class VectorizedFederation:
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
        workers: Threads; None for one a processor.
        dropouts: Who does not answer in which round; None if everybody always does.
        first_round: Which round of the drop-outs the first sum is.
        apart: Whether every party trains alone, where parties train at all: slower, and what one
            answers then depends on the records of no other, to the last bit. A release needs it.
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
        if data.parties != task.parties:
            raise ValueError(
                f"data must have the {task.parties} parties of the task, got {data.parties}."
            )
        self._data = data
        self._task = task
        self._sampling = sampling
        self._dropouts = dropouts
        self._next_round = first_round
        self._apart = apart
        count = workers or processors()
        require_count(workers=count)
        self._crew = Crew(count)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The public number of records of every party."""
        return self._task.sizes

    def sum(self, query: Query) -> Sum:
        """The sum of all parties' answers, but for drop-outs, in the query's ring."""
        task, grid = self._task, query.grid
        check_query(query, task, _SIMULATION)
        present = self._present()
        sizes = task.sizes if present is None else tuple(compress(task.sizes, present))
        require_minimum(query, len(sizes))
        stream = self._sampling(query.round)
        answer = self._answering(query, stream, present)
        total = np.zeros(query.answer_width(task), grid.dtype)
        counts: Counter[str] = Counter()
        for ring, more in self._crew.each(partial(_add_up, answer), self._stripes(query)):
            total += ring
            counts.update(more)
        noise = draw_local_noise(query, task, sizes, stream)
        if noise is not None:
            total += noise.astype(grid.dtype)
        return Sum(
            total=grid.decode(total),
            step=grid.step,
            sizes=sizes,
            diagnostics=_diagnostics(counts),
        )

    def _stripes(self, query: Query) -> list[list[_Chunk]]:
        """The chunks of every worker."""
        return self._even if _place_free(query, self._task) else self._fixed

    @cached_property
    def _units(self) -> int:
        """What samples are drawn from: how many records, or persons. Private."""
        return int(unit_counts(self._data, self._task).sum())

    @cached_property
    def _even(self) -> list[list[_Chunk]]:
        """As few chunks as the workers need, and the same number for each: none waits long."""
        size, whole = self._crew.size, self._data.dataset.train.X.nbytes
        return self._dealt(size * max(1, -(-whole // (CHUNK_BYTES * size))))

    @cached_property
    def _fixed(self) -> list[list[_Chunk]]:
        """The same chunks with any number of workers."""
        return self._dealt(CHUNKS)

    def _dealt(self, least: int) -> list[list[_Chunk]]:
        """At least so many chunks, if there are as many parties; each worker gets every n-th."""
        chunks, count = _cut(self._data, self._task, least, self._apart), self._crew.size
        return [chunks[first::count] for first in range(min(count, len(chunks)))]

    def _present(self) -> NDArray[np.bool_] | None:
        """Who answers this time; None if everybody does."""
        if self._dropouts is None:
            return None
        present = np.ones(self._task.parties, dtype=bool)
        present[list(self._dropouts.silent(self._next_round))] = False
        self._next_round += 1
        return present

    def _answering(
        self, query: Query, stream: RandomStream, present: NDArray[np.bool_] | None
    ) -> Callable[[_Chunk], tuple[Ring, Counter[str]]]:
        """How a chunk is answered, with all that the parties draw for it drawn."""
        task = self._task
        if isinstance(query, LocalTrainingQuery):
            joining = coins(query, task.parties, stream)
            return partial(_train, query, joining if present is None else joining & present)
        draws = draw(query, task, task.sizes, stream, units=self._units)
        return partial(self._answer, query, draws, present)

    def _answer(
        self, query: Query, draws: Draws, present: NDArray[np.bool_] | None, chunk: _Chunk
    ) -> tuple[Ring, Counter[str]]:
        """Σ over a chunk of the quantised answers, and what a simulation counts."""
        answers = chunk.holdings.answer(query, draws.of(chunk.parties, chunk.units))
        bound = max(query.answer_bound(self._task, size) for size in chunk.sizes)
        vectors = answers.vectors if present is None else answers.vectors[present[chunk.parties]]
        return query.grid.encode_sum(vectors, bound=bound), Counter(answers.counts)


def _place_free(query: Query, task: Task) -> bool:
    """Whether no answer depends on which others are computed with it, to the bit.

    Sums in float64 do not either, since each party is cut by its own records; they keep the chunks
    that follow from the records, which cost them nothing.
    """
    if isinstance(query, LocalTrainingQuery):
        return place_free(task.model, task.loss)
    return (
        isinstance(query, GradientQuery)
        and query.centre is query.scale is None
        and isinstance(task.model, LinearModel)
        and task.model.classes == 1
        and in_one_pass(task.loss)
        and task.persons is None
        and not summed_in_float64(query, task)
    )


def _train(
    query: LocalTrainingQuery, joining: NDArray[np.bool_], chunk: _Chunk
) -> tuple[Ring, Counter[str]]:
    """Σ over a chunk of what its parties answer after local training, and what is counted."""
    ring, counts = chunk.trainees.answer(query, joining[chunk.parties])
    return ring, Counter(counts)


def _cut(data: PartitionedDataset, task: Task, least: int, apart: bool) -> list[_Chunk]:
    """Chunks of whole parties; a large party is alone."""
    train, offsets = data.dataset.train, data.offsets
    units = np.concatenate([np.zeros(1, np.int64), np.cumsum(unit_counts(data, task))])
    share = min(CHUNK_BYTES, train.X.nbytes // least)
    most = max(1, -(-share // max(1, train.X[:1].nbytes)))
    chunks, first = [], 0
    while first < data.parties:
        last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = max(last, first + 1)
        records = slice(int(offsets[first]), int(offsets[last]))
        own = offsets[first : last + 1] - offsets[first]
        parties = slice(first, last)
        sizes = task.sizes[parties]
        batch, persons = stack_persons(train.take(records), own, task)
        chunks.append(
            _Chunk(
                parties=parties,
                units=slice(int(units[first]), int(units[last])),
                sizes=frozenset(sizes),
                holdings=Holdings(task, batch, sizes=sizes, first=first, persons=persons),
                trainees=Trainees(task, batch, sizes=sizes, first=first, apart=apart),
            )
        )
        first = last
    return chunks


def _add_up(
    answer: Callable[[_Chunk], tuple[Ring, Counter[str]]], chunks: list[_Chunk]
) -> tuple[Ring, Counter[str]]:
    """The sum over some chunks, in the ring."""
    total, counts = answer(chunks[0])
    for chunk in chunks[1:]:
        ring, more = answer(chunk)
        total += ring
        counts.update(more)
    return total, counts


def _diagnostics(counts: Counter[str]) -> dict[str, float]:
    if "clipped" not in counts:
        return {}
    return {"clipped": counts["clipped"] / max(1, counts["units"])}
