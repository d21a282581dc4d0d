"""The `sharded` engine: parties in worker processes, on one machine or many.

Every worker holds a shard of the parties (`shard`), mapped from a store on its disk, computes with
the kernels of `vectorized`, and returns one vector of integers: its part of the sum in the ring.
Integers add up exactly, so the model is the same to the bit for any number of workers and machines,
and the same as that of `vectorized` on the same kind of processor.

This process draws what the parties draw, before anybody computes (`question`). If a worker is lost,
another one opens its shard and gets the same question, which has the same answer. Starting and
reaching workers is up to a `Workforce`: `ray_session` has Ray's.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedpriv.federation.engines.chunks import place_free
from fedpriv.federation.engines.ideal import IdealFederation
from fedpriv.federation.engines.shard import Place, Shard, parts
from fedpriv.federation.queries.kinds import LocalTrainingQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.engines.chunks import Extent
    from fedpriv.federation.engines.dropouts import Dropouts
    from fedpriv.federation.engines.question import Question
    from fedpriv.federation.engines.shard import Opening
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.secagg.numbers.fixed_point import Ring

_LOSSES = 3
"""How often one shard's worker may be lost in one sum; more often is no accident."""


class Workforce(Protocol):
    """Worker processes, wherever they run; a reference identifies the result of a computation."""

    @property
    def workers(self) -> int:
        """The number of workers."""
        ...

    @property
    def workers_per_machine(self) -> int:
        """About how many of them share a machine."""
        ...

    def hire(self, kind: type, *arguments: Any, **options: Any) -> Any:
        """A new worker process that holds an object of a class."""
        ...

    def ask(self, worker: Any, method: str, *arguments: Any) -> Any:
        """A reference to the result of a method of a worker's object."""
        ...

    def share(self, value: Any) -> Any:
        """What to give to `ask` in the place of a value that several workers get."""
        ...

    def first_of(self, references: Sequence[Any]) -> Any:
        """The first reference whose result is available, or never will be."""
        ...

    def result(self, reference: Any) -> Any | None:
        """A result; None if its worker was lost. An error in the worker is raised here."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class ShardedFederation(IdealFederation):
    """The sharded federation: parties that outgrow one process, or one machine.

    Guarantee. The sum is that of `VectorizedFederation` on the same records, to the bit, for any
    number of workers, and however many of them were lost on the way.

    Not covered. Exact parts of sums, and who is in a sample, pass between processes: whoever can
    read them, or give orders to a worker, sees unprotected data. So no release runs here.

    Args:
        data: The records, sorted by party; this process reads only their sizes.
        task: The public facts.
        opening: How a worker opens the same records and task.
        sampling: The stream from which the parties draw in a round.
        workforce: The workers, which end with the federation.
        dropouts: Who does not answer in which round; None if everybody always does.
        first_round: The round of the drop-outs that the first sum is in.
        apart: See `VectorizedFederation`.
        ending: Called when the workers have ended.
    """

    def __init__(
        self,
        data: PartitionedDataset,
        *,
        task: Task,
        opening: Opening,
        sampling: Callable[[int], RandomStream],
        workforce: Workforce,
        dropouts: Dropouts | None = None,
        first_round: int = 0,
        apart: bool = False,
        ending: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(
            data, task=task, sampling=sampling, dropouts=dropouts, first_round=first_round
        )
        self._opening, self._apart, self._ending = opening, apart, ending
        self._told: list[Question] = []
        self._workforce = workforce
        try:
            self._shards = [self._hired(index) for index in range(workforce.workers)]
            self._require_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the workers. Calling it again does no harm."""
        self._workforce.close()
        self._ending()

    def _add_up(self, question: Question) -> tuple[Ring, Counter[str]]:
        query = question.query
        total = np.zeros(query.answer_width(self._task), query.grid.dtype)
        counts: Counter[str] = Counter()
        shared, losses = self._workforce.share(query), Counter[int]()
        pending = {self._ask(index, question, shared): index for index in self._busy(query)}
        while pending:
            done = self._workforce.first_of(list(pending))
            index = pending.pop(done)
            answer = self._workforce.result(done)
            if answer is None:
                losses[index] += 1
                self._replace(index, losses[index])
                pending[self._ask(index, question, shared)] = index
                continue
            total += answer[0]
            counts.update(answer[1])
        if isinstance(query, LocalTrainingQuery) and query.control is not None:
            self._told.append(question)
        return total, counts

    def _ask(self, index: int, question: Question, shared: Any) -> Any:
        """Ask one worker for its part; ``shared`` stands for the query, the same for all."""
        extents = self._parts(question.query)[index]
        parties = slice(extents[0].parties.start, extents[-1].parties.stop)
        units = slice(extents[0].units.start, extents[-1].units.stop)
        own = question.of(parties, units)
        first = own.first_party, own.first_unit
        worker = self._shards[index]
        return self._workforce.ask(worker, "answer", shared, own.draws, own.answering, first)

    def _require_ready(self) -> None:
        ready = [self._workforce.ask(worker, "ready") for worker in self._shards]
        if None in [self._workforce.result(reference) for reference in ready]:
            raise ValueError(
                "a worker ended before it had opened its records: see the logs of Ray, for want of "
                "memory above all."
            )

    def _replace(self, index: int, losses: int) -> None:
        """Replace the worker of a lost shard, with what its parties remember.

        Control variates depend on all earlier rounds, so these are asked again, in order.
        """
        if losses > _LOSSES:
            raise ValueError(
                f"worker {index} of {len(self._shards)} was lost {losses} times in one round: see "
                "the logs of Ray, for want of memory above all. More workers, or more machines, "
                "hold smaller shards."
            )
        self._shards[index] = self._hired(index)
        for question in self._told:
            shared = self._workforce.share(question.query)
            if self._workforce.result(self._ask(index, question, shared)) is None:
                self._replace(index, losses + 1)
                return

    def _busy(self, query: Query) -> list[int]:
        """The workers that have a part to compute."""
        return [index for index, extents in enumerate(self._parts(query)) if extents]

    def _parts(self, query: Query) -> list[tuple[Extent, ...]]:
        return self._even if place_free(query, self._task) else self._fixed

    @cached_property
    def _even(self) -> list[tuple[Extent, ...]]:
        return parts(self._data, self._task, workers=len(self._shards), anywhere=True)

    @cached_property
    def _fixed(self) -> list[tuple[Extent, ...]]:
        return parts(self._data, self._task, workers=len(self._shards), anywhere=False)

    def _hired(self, index: int) -> Any:
        workforce = self._workforce
        place = Place(index=index, workers=workforce.workers, beside=workforce.workers_per_machine)
        return workforce.hire(Shard, self._opening, place, apart=self._apart)
