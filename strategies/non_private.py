"""Averaging, without privacy: Σ w_jθ_j, the average of the parties' exact minimisers.

This is what output perturbation would release without noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedpriv.federation.queries.bounds import finest_grid
from fedpriv.federation.queries.kinds import ErmQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.strategies.common.averaging import ModelOptions, mean_model
from fedpriv.strategies.common.building import Setup, StrategyInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task, Weights


class NonPrivate(SumStrategy):
    """One exchange, no noise."""

    name: ClassVar[str] = "non-private"

    def __init__(self, *, task: Task, weights: Weights, tolerance: float, run: Run) -> None:
        task.require_stable_minimiser(self.name)
        super().__init__(task=task, plan=None, run=run)
        self._weights: Weights = weights
        self._tolerance = tolerance

    def _query(self) -> ErmQuery:
        return ErmQuery(
            run=self._run.name,
            round=self._round,
            grid=finest_grid(bound=self.task.lipschitz / self.task.regulariser),
            event=None,
            regulariser=self.task.regulariser,
            tolerance=self._tolerance,
            weights=self._weights,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        return mean_model(answer.value, self.task, self._weights, answer.sizes)

    def _update(self, release: NDArray[np.float64]) -> None:
        self._theta = release


INFO = StrategyInfo(
    name=NonPrivate.name,
    summary="no privacy: the average of the parties' minimisers",
    noise_by="nobody",
    convex_only=True,
    options=ModelOptions,
)


def build(setup: Setup, options: ModelOptions) -> NonPrivate:
    """The strategy; it has no guarantee, so no plan."""
    task = setup.task
    tolerance = options.gradient_norm(task)
    return NonPrivate(task=task, weights=options.weights, tolerance=tolerance, run=setup.run)
