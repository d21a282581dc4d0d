"""Output perturbation: average the parties' minimisers, and add noise once.

    every party:  θ_j ← argmin (1/n_j)Σ f(θ; x, y) + (λ/2)‖θ‖²      (certified to a tolerance)
    server:       θ   ← Σ w_jθ_j + b                                (a secure sum over the parties)

Jayaraman, Wang, Evans and Gu 2018. With w_j = 1/m the smallest party decides the noise, for
2G/(m·n₍₁₎·λ); with w_j = n_j/N all parties count equally, for 2G/(N·λ), which is never more. b is
calibrated to the parties actually in the sum. The joint fit replaces the average by the minimiser
of all records, also for 2G/(N·λ), or G/(N·λ) under add-remove adjacency with a declared N.

For the person unit, f is the mean over one person's records at a party, n_j and N are declared
numbers of persons, and 2G becomes p·G (add-remove) or 2p·G, for persons at up to p parties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedpriv.federation.queries.bounds import model_sensitivity
from fedpriv.federation.queries.kinds import ErmQuery
from fedpriv.federation.queries.local_noise import rescaled
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.federation.strategy.joint import JointStrategy, certain_joint_tolerance
from fedpriv.privacy.planning.plan import grid_sensitivity
from fedpriv.privacy.unit import Unit
from fedpriv.strategies import non_private, pooled
from fedpriv.strategies.common.averaging import ModelOptions, mean_model, model_grid, on_grid
from fedpriv.strategies.common.building import Positive, Setup, StrategyInfo
from fedpriv.strategies.common.plans.minimiser_plans import (
    plan_output,
    regularised,
    with_optimal_regulariser,
    with_ruled_regulariser,
)
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.privacy.planning.plan import Plan


class OutputOptions(ModelOptions):
    """Options of output perturbation.

    Attributes:
        law: Distribution of the server's noise; "auto" is Gaussian if δ > 0, else l2-laplace.
        fit: "average" of the parties' minimisers, or the "joint" minimiser of all records, by
            secure sums of exact gradients, which the server then sees.
        regulariser: λ of the "model"; "auto" is that of a rule from public facts
            (`fedpriv.strategies.common.auto`), the default if an experiment states no λ; "optimal"
            balances the proved bounds on bias and noise.
        radius: D, a bound on the norm of a good model, for the optimal λ.
    """

    law: Literal["auto", "gaussian", "l2-laplace", "l1-laplace", "unsound-laplace"] = "auto"
    fit: Literal["average", "joint"] = "average"
    regulariser: Literal["model", "auto", "optimal"] = "model"
    radius: Positive = 10.0


class OutputPerturbation(SumStrategy):
    """One exchange, one release: the noisy average of the parties' minimisers."""

    name: ClassVar[str] = "output-perturbation"

    def __init__(
        self, *, task: Task, plan: Plan, weights: Weights, tolerance: float, run: Run
    ) -> None:
        task.require_stable_minimiser(self.name)
        super().__init__(task=task, plan=plan, run=run)
        self._plan = plan
        self._weights: Weights = weights
        self._tolerance = tolerance

    def _query(self) -> ErmQuery:
        (mechanism,) = self._plan.mechanisms
        reach = share_reach(mechanism, self.task)
        return ErmQuery(
            run=self._run.name,
            round=self._round,
            grid=model_grid(self.task, self._plan, noise_reach=reach),
            event=self._event(),
            share=share_of(mechanism),
            regulariser=self.task.regulariser,
            tolerance=self._tolerance,
            weights=self._weights,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        """The average over the parties that answered, with noise for exactly these.

        The parties' shares are sized for any of them: the weights do not depend on who answers.
        """
        (mechanism,) = self._plan.mechanisms
        if share_of(mechanism) is None:
            mechanism = rescaled(mechanism, sensitivity=self._sensitivity(answer))
        noisy = released(mechanism, answer, self._stream)
        return mean_model(noisy, self.task, self._weights, answer.sizes)

    def _sensitivity(self, answer: Sum) -> float:
        moved = model_sensitivity(
            self.task,
            regulariser=self.task.regulariser,
            tolerance=self._tolerance,
            weights=self._weights,
            sizes=answer.sizes,
            step=answer.step,
            adjacency=self._plan.adjacency,
        )
        return grid_sensitivity(moved, dimension=self.task.dimension, step=answer.step)

    def _update(self, release: NDArray[np.float64]) -> None:
        self._theta = release


class JointOutputPerturbation(JointStrategy):
    """Many exchanges, one release: the minimiser of all records, with noise for 2G/(N·λ).

    Under add-remove adjacency, N is the declared number, a constant of the objective, and the noise
    is for G/(N·λ). The true number of records enters nothing: the sums run over all of them, and
    the solver's certificate holds for up to `HEADROOM`·N of them.
    """

    name: ClassVar[str] = "output-perturbation"

    def _begin(self) -> tuple[NDArray[np.float64], float]:
        return np.zeros(self.task.dimension), 0.0

    def _end(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The minimiser rounded to the grid, with noise.

        Nothing is projected: 2G/(Nλ) + 2τ/λ holds for any two points of gradient norm at most τ,
        wherever they are. They fit 64 bits whatever the records are: ‖θ‖ ≤ (rG + τ)/λ with up to
        r·N records, and the step is at least 2⁻¹¹ % of G/(Nλ√d), so that no coordinate has more
        than 2¹⁸·N√d(r + τ/G) steps.
        A τ beyond G changes nothing: the fit ends where it begins, at zero.
        """
        plan = self._require_plan()
        total = on_grid(theta, step=plan.step)
        return plan.mechanisms[0].release(total, step=plan.step, stream=self._stream())


INFO = StrategyInfo(
    name=OutputPerturbation.name,
    summary="average the parties' minimisers, and add noise once",
    noise_by="server",
    asks=("erm",),
    convex_only=True,
    options=OutputOptions,
    shares=True,
    units=(Unit.RECORD, Unit.PERSON),
    follows_budget=lambda options: options.regulariser != "model",
)


def build(setup: Setup, options: OutputOptions) -> SumStrategy:
    """The strategy, planned within its budget; without noise it is `non_private` or `pooled`.

    A λ that follows from the noise would fall with it to zero, where there is no minimiser: so
    without noise λ is that of the private run whose twin this is, or else the model's.
    """
    setup = regularised(
        setup,
        options.regulariser,
        rule=lambda private: with_ruled_regulariser(
            private, plan=lambda tried: _plan(tried, options)[0]
        ),
        optimal=lambda private: with_optimal_regulariser(private, radius=options.radius),
    )
    task, joint = setup.task, options.fit == "joint"
    if setup.noise_free:
        return pooled.build(setup, options) if joint else non_private.build(setup, options)
    plan, tolerance = _plan(setup, options)
    if joint:
        return JointOutputPerturbation(
            task=task, plan=plan, adjacency=setup.adjacency, tolerance=tolerance, run=setup.run
        )
    return OutputPerturbation(
        task=task, plan=plan, weights=options.weights, tolerance=tolerance, run=setup.run
    )


def _plan(setup: Setup, options: OutputOptions) -> tuple[FixedPlan, float]:
    """The plan with the λ of the task, and the tolerance of its minimisers."""
    task, joint = setup.task, options.fit == "joint"
    certain = certain_joint_tolerance(task, adjacency=setup.adjacency) if joint else None
    tolerance = options.gradient_norm(task, certain=certain)
    plan = plan_output(
        setup, law=options.law, weights=options.weights, tolerance=tolerance, joint=joint
    )
    return plan, tolerance
