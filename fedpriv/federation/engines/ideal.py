"""Ideal functionality of a secure sum: what engines without a protocol have in common.

The same integers as in the real protocol, summed modulo 2^k by whatever computes them: threads of
one process (`vectorized`) or processes on one or many machines (`sharded`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.engines.question import Question
from fedpriv.federation.federation import Sum
from fedpriv.federation.party.draws import draw_local_noise
from fedpriv.federation.party.guard import Policy, check_query
from fedpriv.federation.party.stack import unit_counts
from fedpriv.federation.queries.bounds import require_minimum

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.engines.dropouts import Dropouts
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.secagg.numbers.fixed_point import Ring

_SIMULATION = Policy(unpaid=True, colluding=0.0)  # the plan states how many may collude


class IdealFederation(ABC):
    """A federation with ideal sums: exact, and without a protocol.

    Args:
        data: The records, sorted by party; a party may hold more or fewer than its size says.
        task: The public facts; checked against the records.
        sampling: The stream from which the parties draw in a round: their Poisson samples, or noise
            of their own.
        dropouts: Who does not answer in which round; None if everybody always does.
        first_round: The round of the drop-outs that the first sum is in.
    """

    def __init__(
        self,
        data: PartitionedDataset,
        *,
        task: Task,
        sampling: Callable[[int], RandomStream],
        dropouts: Dropouts | None = None,
        first_round: int = 0,
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

    @property
    def sizes(self) -> tuple[int, ...]:
        """The public number of records of every party."""
        return self._task.sizes

    def sum(self, query: Query) -> Sum:
        """The sum of all parties' answers, except drop-outs, in the query's ring."""
        task, grid = self._task, query.grid
        check_query(query, task, _SIMULATION)
        present = self._present()
        sizes = task.sizes if present is None else tuple(compress(task.sizes, present))
        require_minimum(query, len(sizes))
        stream = self._sampling(query.round)
        question = Question.drawn(query, task, stream, present=present, units=self._units)
        total, counts = self._add_up(question)
        numbers = None if present is None else present.nonzero()[0].tolist()
        noise = draw_local_noise(query, task, sizes, stream, numbers)
        if noise is not None:
            total += noise.astype(grid.dtype)
        return Sum(
            total=grid.decode(total),
            step=grid.step,
            sizes=sizes,
            diagnostics=_diagnostics(counts),
        )

    @abstractmethod
    def _add_up(self, question: Question) -> tuple[Ring, Counter[str]]:
        """Σ of all parties' quantised answers, in the ring, and what a simulation counts."""

    @cached_property
    def _units(self) -> int:
        """How many records, or persons, samples are drawn from. Private."""
        return int(unit_counts(self._data, self._task).sum())

    def _present(self) -> NDArray[np.bool_] | None:
        """Who answers this time; None if everybody does."""
        if self._dropouts is None:
            return None
        present = np.ones(self._task.parties, dtype=bool)
        present[list(self._dropouts.silent(self._next_round))] = False
        self._next_round += 1
        return present


def _diagnostics(counts: Counter[str]) -> dict[str, float]:
    if "clipped" not in counts:
        return {}
    return {"clipped": counts["clipped"] / max(1, counts["units"])}
