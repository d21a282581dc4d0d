"""A strategy with adaptively chosen noise: every release is paid for before it is made.

A fixed plan knows all its releases before the first. Here a round is a conversation: a release is
proposed, charged by the plan's filter and by the ledger, made, and returned to the round, whose
next proposal may depend on it. The order is that of every strategy: charge, ask, draw, commit, and
only then go on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedpriv._validate import require_count
from fedpriv.federation.federation import Sum
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.privacy.randomness import RandomStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan, Release
    from fedpriv.privacy.planning.noise_free import NoiseFree

Vector = NDArray[np.float64]
Draw = Callable[[Sum, RandomStream], Vector]
_HISTORY, _RELEASES = "made", "releases"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One proposed release of a round.

    Attributes:
        release: Its noise, and so its cost; None only in a `NoiseFree` run.
        query: The query for its sum. It states the event of this release, and serves no other:
            every party pays for every release by itself, before it is made.
        draw: From the sum to the noisy value, at the cost of ``release``: the only place that sees
            the sum.
        part: Empty for the main release of a round; otherwise a name, under which the ledger keeps
            it as run/part.
        same_sum: Whether the sum is that of the step before. In a release, where parties pay, it
            is asked for again; a simulation reuses the one that it has.
            where parties pay; a simulation uses the one that it has.
    """

    release: Release | None
    query: Query
    draw: Draw
    part: str = ""
    same_sum: bool = False


Round = Generator[Step, Vector, None]


class AdaptiveStrategy(SumStrategy):
    """Rounds of releases, each chosen from all before it, until the budget is spent.

    Guarantee. That of the plan's filter. A round sees only what `Step.draw` returned, never a sum,
    so that everything it chooses follows from releases.

    After a crash in mid-round the ledger restores it: committed releases are given to the round
    again, and nothing is drawn twice.

    Queries count releases over the whole run, not rounds (`_release_index`): parties answer each of
    them once, in this order, and keep its price under its number.

    Args:
        task: The problem.
        plan: Empty; it grows with every release. Or `NoiseFree`: then nothing is charged.
        rounds: The largest number of rounds; the budget may end first.
        run: The run that it is part of.
        start: The first model; zero by default.
    """

    plan: AdaptivePlan | None
    _playing: Round | None
    _step: Step | None
    _noise: RandomStream | None
    _charged: bool

    def __init__(
        self,
        *,
        task: Task,
        plan: AdaptivePlan | NoiseFree,
        rounds: int,
        run: Run,
        start: Vector | None = None,
    ) -> None:
        require_count(rounds=rounds)
        super().__init__(task=task, plan=plan, run=run, start=start)
        self._empty, self._most = self.plan, rounds
        self._release_index = 0
        self._forget()

    @abstractmethod
    def _play(self) -> Round:
        """One round: yield a `Step`, get its release back, and so on; move the model at the end.

        To end the run, set `stopped` and return before the first step of a round.
        """

    @property
    def releases(self) -> int:
        """The largest number of rounds of the run."""
        return self._most

    @property
    def paid(self) -> AdaptivePlan:
        """The plan of a run with noise: what was released, and what it cost."""
        if self.plan is None:
            raise ValueError(f"this run of {self.name} adds no noise: it has no plan.")
        return self.plan

    def learn(self, answer: Sum) -> None:
        """Make the release that was asked for; in a simulation, the whole round from this sum."""
        super().learn(answer)
        while not self._run.real and self._step is not None and self._step.same_sum:
            self._reserve()
            if self.stopped:
                break
            self._asked = self._step.query
            super().learn(answer)

    # The hooks of `SumStrategy`, for the release proposed now.

    def _query(self) -> Query:
        query = self._proposed().query
        if (query.round, query.event) != (self._release_index, self._event()):
            raise RuntimeError(
                "a query must state number and event of the release that it serves, for which "
                "parties pay. Nothing was asked."
            )
        return query

    def _event(self) -> Event | None:
        """The cost of the release proposed now."""
        release = self._proposed().release
        return None if release is None or self.plan is None else self.plan.priced(release)

    @property
    def _release_length(self) -> None:
        """A part of a round, such as a norm, has fewer numbers than the model."""
        return None

    def _release(self, answer: Sum) -> Vector:
        if self._noise is None:
            # One stream per round, opened once: two seeded ones would draw the same noise.
            self._noise = self._stream()
        return self._proposed().draw(answer, self._noise)

    def _advance(self, release: Vector) -> None:
        self._reservation = None
        self._charged = False
        self._release_index += 1
        self._update(release)

    def _update(self, release: Vector) -> None:
        """Give the release to the round waiting for it; the round ends when it proposes none."""
        if self._playing is None:
            raise RuntimeError("no round waits for a release.")
        try:
            self._step = self._playing.send(release)
        except StopIteration:
            self._forget()
            self._theta = self._moved()
            self._round += 1

    def _reserve(self) -> bytes | None:
        """Charge the release proposed now, once; returns its bytes if it was made before."""
        if self._step is None and not self._begin():
            return None
        step, ledger, plan = self._proposed(), self._run.ledger, self.plan
        if plan is None or step.release is None:
            if plan is not None or step.release is not None:
                raise RuntimeError("a release must have noise where there is a plan, and no other.")
            return None
        run = f"{self._run.name}/{step.part}" if step.part else self._run.name
        made = plan.made
        try:
            plan = plan if self._charged else plan.admit(step.release, part=step.part)
            if ledger is not None and self._reservation is None:
                event = plan.event(plan.rounds - 1)
                self._reservation = ledger.reserve(event, run=run, round=self._round)
        except BudgetExceeded as refusal:
            if not made:
                raise
            self.stopped = str(refusal)
            return None
        self.plan, self._charged = plan, True
        return None if self._reservation is None else self._reservation.release

    def _begin(self) -> bool:
        """Open a round; False if it proposes nothing, and the run is over."""
        self._playing = self._play()
        self._step = next(self._playing, None)
        if self._step is None and not self.stopped:
            raise RuntimeError(f"a round of {self.name} proposed no release and gave no reason.")
        return self._step is not None

    def _proposed(self) -> Step:
        if self._step is None:
            raise RuntimeError("no release is proposed: nothing may be asked or drawn.")
        return self._step

    def _forget(self) -> None:
        """Between two rounds no part of a sum, and no stream, is kept."""
        self._playing = self._step = self._noise = None
        self._charged = False

    # Checkpoints are taken between rounds.

    def checkpoint(self) -> dict[str, Any]:
        """As for every strategy, plus every release so far, from which the filter starts."""
        history = [] if self.plan is None else self.plan.history()
        return {
            **super().checkpoint(),
            _HISTORY: history,
            _RELEASES: self._release_index,
            "stopped": self.stopped,
        }

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Go back to a checkpoint of the same strategy."""
        super().restore(checkpoint)
        if self._empty is not None:
            self.plan = self._empty.replayed(checkpoint[_HISTORY])
        self._release_index = int(checkpoint[_RELEASES])
        self.stopped = str(checkpoint["stopped"])
        self._forget()
