"""Logistic inference: objective perturbation, and a noisy Hessian at the minimiser."""

from __future__ import annotations

from dataclasses import replace
from math import expm1, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedpriv.federation.queries.bounds import finest_grid, grid_of
from fedpriv.federation.queries.hessian import hessian_sensitivity
from fedpriv.federation.queries.kinds import HessianQuery
from fedpriv.federation.strategy.joint import (
    HESSIANS_SEEN,
    JointStrategy,
    certain_joint_tolerance,
)
from fedpriv.inference.logistic import logistic_estimate
from fedpriv.inference.noisy_matrix import NoisyMatrix
from fedpriv.learning import moments
from fedpriv.privacy.planning.objective.objective_fit import (
    HESSIAN_SHARE,
    ObjectiveFitMechanism,
    objective_fit,
    with_hessian,
)
from fedpriv.strategies.common.averaging import FitOptions, on_grid
from fedpriv.strategies.common.building import LIGHT_L2, Share
from fedpriv.strategies.common.inference.linear_inference import NAME, fine_step, require_everybody
from fedpriv.strategies.common.plans.sharing import noisy_sum
from fedpriv.strategies.objective_perturbation import joint_terms, objective_noise, plan_objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.inference.coding import Coding
    from fedpriv.inference.estimate import Estimate
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.strategies.common.building import Setup

    Vector = NDArray[np.float64]

_STRONGEST = 200.0  # λ is at most c/(this·d)
_SOLVER_NOISE = 0.3  # noise that hides the solver, over the standard error without it


class InferenceOptions(FitOptions):
    """Options of inference; only the logistic loss has any.

    Attributes:
        regulariser: λ of the "model", or that of `auto_regulariser`. Estimates are corrected for
            it: it serves only privacy and the solver.
        solver_share: The share of μ² spent on hiding the inexact minimiser.
        hessian_share: The share of μ² spent on the Hessian.
    """

    regulariser: Literal["auto", "model"] = "auto"
    solver_share: Share = 0.05
    hessian_share: Share = HESSIAN_SHARE


class LogisticInference(JointStrategy):
    """Many exchanges, one release: a perturbed minimiser and the noisy Hessian there."""

    name: ClassVar[str] = NAME
    server_also_sees: ClassVar[str] = HESSIANS_SEEN

    def __init__(
        self,
        *,
        task: Task,
        plan: Plan | None,
        adjacency: Adjacency,
        tolerance: float,
        run: Run,
    ) -> None:
        self.width = task.dimension + moments.width(task.dimension)
        super().__init__(task=task, plan=plan, adjacency=adjacency, tolerance=tolerance, run=run)
        mechanism = None if plan is None else plan.mechanisms[0]
        if mechanism is not None and not isinstance(mechanism, ObjectiveFitMechanism):
            raise ValueError(
                f"plan must be that of a fit with its Hessian, got {mechanism.name!r}."
            )
        self._mechanism = mechanism
        self._step = None if plan is None else plan.step
        self._found: Vector | None = None
        self._released = np.zeros(self.width)

    def estimate(self, coding: Coding) -> Estimate:
        """Estimates of the coefficients from the release: post-processing."""
        d, mechanism = self.task.dimension, self._mechanism
        hessian = NoisyMatrix.released(
            moments.symmetric(self._released[d:]),
            stddev=0.0 if mechanism is None else mechanism.hessian.stddev,
        )
        extra = 0.0 if mechanism is None else mechanism.extra_regulariser
        return logistic_estimate(
            self._released[:d],
            coding.known(hessian).take(coding.kept),
            ridge=self.task.records * (self.task.regulariser + extra),
            linear_stddev=0.0 if mechanism is None else mechanism.linear.noise_stddev,
            output_stddev=0.0 if mechanism is None else mechanism.output.noise_stddev,
            feature_bound=self.task.feature_bound,
            coding=coding.levels,
        )

    def _query(self) -> Query:
        if self._found is None:
            return super()._query()
        task = self.task
        most = self._headroom * task.records * task.feature_bound**2 * moments.SLACK / 4
        return HessianQuery(
            run=self._run.name,
            round=self._round,
            grid=finest_grid(bound=most)
            if self._mechanism is None
            else grid_of(step=_step(task), bound=most, parties=task.parties),
            event=self._event(),
            theta=self._found,
            exchange=0 if self._fit is None else self._fit.exchanges,
            headroom=self._headroom,
        )

    def _release(self, answer: Sum) -> Vector | None:
        if self._found is None:
            self._found = super()._release(answer)  # the Hessian is still to come
            return None
        require_everybody(self.task, answer)
        noise = None if self._mechanism is None else self._mechanism.hessian
        hessian = noisy_sum(noise, answer.total, step=answer.step, stream=self._random)
        found, self._found = self._found, None
        return np.concatenate([found, hessian])

    def _begin(self) -> tuple[Vector, float]:
        """Draw b: the same one if the fit of a release is restarted (`StrategyInfo.one_draw`)."""
        self._random = self._stream()
        if self._mechanism is None:
            return np.zeros(self.task.dimension), 0.0
        b = self._mechanism.draw_linear((self.task.dimension,), self._random)
        return b, self._mechanism.extra_regulariser

    def _end(self, theta: Vector) -> Vector:
        if self._mechanism is None or self._step is None:
            return theta
        total = on_grid(theta, step=self._step)
        return self._mechanism.release(total, step=self._step, stream=self._random)

    def _update(self, release: Vector) -> None:
        self._released = np.array(release)
        super()._update(self._released[: self.task.dimension].copy())

    def _state(self) -> dict[str, Any]:
        return {"released": self._released}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._released = np.array(state["released"])
        self._found = None


def plan_logistic(setup: Setup, options: InferenceOptions) -> LogisticInference:
    """The strategy, planned within its budget; without noise nearly maximum likelihood."""
    task, adjacency = setup.task, setup.adjacency
    if setup.sharing is not None:
        raise ValueError(
            "noise_at must be 'server' for inference with the logistic loss, got 'parties': its "
            "noise is in the objective, so the server sees exact sums while it minimises. Noise "
            "for the squared loss can be added in shares."
        )
    if setup.noise_free:
        if options.regulariser == "auto":
            task = replace(task, regulariser=min(task.regulariser, LIGHT_L2))
        certain = certain_joint_tolerance(task, adjacency=adjacency)
        return LogisticInference(
            task=task,
            plan=None,
            adjacency=adjacency,
            tolerance=options.gradient_norm(task, certain=certain),
            run=setup.run,
        )
    noise = objective_noise(setup, law="auto", solver_share=options.solver_share)
    if options.regulariser == "auto":
        task = replace(task, regulariser=auto_regulariser(task, noise, options))
        setup = replace(setup, task=task)
    mechanism, tolerance, step = _mechanism(task, noise, options)
    plan = plan_objective(
        setup,
        mechanism=mechanism,
        step=step,
        strategy=NAME,
        query="sums of exact gradients, until the joint minimiser is found, and of Hessians there",
        released="the minimiser of the perturbed objective of all records, and the noisy Hessian",
    )
    return LogisticInference(
        task=task,
        plan=replace(plan, dimension=task.dimension + moments.width(task.dimension)),
        adjacency=adjacency,
        tolerance=tolerance,
        run=setup.run,
    )


def auto_regulariser(task: Task, noise: ObjectiveNoise, options: InferenceOptions) -> float:
    """λ for which the Jacobian costs a tenth of ε, or more if hiding the solver needs it.

    With a small λ and many records the minimiser is certified so loosely that hiding the solver
    needs more noise than hiding the records; a large λ biases coefficients of narrow and of rare
    features further than can be corrected. So λ is the least at which the solver's noise is three
    tenths of the standard error from the records alone, √(d/(cN)) for d features that share the
    norm equally, and at most c/(200d). All of it follows from public facts; intervals cover both.
    """
    found = task.curvature / (task.records * expm1(noise.epsilon / 10))
    most = max(found, task.curvature / (_STRONGEST * task.dimension))
    allowed = _SOLVER_NOISE * sqrt(task.dimension / (task.curvature * task.records))
    while found < most:
        mechanism, _, _ = _mechanism(replace(task, regulariser=found), noise, options)
        if mechanism.output.noise_stddev <= allowed:
            break
        found = min(1.5 * found, most)
    return found


def _mechanism(
    task: Task, noise: ObjectiveNoise, options: InferenceOptions
) -> tuple[ObjectiveFitMechanism, float, float]:
    """The noise of the whole release, the tolerance of its minimiser, and its grid."""
    beside = with_hessian(noise, share=options.hessian_share)
    problem, step = joint_terms(task, beside, options, finest=True)
    mechanism = objective_fit(
        noise,
        problem,
        step=step,
        sensitivity=hessian_sensitivity(task, adjacency=noise.adjacency, step=_step(task)),
        share=options.hessian_share,
    )
    return mechanism, problem.tolerance, step


def _step(task: Task) -> float:
    """The grid step of a sum of Hessians."""
    return fine_step(task.feature_bound**2 / 4, moments.width(task.dimension))
