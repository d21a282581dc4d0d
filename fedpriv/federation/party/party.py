"""Party: its records, the guard that protects them, and its answers as integers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedpriv.federation.party.answered import LatestAnswers, answered_once
from fedpriv.federation.party.answers import Holdings
from fedpriv.federation.party.draws import draw, draw_local_noise
from fedpriv.federation.party.guard import Policy, QueryRefused, check_query
from fedpriv.federation.party.stack import stack_persons
from fedpriv.federation.party.training import Trainees, Variates, coins
from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.learning.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.data import Records
    from fedpriv.federation.party.answered import Answers
    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.secagg.numbers.fixed_point import Ring


class Respondent(Protocol):
    """Whoever answers queries from records of its own."""

    @property
    def size(self) -> int:
        """n_j; public."""
        ...

    def answer(self, query: Query, answers: Answers | None = None) -> Ring:
        """The answer in fixed point; `QueryRefused` if it breaks a rule.

        Each release is answered once, according to ``answers`` (by default the party's own).
        """
        ...


class Party:
    """What one party does with a query.

    Guarantee. An answer is finite, of the dimension of the model and within the bound that the
    query implies, in the ring of the query's grid; or there is none. Nothing about a record is in
    an error. PyTorch computes it on one thread: with several, the number of records decides where
    their shares end, and so changes last digits.

    Args:
        records: Its own.
        task: The public facts; checked against the records.
        size: n_j, the public number that the task states for it, whatever its number of records.
            None for its number of records, where that is public.
        sampling: The stream that it draws its sample from in a round.
        coin: The stream of its coin, where whole parties are sampled; that of the sample, if not
            given.
        number: The party's index in the task. It determines its part of a sum by party, and where
            noise of its own goes in it, the order of its records in local training, and whether it
            is in a public cohort.
        noise: The stream of the noise that it adds itself; if not given, the rest of the stream of
            the sample.
        policy: What it is willing to answer.
        coin_hidden: Whether to hide the coin from anyone who times answers on the network: the
            party then trains whatever the coin shows.
    """

    def __init__(
        self,
        records: Records,
        *,
        task: Task,
        sampling: Callable[[int], RandomStream],
        size: int | None = None,
        number: int = 0,
        coin: Callable[[int], RandomStream] | None = None,
        noise: Callable[[int], RandomStream] | None = None,
        policy: Policy | None = None,
        coin_hidden: bool = False,
    ) -> None:
        if size is None and len(records) not in task.sizes:
            raise ValueError(
                f"records must be as many as the task states for a party: {task.sizes}."
            )
        self._size = len(records) if size is None else size
        if self._size not in task.sizes:
            raise ValueError(f"size must be one that the task states: {task.sizes}, got {size}.")
        self._task = task
        self._number = number
        self._sampling = sampling
        self._coin = coin
        self._coin_hidden = coin_hidden
        self._noise = noise
        self._policy = policy or Policy()
        batch, persons = stack_persons(records, np.array([0, len(records)]), task)
        self._holdings = Holdings(task, batch, sizes=(self._size,), first=number, persons=persons)
        self._trainees = Trainees(task, batch, sizes=(self._size,), first=number)
        self._answers = LatestAnswers()

    @property
    def size(self) -> int:
        """n_j; public."""
        return self._size

    def answer(self, query: Query, answers: Answers | None = None) -> Ring:
        """The answer to ``query``, in fixed point; what secure aggregation then masks.

        A release is answered once, according to ``answers``: a repeated query gets the same
        integers, and another query for that release is refused. Without ``answers``, the party
        keeps its own, for answers that contain its own noise.

        Raises:
            QueryRefused: The query breaks a rule of this party. Nothing was computed.
        """
        check_query(query, self._task, self._policy)
        if answers is None and not (query.noise_by_party or query.remembering):
            return self.compute(query)
        kept = self._answers if answers is None else answers
        if query.remembering:
            return self._remembering(query, kept)
        return answered_once(query, kept, partial(self.compute, query))

    def _remembering(self, query: Query, answers: Answers) -> Ring:
        """The answer; the party's memory of earlier rounds is kept with its answers."""
        if not isinstance(answers, LatestAnswers):
            raise QueryRefused("this party keeps nothing of earlier rounds.")
        if answers.remembered or answers is not self._answers:
            self.remember(answers.remembered)
        vector = answered_once(query, answers, partial(self.compute, query))
        answers.remembered = self.remembered
        return vector

    @property
    def remembered(self) -> bytes:
        """The memory of the rounds that it computed, **private**; empty if there is none."""
        kept = self._trainees.variates
        return b"" if kept is None else kept.to_bytes()

    def remember(self, kept: bytes) -> None:
        """Continue from what was `remembered`; from scratch, if it is empty."""
        self._trainees.variates = Variates.from_bytes(kept) if kept else None

    def compute(self, query: Query) -> Ring:
        """The answer to a checked query, with fresh noise: for a caller that stores the answer."""
        task, grid = self._task, query.grid
        stream = (self._noise or self._sampling)(query.round)
        with one_thread():
            answer = self._exact(query, stream)
        noise = draw_local_noise(query, task, (self.size,), stream, (self._number,))
        if noise is not None:
            answer += noise.astype(grid.dtype)
        return answer

    def _exact(self, query: Query, stream: RandomStream) -> Ring:
        """The answer before any noise; its draws come from ``stream`` or a stream of their own."""
        task = self._task
        if isinstance(query, LocalTrainingQuery):
            joins = coins(query, 1, self._coin_stream(query, stream))
            if not self._coin_hidden:
                return self._trainees.answer(query, joins)[0]
            update = self._trainees.answer(query)[0]
            if not joins[0]:
                self._trainees.stay_out()
            return update if joins[0] else np.zeros_like(update)
        apart = self._noise is not None and query.sampling_rate < 1
        draws = draw(
            query,
            task,
            (self.size,),
            self._sampling(query.round) if apart else stream,
            units=self._holdings.units,
        )
        vectors = self._holdings.answer(query, draws).vectors
        return query.grid.encode_sum(vectors, bound=query.answer_bound(task, self.size))

    def _coin_stream(self, query: Query, stream: RandomStream) -> RandomStream:
        """The stream of the coin: never one from which noise is drawn again."""
        if self._coin is not None:
            return self._coin(query.round)
        return stream if self._noise is None else self._sampling(query.round)
