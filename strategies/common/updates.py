"""UpdateStrategy: what strategies with local training have in common."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.queries.local_training import LocalTrainingQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.learning.optimisers import Averaged
from fedpriv.strategies.common.local_training import LocalOptions, total_weight, update_grid
from fedpriv.strategies.common.optimiser import make_optimiser, pack, unpack
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.learning.training.settings import LocalSgd
    from fedpriv.privacy.planning.fixed_plan import FixedPlan

    Vector = NDArray[np.float64]


class UpdateStrategy(SumStrategy):
    """T exchanges of local training, each one release. Use a subclass.

    Args:
        task: The problem.
        plan: Noise and cost, in units of the clip norm; None without a guarantee.
        run: The run that it is part of.
        options: The strategy's options.
        training: What every party does.
        clip_norm: C of the first round; None for no bound.
        counting: κ, if a count follows the update.
        width: The number of coordinates of an answer.
    """

    def __init__(
        self,
        *,
        task: Task,
        plan: FixedPlan | None,
        run: Run,
        options: LocalOptions,
        training: LocalSgd,
        clip_norm: float | None,
        counting: float | None = None,
        width: int,
    ) -> None:
        self.width = width
        start = task.initial(options.seed)
        super().__init__(task=task, plan=plan, run=run, start=start)
        self._plan, self._local, self._training = plan, options, training
        self._clip, self._counting = clip_norm, counting
        self._expected = nan  # Σ w_j of the latest query
        self._optimiser = make_optimiser(
            options,
            task,
            rounds=options.rounds,
            rate=options.server_rate,
            stability=options.stability,
        )
        self._iterate = self._theta
        self._memory = self._optimiser.start(self._iterate)

    @property
    def releases(self) -> int:
        """One a round."""
        return self._local.rounds

    @property
    def fixed_clip(self) -> float | None:
        """C, unless the counts of a round change it."""
        return self._clip if self._counting is None else None

    def _control(self) -> Vector | None:
        """The control variate sent to the parties; None if there is none."""
        return None

    def _query(self) -> LocalTrainingQuery:
        task, plan, options = self.task, self._plan, self._local
        mechanism = None if plan is None else plan.mechanisms[self._round]
        query = LocalTrainingQuery(
            run=self._run.name,
            round=self._round,
            grid=update_grid(
                task,
                step=None if plan is None else plan.step,
                bound=max(total_weight(task, options), task.parties * (self._counting or 0.0) / 2),
                clipped=self._clip is not None,
                noise_reach=0.0 if mechanism is None else share_reach(mechanism, task),
            ),
            event=self._event(),
            share=None if mechanism is None else share_of(mechanism),
            theta=self._iterate,
            training=self._training,
            clip_norm=self._clip,
            weights=options.weights,
            party_rate=options.party_rate,
            cohort=options.cohort,
            counting=self._counting,
            control=self._control(),
            seed=options.seed,
        )
        self._expected = query.total_weight(task)
        return query

    def _noisy_sum(self, answer: Sum) -> Vector:
        """The noisy sum, in units of the clip norm."""
        if self._plan is None:
            return answer.value
        return released(self._plan.mechanisms[self._round], answer, self._stream)

    def _mean(self, total: Vector) -> Vector:
        """From a noisy sum to a mean update, divided by the *expected* weight.

        Who trained is private; a party missing from the sum counts as one that did not move.
        """
        return total * ((self._clip or 1.0) / self._expected)

    def _move(self, update: Vector) -> None:
        """A server step, with the negative update as its gradient."""
        self._iterate, self._memory = self._optimiser.step(self._iterate, -update, self._memory)
        averaged = isinstance(self._optimiser, Averaged)
        self._theta = self._memory.average if averaged else self._iterate

    def _state(self) -> dict[str, Any]:
        return {"iterate": self._iterate, **pack(self._memory)}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._iterate = np.array(state["iterate"])
        self._memory = unpack(state, like=self._memory)
