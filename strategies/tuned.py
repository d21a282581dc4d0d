"""Paid tuning: the best of a random number of trials on the private records, as one release.

    K ← truncated negative binomial(η, γ)
    for k = 1 … K:
        i ← one of the settings, uniformly, with replacement
        θ ← train with setting i                             (noisy sums, by a plan of its own)
        s ← score of θ on all records + N(0, σ²)             (all of the trial within μ-GDP)
    publish i and θ of the trial with the largest s; ties by a uniform variable of each trial

Liu and Talwar 2019; Papernot and Steinke 2022. The cost is one event, whose price is proved in
`fedpriv.privacy.tuning_profile`; it is reserved before the first trial, and its one release is
committed after the last. The proof requires that nothing else leaks: not K, so exchanges are
concealed, and nothing of the other trials, so a trial whose model diverges gets the worst score
instead of an error. Every trial runs to its end: stopping early has another distribution.

All randomness comes from the numbered streams of the run, 0 for K and k for trial k, which must be
the same whenever they are opened: a resumed run draws nothing anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.federation.strategy.base import Run, SumStrategy
from fedpriv.federation.strategy.moved import Diverged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.tuning.tuning import TuningPlan
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.strategies.common.trial_score import TrialScore

    Vector = NDArray[np.float64]

_TIE_BYTES = 16
_HEAD = 2  # numbers before the model in a release: the setting, and whether its model is finite
_ALL_DIVERGED = (
    "the steps of the best trial grew without bound: the model is the last finite one of a trial, "
    "and useless. Offer smaller learning rates"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """One candidate: the keys that it sets, and how to build a strategy with them.

    Attributes:
        values: By dotted key, as in "strategy.clip".
        build: A fresh strategy with its own plan, for one trial.
    """

    values: Mapping[str, Any]
    build: Callable[[Run], SumStrategy]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Trial:
    """The output of a trial. **Private**, unless it is the best."""

    setting: int
    theta: Vector
    score: float
    tie: int

    @property
    def rank(self) -> tuple[float, int]:
        return self.score, self.tie


class Tuned(SumStrategy):
    """One release: the setting and the model of the best trial.

    Attributes:
        chosen: The keys of the best trial's setting; None before the release.
    """

    name: ClassVar[str] = "tuned"
    concealed: ClassVar[bool] = True

    def __init__(
        self,
        *,
        task: Task,
        plan: TuningPlan,
        settings: Sequence[Setting],
        score: TrialScore,
        run: Run,
        start: Vector | None = None,
    ) -> None:
        super().__init__(task=task, plan=plan, run=run, start=start)
        if len(settings) != len(plan.trials):
            raise ValueError(
                f"settings must be those of the plan, {len(plan.trials)}, got {len(settings)}."
            )
        self._plan, self._settings, self._score = plan, tuple(settings), score
        self._choice: int | None = None
        self._selecting: Generator[Query, Sum, _Trial] | None = None
        self._wanted: Query | None = None

    @property
    def chosen(self) -> Mapping[str, Any] | None:
        """The keys that the best trial sets."""
        return None if self._choice is None else self._settings[self._choice].values

    @property
    def _release_length(self) -> int:
        return _HEAD + self.task.dimension

    def _query(self) -> Query:
        if self._wanted is None:
            self._selecting = self._select()
            self._wanted = next(self._selecting)
        return self._wanted

    def _release(self, answer: Sum) -> Vector | None:
        if self._selecting is None:
            raise RuntimeError("a sum was learned that was not asked for.")
        try:
            self._wanted = self._selecting.send(answer)
        except StopIteration as ended:
            best: _Trial = ended.value
            head = [float(best.setting), float(best.score > -inf)]
            return np.concatenate([head, best.theta])
        return None

    def _update(self, release: Vector) -> None:
        self._choice = int(release[0])
        if not release[1]:
            self.stopped = _ALL_DIVERGED
        self._theta = release[_HEAD:]
        self._selecting = self._wanted = None

    def _select(self) -> Generator[Query, Sum, _Trial]:
        """All trials, one after the other; the best."""
        best: _Trial | None = None
        for number in range(1, self._plan.best.law.draw(self._repeatable(0)) + 1):
            trial = yield from self._try(self._repeatable(number))
            if best is None or trial.rank > best.rank:
                best = trial
        if best is None:
            raise RuntimeError("there is at least one trial.")
        return best

    def _try(self, stream: RandomStream) -> Generator[Query, Sum, _Trial]:
        """One trial, whose setting, noise, score and tie-breaker come from one stream."""
        setting = int(stream.integers(len(self._settings), 1)[0])
        tie = int.from_bytes(stream.bytes(_TIE_BYTES))
        # The tuning pays for it: a trial by itself reserves nothing.
        strategy = self._settings[setting].build(Run(name=self._run.name, noise=lambda _: stream))
        if strategy.plan != self._plan.trials[setting]:
            raise RuntimeError("a trial must follow the plan of its setting. Nothing was released.")
        theta = strategy.theta.copy()
        try:
            while (query := strategy.ask()) is not None:
                answer = yield query
                with np.errstate(over="ignore", invalid="ignore"):
                    strategy.learn(answer)
                theta = strategy.theta.copy()
        except Diverged:
            return _Trial(setting=setting, theta=theta, score=-inf, tie=tie)
        noise = self._plan.best.score
        answer = yield self._score.query(
            theta, run=self._run.name, number=strategy.round, event=noise.event()
        )
        (noisy,) = noise.release(self._score.exact(answer), step=answer.step, stream=stream)
        return _Trial(setting=setting, theta=theta, score=float(noisy), tie=tie)

    def _repeatable(self, number: int) -> RandomStream:
        stream = self._stream(number)
        if not stream.repeatable:
            raise RuntimeError(
                "the draws of a tuning must follow from a seed or a stored secret: otherwise a "
                "resumed run would draw another number of trials. Nothing was released."
            )
        return stream

    def _state(self) -> dict[str, Any]:
        return {"choice": self._choice, "stopped": self.stopped}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._choice, self.stopped = state["choice"], state["stopped"]
