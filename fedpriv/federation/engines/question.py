"""Question: a query with everything the parties draw for it, and which of them answer.

Everything random is drawn from one stream, in the order of the parties, before anybody computes. So
the same question has the same answer from other workers, or from one that was restarted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedpriv.federation.party.draws import Draws, draw
from fedpriv.federation.party.training import coins
from fedpriv.federation.queries.kinds import LocalTrainingQuery

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream

    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Question:
    """What some parties are asked. **Private**: who is in a sample must stay secret.

    Attributes:
        query: The query to all.
        draws: Their samples, or the random terms of their objectives.
        answering: (m,), who of them is in the sum: who is present and, where parties train, whose
            coin says so; None for all.
        first_party: The number of the first of these parties.
        first_unit: The number of their first record, or person.
    """

    query: Query
    draws: Draws = field(default_factory=Draws)
    answering: Mask | None = None
    first_party: int = 0
    first_unit: int = 0

    @classmethod
    def drawn(
        cls,
        query: Query,
        task: Task,
        stream: RandomStream,
        *,
        present: Mask | None,
        units: int,
    ) -> Question:
        """The question to all parties of a task, of whom ``present`` are there: None for all.

        ``units`` is how many records, or persons, they have together.
        """
        if isinstance(query, LocalTrainingQuery):
            joining = coins(query, task.parties, stream)
            answering = joining if present is None else joining & present
            return cls(query=query, answering=answering)
        draws = draw(query, task, task.sizes, stream, units=units)
        return cls(query=query, draws=draws, answering=present)

    def of(self, parties: slice, units: slice) -> Question:
        """The part of the question for the parties with these numbers, who hold these units."""
        here = slice(parties.start - self.first_party, parties.stop - self.first_party)
        theirs = slice(units.start - self.first_unit, units.stop - self.first_unit)
        return Question(
            query=self.query,
            draws=self.draws.of(here, theirs),
            answering=None if self.answering is None else self.answering[here],
            first_party=parties.start,
            first_unit=units.start,
        )
