"""Repetition of a run: the strategy of an experiment, as it is, with new noise every time.

The parts of a run are built once: tables, parties, plan. Every repetition is a strategy in its
initial state, which queries the parties of its table and learns from their sums as in any run:
fixed point, secure aggregation where the engine has it, drop-outs, noise at the server or at the
parties. Only the random streams differ, by a seed and the number of the repetition. In one
repetition both neighbours use the same streams: `fedpriv.audit.gaussian_shift` says why.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedpriv.federation.engines.vectorized import VectorizedFederation
from fedpriv.federation.strategy.base import Run
from fedpriv.privacy.randomness import RandomStream
from fedpriv.simulations.engines.parties import dropouts, local_federation
from fedpriv.simulations.run.prepare import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Federation, Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.simulations.run.prepare import Prepared

    Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """What there is to see of one exchange.

    Attributes:
        query: What was asked; parties see it.
        sizes: Of the parties in the sum; public.
        release: What was released after it; None if the round goes on.
    """

    query: Query
    sizes: tuple[int, ...]
    release: Vector | None


class Watching(Protocol):
    """Told of each exchange, in order."""

    def __call__(self, seen: Seen, /) -> None:
        """Look at it."""


@dataclass(kw_only=True)
class Dice:
    """The random numbers of the current run: all its draws derive from this.

    Attributes:
        seed: Of the audit.
        stage: The purpose of the run: runs that count have separate random numbers.
        repetition: Which run it is.
    """

    seed: int
    stage: str = ""
    repetition: int = 0

    def streams(self, purpose: str) -> Callable[[int], RandomStream]:
        """A stream for each round."""
        return lambda round_: RandomStream.seeded(
            self.seed, "audit", purpose, self.stage, self.repetition, round_
        )


class Side:
    """One neighbour, on which an experiment is run again and again.

    Args:
        prepared: The experiment on this table.
        dice: Shared by both sides.
    """

    def __init__(self, prepared: Prepared, *, dice: Dice) -> None:
        self.prepared, self._dice = prepared, dice
        strategy = check(prepared)
        if strategy is None or strategy.plan is None:
            raise ValueError(
                f"an audit needs a strategy with a guarantee, and {prepared.info.name!r} has none."
            )
        strategy.attach(Run(name=prepared.run, noise=dice.streams("noise")))
        self.pristine: SumStrategy = strategy
        self.plan = strategy.plan
        self._ideal = self._federation()
        self._constant: dict[tuple[str, int], Sum] = {}
        self._latest: tuple[Query, Sum] | None = None

    def first_query(self) -> Query:
        """What is asked first."""
        query = self._fresh().ask()
        if query is None:
            raise ValueError("the strategy asks nothing.")
        return query

    def run(self, repetition: int, watch: Watching, *, stage: str = "runs") -> Vector:
        """The model at the end of one repetition; ``stage``: with random numbers of that name."""
        self._dice.stage, self._dice.repetition = stage, repetition
        strategy = self._fresh()
        federation = self._parties(strategy)
        while (query := strategy.ask()) is not None:
            answer = self._answer(federation, query)
            before = strategy.last_release
            strategy.learn(answer)
            after = strategy.last_release
            release = None if after is before else after
            watch(Seen(query=query, sizes=answer.sizes, release=release))
        return strategy.theta.copy()

    def exact(self, query: Query) -> Vector:
        """The sum without any noise, by the ideal functionality; samples are those of the run."""
        bare: dict[str, Any] = {"share": None} if query.share is not None else {}
        if getattr(query, "local", None) is not None:
            bare["local"] = None
        return self._summed(self._ideal, replace(query, **bare) if bare else query).value

    def _fresh(self) -> SumStrategy:
        kept = {id(each): each for each in (self.pristine.plan, self.pristine.task)}
        return deepcopy(self.pristine, kept)

    def _answer(self, federation: Federation, query: Query) -> Sum:
        if federation is not self._ideal or query.noise_by_party:
            return federation.sum(query)
        return self._summed(federation, query)

    def _summed(self, federation: Federation, query: Query) -> Sum:
        """The sum: once for a question, and once and for all if nothing in it changes."""
        if _follows(query) or query.sampling_rate < 1:
            if self._latest is None or self._latest[0] is not query:
                self._latest = query, federation.sum(query)
            return self._latest[1]
        key = (query.kind, query.round)
        if key not in self._constant:
            self._constant[key] = federation.sum(query)
        return self._constant[key]

    def _parties(self, strategy: SumStrategy) -> Federation:
        """The parties of a run: the ideal sum again, unless they remember or leave."""
        section, dice = self.prepared.experiment.run, self._dice
        if section.engine == "local":
            run = f"{self.prepared.run}/{dice.seed}/{dice.stage}/{dice.repetition}"
            return local_federation(self.prepared, run=run, rounds=strategy.rounds)
        return self._ideal if not section.dropout else self._federation(leaving=True)

    def _federation(self, *, leaving: bool = False) -> VectorizedFederation:
        return VectorizedFederation(
            self.prepared.data,
            task=self.prepared.task,
            sampling=self._dice.streams("sampling"),
            workers=1,
            dropouts=dropouts(self.prepared) if leaving else None,
            apart=True,
        )


def _follows(query: Query) -> bool:
    """Whether a query depends on earlier releases: it has a point, or several."""
    return any(isinstance(getattr(query, each.name), np.ndarray) for each in fields(query))
