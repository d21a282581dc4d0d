"""Gradient perturbation: descend along noisy sums of clipped gradients.

    for t = 1 … T:
        S ← Σ over all records of clip_C(∇f(θ; x, y))         (a secure sum over the parties)
        g ← (S + N(0, σ_t²)) / N + λθ
        θ ← step(θ, g)

Jayaraman, Wang, Evans and Gu 2018 (full batch, noise inside a secure sum); Abadi et al. 2016
(Poisson sampling). The regulariser is neither clipped nor noised. The step is post-processing:
any server optimiser, and any average of the iterates, at the same cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedpriv.federation.limits import grid_of
from fedpriv.federation.queries import GradientQuery
from fedpriv.federation.strategy import SumStrategy
from fedpriv.learning.optimisers import Averaged
from strategies.building import Count, Positive, Rate, Setup, StrategyInfo
from strategies.optimiser import OptimiserOptions, make_optimiser, pack, unpack
from strategies.plans import Calibration, plan_gradients

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy import Run
    from fedpriv.federation.task import Task, Weights
    from fedpriv.learning.optimisers import Optimiser
    from fedpriv.privacy.plan import Plan


class GradientOptions(OptimiserOptions):
    """Options of gradient perturbation.

    Attributes:
        rounds: T.
        clip: C, the bound on one record's gradient.
        schedule: Noise of each round relative to the others; one number a round, or "uniform".
        weights: Every record alike ("proportional"), or every party ("equal").
        calibration: How the noise follows from the budget.
        sampling_rate: Poisson rate q of the records of a round; 1 is full batch.
        accountant: Name, or "auto" for the tightest.
        seed: Of the initial weights of a model that is not linear.
    """

    rounds: Count = 100
    clip: Positive = 1.0
    schedule: Literal["uniform"] | tuple[Positive, ...] = "uniform"
    weights: Literal["equal", "proportional"] = "proportional"
    calibration: Calibration = "exact"
    sampling_rate: Rate = 1.0
    accountant: str = "auto"
    seed: int = 0


class GradientPerturbation(SumStrategy):
    """T noisy steps, each one release."""

    name: ClassVar[str] = "gradient-perturbation"

    def __init__(
        self,
        *,
        task: Task,
        plan: Plan,
        optimiser: Optimiser,
        run: Run,
        weights: Weights = "proportional",
        start: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(task=task, plan=plan, run=run, start=start)
        if plan.clip_norm is None:
            raise ValueError("plan must state the clip_norm of a gradient, got None.")
        self._plan, self._clip = plan, plan.clip_norm
        self._weights: Weights = weights
        self._optimiser = optimiser
        self._iterate = self._theta
        self._memory = optimiser.start(self._iterate)

    def _query(self) -> GradientQuery:
        bound = self.task.records * self._clip
        return GradientQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=self._plan.step, bound=bound, parties=self.task.parties),
            event=self._event(),
            theta=self._iterate,
            clip_norm=self._clip,
            sampling_rate=self._plan.sampling_rate,
            weights=self._weights,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        """The noisy mean. Divided by the *expected* number of records: the real one is private."""
        mechanism = self._plan.mechanisms[self._round]
        noisy = mechanism.release(answer.total, step=answer.step, stream=self._stream())
        count = self.task.gradient_count(self._weights, answer.sizes)
        return noisy / (self._plan.sampling_rate * count)

    def _update(self, release: NDArray[np.float64]) -> None:
        gradient = release + self.task.regulariser * self._iterate
        self._iterate, self._memory = self._optimiser.step(self._iterate, gradient, self._memory)
        averaged = isinstance(self._optimiser, Averaged)
        self._theta = self._memory.average if averaged else self._iterate

    def _state(self) -> dict[str, Any]:
        return {"iterate": self._iterate, **pack(self._memory)}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._iterate = np.array(state["iterate"])
        self._memory = unpack(state, like=self._memory)


INFO = StrategyInfo(
    name=GradientPerturbation.name,
    summary="descend along noisy sums of clipped gradients",
    private=True,
    convex_only=False,
    options=GradientOptions,
)


def build(setup: Setup, options: GradientOptions) -> GradientPerturbation:
    """The strategy, planned within its budget."""
    task = setup.task
    return GradientPerturbation(
        task=task,
        plan=plan_gradients(
            setup,
            rounds=options.rounds,
            clip_norm=options.clip,
            weights=options.weights,
            sampling_rate=options.sampling_rate,
            shape=None if options.schedule == "uniform" else options.schedule,
            calibration=options.calibration,
            accountant=options.accountant,
        ),
        optimiser=make_optimiser(options, task, rounds=options.rounds),
        weights=options.weights,
        run=setup.run,
        start=task.model.initial(np.random.default_rng(options.seed)).numpy(),
    )
