"""Objective perturbation: a random linear term in the objective of all records together.

    b ← noise
    θ ← argmin (1/N)Σ f(θ; x, y) + ((λ + Δ)/2)‖θ‖² + bᵀθ/N          (joint, by secure sums)
    θ ← θ + a little noise, because no solver is exact

N is public: under add-remove adjacency it is a declared constant, the same for neighbours, and the
sum runs over the records that exist. For the person unit, f is the mean over one person's records
at a party, and N the declared number of persons. The loss must be Lipschitz everywhere: b is
unbounded.

Chaudhuri, Monteleoni and Sarwate 2011 (pure ε); Kifer, Smith and Thakurta 2012 (Gaussian b, here
with the exact rule of `fedpriv.privacy.objective_profile`); the joint form of Jayaraman et al.
2018; approximate minima of Iyengar et al. 2019. Only the last θ is released. The server sees exact
sums of gradients on the way, and draws b itself: it must be trusted with both.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, log2, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

from fedpriv.federation.queries.bounds import objective_problem
from fedpriv.federation.strategy.joint import JointStrategy, certain_joint_tolerance
from fedpriv.privacy.planning.fixed_plan import FixedPlan
from fedpriv.privacy.planning.objective.objective import (
    ObjectiveMechanism,
    ObjectiveNoise,
    optimal_objective_regulariser,
)
from fedpriv.privacy.planning.objective.unsound_objective import unsound_mechanism
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import pooled
from fedpriv.strategies.common.auto import objective_regulariser
from fedpriv.strategies.common.averaging import FitOptions, on_grid
from fedpriv.strategies.common.building import Positive, Setup, Share, StrategyInfo
from fedpriv.strategies.common.plans.minimiser_plans import of_means, regularised
from fedpriv.strategies.common.plans.plans import refuse_study

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.objective.objective import ObjectiveLaw
    from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
    from fedpriv.privacy.planning.plan import NoisePlace, Plan


_LARGE = 1e6  # a λ so large that the curvature of a loss is negligible


class ObjectiveOptions(FitOptions):
    """Options of objective perturbation.

    Attributes:
        law: Distribution of b; "auto" is Gaussian if δ > 0, else l2-laplace, which is pure.
            "unsound-objective" is the textbook form without the Jacobian: for study; its plan
            states what it really costs.
        regulariser: λ of the "model"; "auto" is that of a rule from public facts
            (`fedpriv.strategies.common.auto`), the default if an experiment states no λ; "optimal"
            minimises the bound on the excess risk.
        radius: D, a bound on the norm of a good model, for the optimal λ.
        solver_share: The share spent on an inexact minimiser: of ε, or of μ² for Gaussian b.
    """

    law: Literal["auto", "gaussian", "l2-laplace", "unsound-objective"] = "auto"
    solver_share: Share = 0.01
    regulariser: Literal["model", "auto", "optimal"] = "model"
    radius: Positive = 10.0


class ObjectivePerturbation(JointStrategy):
    """Many exchanges, one release."""

    name: ClassVar[str] = "objective-perturbation"

    def __init__(self, *, task: Task, plan: Plan, tolerance: float, run: Run) -> None:
        super().__init__(
            task=task, plan=plan, adjacency=plan.adjacency, tolerance=tolerance, run=run
        )
        # The task, not only the plan, must meet what the rules demand of the loss.
        objective_problem(task, task.records, regulariser=task.regulariser, tolerance=tolerance)
        (mechanism,) = plan.mechanisms
        if not isinstance(mechanism, ObjectiveMechanism):
            raise ValueError(f"plan must perturb the objective, got {mechanism.name!r}.")
        self._step, self._mechanism = plan.step, mechanism

    def _begin(self) -> tuple[NDArray[np.float64], float]:
        """Draw b: the same one if the fit of a release is restarted (`StrategyInfo.one_draw`)."""
        self._random = self._stream()
        b = self._mechanism.draw_linear((self.task.dimension,), self._random)
        return b, self._mechanism.extra_regulariser

    def _end(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        total = on_grid(theta, step=self._step)
        return self._mechanism.release(total, step=self._step, stream=self._random)


INFO = StrategyInfo(
    name=ObjectivePerturbation.name,
    summary="minimise an objective with a random linear term, jointly",
    noise_by="server",
    asks=("risk-gradient",),
    convex_only=True,
    one_draw=True,  # the size of b changes the number of exchanges
    options=ObjectiveOptions,
    units=(Unit.RECORD, Unit.PERSON),
    follows_budget=lambda options: options.regulariser != "model",
)


def build(setup: Setup, options: ObjectiveOptions) -> JointStrategy:
    """The strategy, planned within its budget; without noise b and Δ are zero: it is `pooled`."""
    law = "auto" if options.law == "unsound-objective" else options.law

    def noise(private: Setup) -> ObjectiveNoise:
        return objective_noise(private, law=law, solver_share=options.solver_share)

    setup = regularised(
        setup,
        options.regulariser,
        rule=lambda private: with_ruled_objective(private, noise(private)),
        optimal=lambda private: _with_optimal_regulariser(
            private, noise(private), radius=options.radius
        ),
    )
    if setup.noise_free:
        return pooled.build(setup, options)
    refuse_study(options.law, setup)
    objective, task = noise(setup), setup.task
    task.require_strongly_convex(ObjectivePerturbation.name)
    everyone, step = joint_terms(task, objective, options)
    mechanism = objective.mechanism(everyone, step=step)
    if options.law == "unsound-objective":
        mechanism = unsound_mechanism(objective, everyone, step=step)
        setup = replace(setup, allowance=replace(setup.budget, epsilon=mechanism.epsilon))
    plan = plan_objective(
        setup,
        mechanism=mechanism,
        step=step,
        strategy=ObjectivePerturbation.name,
        query="sums of exact gradients, until the joint minimiser is found",
        released="the minimiser of the perturbed objective of all records",
    )
    return ObjectivePerturbation(task=task, plan=plan, tolerance=everyone.tolerance, run=setup.run)


def joint_terms(
    task: Task, objective: ObjectiveNoise, options: FitOptions, *, finest: bool = False
) -> tuple[ObjectiveProblem, float]:
    """The facts of the joint problem, with its tolerance, and the grid of its minimiser.

    The default tolerance is the ``finest`` that can be certified, or one that costs little.
    """
    certain = certain_joint_tolerance(task, adjacency=objective.adjacency, objective=objective)
    tolerance = options.gradient_norm(task, certain=certain)
    if finest and options.tolerance == "auto":
        tolerance = certain
    everyone = objective_problem(
        task, task.records, regulariser=task.regulariser, tolerance=tolerance
    )
    # √d·step is at most what the solver's tolerance already costs.
    apart = 2 * tolerance / (task.regulariser * sqrt(task.dimension))
    return everyone, 2.0 ** floor(log2(apart))


def with_ruled_objective(setup: Setup, noise: ObjectiveNoise, *, problems: int = 1) -> Setup:
    """The task with the rule's λ for perturbed objectives, from public facts.

    ``problems`` is the number of problems, each with an equal part of the records and its own
    random term, whose minimisers, and so their noise, are averaged.
    """
    task = setup.task
    task.require_convex(ObjectivePerturbation.name)
    records = max(1, round(task.records / problems))

    def perturbed(regulariser: float) -> tuple[float, float]:
        problem = objective_problem(task, records, regulariser=regulariser, tolerance=1.0)
        linear, extra = noise.perturbation(problem)
        return linear.noise_stddev / (records * sqrt(problems)), regulariser + extra

    def moved(regulariser: float) -> float:
        stddev, strong = perturbed(regulariser)
        return task.feature_bound * stddev / strong

    least, _ = perturbed(_LARGE)  # the Jacobian costs nothing there
    ruled = objective_regulariser(task.lipschitz / least, task, moved=moved)
    return replace(setup, task=replace(task, regulariser=ruled))


def _with_optimal_regulariser(setup: Setup, noise: ObjectiveNoise, *, radius: float) -> Setup:
    """The task with the λ of least proved excess risk."""
    task = setup.task
    task.require_convex(ObjectivePerturbation.name)
    problem = objective_problem(task, task.records, regulariser=1.0, tolerance=1.0)
    best = optimal_objective_regulariser(noise, problem, radius=radius)
    return replace(setup, task=replace(task, regulariser=best))


def objective_noise(
    setup: Setup, *, law: ObjectiveLaw | Literal["auto"], solver_share: float
) -> ObjectiveNoise:
    """Spend all of the budget, by the given law or by the one that needs less noise."""
    if law == "auto":
        law = "gaussian" if setup.budget.delta > 0 else "l2-laplace"
    return ObjectiveNoise(
        law=law,
        epsilon=setup.budget.epsilon,
        delta=setup.budget.delta if law == "gaussian" else 0.0,
        adjacency=setup.adjacency,
        unit=setup.unit,
        solver_share=solver_share,
    )


def plan_objective(
    setup: Setup,
    *,
    mechanism: ObjectiveMechanism,
    step: float,
    strategy: str,
    query: str,
    released: str,
    noise_at: NoisePlace = "server",
) -> FixedPlan:
    """One release of a perturbed minimiser."""
    task = setup.task
    plan = FixedPlan(
        strategy=strategy,
        query=query,
        released=released,
        budget=setup.budget,
        mechanisms=(mechanism,),
        parties=task.parties,
        records=task.records,
        smallest_party=task.smallest,
        dimension=task.dimension,
        step=step,
        noise_at=noise_at,
        accountant="auto" if mechanism.sound else "basic",
    )
    return of_means(plan, task)
