"""Local objective perturbation: every party perturbs its own objective.

    every party:  θ_j ← argmin J_j + (Δ_j/2)‖θ‖² + b_jᵀθ/n_j
    server:       θ   ← Σ w_jθ_j

Chaudhuri, Monteleoni and Sarwate 2011 at every party, then averaged. A baseline.

With ``law = "unsound-laplace"`` b_j has the noise of the experiments of Jayaraman, Wang, Evans and
Gu 2018: Laplace by coordinates, scale 2G/ε′, for a sensitivity 2G that holds in L2. Their program
draws one b for all parties; here each party draws its own, because whoever knows one party's
records can read a common b from its model, which leaves every other model without noise. Their
program also subtracts 2·ln(c/(nΛ)) from ε where the theorem has 2·ln(1 + c/(nΛ)), the form used
here; both set ε′ = ε/2 and the same Δ where that exceeds ε, as with the 50 records per party of
their comparison.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv.federation.queries.bounds import certain_tolerance, objective_problem
from fedpriv.federation.queries.erm import costliest
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.strategies import non_private
from fedpriv.strategies.common.averaging import ModelOptions, RuledOptions, mean_model
from fedpriv.strategies.common.building import LOCAL_NOISE, Setup, Share, StrategyInfo
from fedpriv.strategies.common.plans.minimiser_plans import regularised
from fedpriv.strategies.common.plans.plans import UNCERTIFIED, refuse_study, require_replace_one
from fedpriv.strategies.objective_perturbation import (
    objective_noise,
    plan_objective,
    with_ruled_objective,
)
from fedpriv.strategies.output_perturbation import OutputPerturbation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import ErmQuery
    from fedpriv.federation.strategy.base import Run, SumStrategy
    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
    from fedpriv.privacy.planning.plan import Plan


class LocalObjectiveOptions(ModelOptions, RuledOptions):
    """Options of local objective perturbation.

    Attributes:
        law: Of b_j; "auto" is Gaussian if δ > 0, else l2-laplace, which is pure. "unsound-laplace"
            is for study, and its plan states what it really costs.
        solver_share: The share spent on an inexact minimiser: of ε, or of μ² for Gaussian b.
    """

    law: Literal["auto", "gaussian", "l2-laplace", "unsound-laplace"] = "auto"
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
    asks=("erm",),
    convex_only=True,
    options=LocalObjectiveOptions,
    follows_budget=lambda options: options.regulariser != "model",
    because={Unit.PERSON: LOCAL_NOISE},
)


def build(setup: Setup, options: LocalObjectiveOptions) -> SumStrategy:
    """The strategy, planned within its budget; without noise it is `non_private`."""

    def noise(private: Setup) -> ObjectiveNoise:
        return objective_noise(private, law=options.law, solver_share=options.solver_share)

    def ruled(private: Setup) -> Setup:
        return with_ruled_objective(private, noise(private), problems=private.task.parties)

    setup = regularised(setup, options.regulariser, rule=ruled)
    if setup.noise_free:
        return non_private.build(setup, options)
    refuse_study(options.law, setup)
    task = setup.task
    task.require_strongly_convex(LocalObjectivePerturbation.name)
    require_replace_one(setup, LocalObjectivePerturbation.name, because=UNCERTIFIED)
    objective = noise(setup)
    certain = certain_tolerance(task, regulariser=task.regulariser, objective=objective)
    tolerance = options.gradient_norm(task, certain=certain)
    weight = min(task.model_weight(options.weights, size) for size in task.sizes)
    apart = weight * 2 * tolerance / (task.regulariser * sqrt(task.dimension))
    step = 2.0 ** floor(log2(apart))
    size = costliest(task, objective, regulariser=task.regulariser, tolerance=tolerance)
    worst = objective_problem(task, size, regulariser=task.regulariser, tolerance=tolerance)
    mechanism = objective.mechanism(worst, step=step, weight=weight)
    if not mechanism.sound:
        setup = replace(setup, allowance=replace(setup.budget, epsilon=mechanism.epsilon))
    plan = plan_objective(
        setup,
        mechanism=mechanism,
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
