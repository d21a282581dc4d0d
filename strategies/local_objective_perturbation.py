"""Local objective perturbation: every party perturbs its own objective.

    every party:  θ_j ← argmin J_j + (Δ_j/2)‖θ‖² + b_jᵀθ/n_j
    server:       θ   ← Σ w_jθ_j

Chaudhuri, Monteleoni and Sarwate 2011 at every party, then averaged. A baseline.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv.federation.queries.bounds import certain_tolerance, objective_problem
from fedpriv.secagg import FixedPoint
from fedpriv.strategies import non_private
from fedpriv.strategies.common.averaging import ModelOptions, mean_model
from fedpriv.strategies.common.building import Setup, Share, StrategyInfo
from fedpriv.strategies.common.plans import UNCERTIFIED, require_replace_one
from fedpriv.strategies.objective_perturbation import objective_noise, plan_objective
from fedpriv.strategies.output_perturbation import OutputPerturbation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import ErmQuery
    from fedpriv.federation.strategy.base import Run, SumStrategy
    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.planning.objective import ObjectiveNoise
    from fedpriv.privacy.planning.plan import Plan


class LocalObjectiveOptions(ModelOptions):
    """Options of local objective perturbation.

    Attributes:
        law: Of b_j; "auto" is Gaussian if δ > 0, else l2-laplace, which is pure.
        solver_share: What pays for an inexact minimiser: a share of ε, or of μ² with Gaussian b.
    """

    law: Literal["auto", "gaussian", "l2-laplace"] = "auto"
    solver_share: Share = 0.01


class LocalObjectivePerturbation(OutputPerturbation):
    """The models arrive private; the server adds nothing."""

    name: ClassVar[str] = "local-objective-perturbation"

    def __init__(
        self,
        *,
        task: Task,
        plan: Plan,
        objective: ObjectiveNoise,
        weights: Weights,
        tolerance: float,
        run: Run,
    ) -> None:
        super().__init__(task=task, plan=plan, weights=weights, tolerance=tolerance, run=run)
        self._objective = objective

    def _query(self) -> ErmQuery:
        return replace(
            super()._query(),
            grid=FixedPoint(step=self._plan.step, bits=64),
            objective=self._objective,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        return mean_model(answer.value, self.task, self._weights, answer.sizes)


INFO = StrategyInfo(
    name=LocalObjectivePerturbation.name,
    summary="baseline: every party perturbs its own objective",
    noise_by="parties",
    convex_only=True,
    options=LocalObjectiveOptions,
)


def build(setup: Setup, options: LocalObjectiveOptions) -> SumStrategy:
    """The strategy, planned within its budget; without noise it is `non_private`."""
    if setup.noise_free:
        return non_private.build(setup, options)
    task = setup.task
    task.require_strongly_convex(LocalObjectivePerturbation.name)
    require_replace_one(setup, LocalObjectivePerturbation.name, because=UNCERTIFIED)
    objective = objective_noise(setup, law=options.law, solver_share=options.solver_share)
    certain = certain_tolerance(task, regulariser=task.regulariser, objective=objective)
    tolerance = options.gradient_norm(task, certain=certain)
    weight = min(task.model_weight(options.weights, size) for size in task.sizes)
    apart = weight * 2 * tolerance / (task.regulariser * sqrt(task.dimension))
    step = 2.0 ** floor(log2(apart))
    smallest = objective_problem(
        task, task.smallest, regulariser=task.regulariser, tolerance=tolerance
    )
    plan = plan_objective(
        setup,
        mechanism=objective.mechanism(smallest, step=step, weight=weight),
        step=step,
        strategy=LocalObjectivePerturbation.name,
        query="the minimiser of its own risk, with a random linear term of its own",
        released="the average of the parties' private minimisers",
        noise_at="parties",
    )
    return LocalObjectivePerturbation(
        task=task,
        plan=plan,
        objective=objective,
        weights=options.weights,
        tolerance=tolerance,
        run=setup.run,
    )
