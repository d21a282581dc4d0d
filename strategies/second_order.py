"""Second-order steps from sums: one noisy matrix of second moments, then few noisy gradients.

    M ← Σ x·xᵀ + noise                                        (a secure sum; symmetric)
    U·diag(w)·Uᵀ ← M/N
    P ← U·diag(1/(β·(max(w, 0) + φ) + λ))·Uᵀ
    for t = 1 … T:
        g ← (Σ clip_C(∇f(θ; x, y)) + N(0, σ_g²))/N            (a secure sum)
        θ ← θ − P·(g + λθ)
    publish the mean of the last T/2 iterates

β bounds the second derivative of the loss in the score, so that the Hessian of the risk is at most
β·M/N + λ: P is the inverse of a bound that holds at every θ, and only noise can make a step too
long. The matrix is therefore released once, independent of θ, and there is no step size to choose.
The noise of M has a norm of about σ_M·√(2d) and makes M indefinite: negative eigenvalues are
clamped, and the floor φ = σ_M·√(2d)/N, from public numbers alone, keeps steps short along
directions that the noise hides. With several classes the Hessian is at most ½·I ⊗ Σ x·xᵀ, because
diag(p) − p·pᵀ is at most ½: each class steps by the same P. All but the two kinds of sum is
post-processing.

The gain is in rounds: about the accuracy of well-tuned momentum in eight times fewer
(docs/second-order.md). Private second-order steps on convex problems: Ganesh, Haghifam, Steinke and
Thakurta 2023 (arXiv:2305.13209). Gaussian noise on Σ x·xᵀ, released once: Dwork,
Talwar, Thakurta and Zhang 2014.

With ``sampling_rate`` q every sum, the matrix too, is over its own Poisson sample, and q·N replaces
N.

For the person unit of privacy M is Σ over persons of the mean of a person's x·xᵀ, and gradients are
summed over a person's records, which makes them up to k times as steep for k declared records: k·β
replaces β.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from warnings import warn

import numpy as np

from fedpriv.federation.queries.kinds import GradientQuery, MomentsQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.learning.moments import UNITS, symmetric, width
from fedpriv.learning.optimisers import Averaged, Sgd
from fedpriv.privacy.planning.second_order import (
    MATRIX_SHARE,
    ROUNDS,
    least_records,
)
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.building import (
    Options,
    Positive,
    Rate,
    Rounds,
    Setup,
    Share,
    StrategyInfo,
    light_l2,
)
from fedpriv.strategies.common.optimiser import pack, unpack
from fedpriv.strategies.common.plans.second_order_plans import (
    matrix_stddev,
    plan_second_order,
    sum_bounds,
    sum_grid,
)
from fedpriv.strategies.common.plans.sharing import released, share_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.privacy.planning.second_order import SecondOrderPlan

    Vector = NDArray[np.float64]


class SecondOrderOptions(Options):
    """Options of second-order steps.

    Attributes:
        rounds: T, the number of rounds after the matrix.
        clip: C, the bound on one record's gradient, or on a person's summed gradients; "auto" is G,
            the bound that the loss has without clipping.
        matrix_share: The share of μ² spent on the matrix.
        floor: Factor of the floor φ under the eigenvalues.
        sampling_rate: Poisson rate of the records of every sum; 1 is all records.
        accountant: Name of the accountant, or "auto" for the tightest.
    """

    rounds: Rounds = ROUNDS
    clip: Positive | Literal["auto"] = "auto"
    matrix_share: Share = MATRIX_SHARE
    floor: Positive = 1.0
    sampling_rate: Rate = 1.0
    accountant: str = "auto"


class SecondOrder(SumStrategy):
    """One release of a matrix, and T of gradients."""

    name: ClassVar[str] = "second-order"

    def __init__(
        self,
        *,
        task: Task,
        plan: SecondOrderPlan | NoiseFree,
        run: Run,
        floor: float,
        start: Vector | None = None,
    ) -> None:
        super().__init__(task=task, plan=plan, run=run, start=start)
        if plan.clip_norm is None:
            raise ValueError("plan must state the clip_norm of a gradient, got None.")
        self._plan, self._clip = plan, plan.clip_norm
        self._smoothness = score_curvature(task)
        self._floor = floor
        self._optimiser = Averaged(optimiser=Sgd(learning_rate=1.0), skip=(plan.rounds - 1) // 2)
        self._iterate = self._theta
        self._memory = self._optimiser.start(self._iterate)
        self._inverse = np.zeros((task.model.features, task.model.features))

    @property
    def _release_length(self) -> int:
        """A triangle first, then gradients."""
        return self.task.dimension if self._round else width(self.task.model.features)

    def _query(self) -> MomentsQuery | GradientQuery:
        mechanism, task = self._plan.mechanisms[self._round], self.task
        matrix, gradient = sum_bounds(task, self._clip)
        bound = gradient if self._round else matrix
        common: dict[str, Any] = {
            "run": self._run.name,
            "round": self._round,
            "grid": sum_grid(task, bound, mechanism, self._plan.step),
            "event": self._event(),
            "share": share_of(mechanism),
            "sampling_rate": self._plan.rate(self._round),
        }
        if self._round == 0:
            return MomentsQuery(**common)
        return GradientQuery(**common, theta=self._iterate, clip_norm=self._clip)

    def _release(self, answer: Sum) -> Vector:
        """A noisy mean, divided by the stated number of records: the real one may be private."""
        noisy = released(self._plan.mechanisms[self._round], answer, self._stream)
        return noisy / (self._plan.rate(self._round) * sum(answer.sizes))

    def _update(self, release: Vector) -> None:
        if self._round == 0:
            self._inverse = self._inverted(symmetric(release))
            return
        gradient = release + self.task.regulariser * self._iterate
        by_class = gradient.reshape(-1, self.task.model.features)
        step = (by_class @ self._inverse).ravel()
        self._iterate, self._memory = self._optimiser.step(self._iterate, step, self._memory)
        self._theta = self._memory.average

    def _inverted(self, matrix: Vector) -> Vector:
        """P, with negative eigenvalues clamped and none below the floor."""
        values, vectors = np.linalg.eigh(matrix)
        bounded = self._smoothness * (np.maximum(values, 0.0) + self._floor)
        inverse: Vector = (vectors / (bounded + self.task.regulariser)) @ vectors.T
        return (inverse + inverse.T) / 2

    def _state(self) -> dict[str, Any]:
        return {"iterate": self._iterate, "inverse": self._inverse, **pack(self._memory)}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._iterate, self._inverse = np.array(state["iterate"]), np.array(state["inverse"])
        self._memory = unpack(state, like=self._memory)


INFO = StrategyInfo(
    name=SecondOrder.name,
    summary="few noisy gradient steps, preconditioned by one noisy matrix of second moments",
    noise_by="server",
    asks=("gradient", "moments"),
    convex_only=True,
    descends=True,
    options=SecondOrderOptions,
    shares=True,
    units=(Unit.RECORD, Unit.PERSON),
    auto_l2=light_l2,
    follows_budget=lambda _options: True,  # through the floor
)


def build(setup: Setup, options: SecondOrderOptions) -> SecondOrder:
    """The strategy, planned within its budget."""
    task = setup.task
    score_curvature(task)  # refuses losses without one
    plan = _plan(setup, options)
    # A twin without noise has the steps of the private run, and so its floor.
    planned = plan if setup.sibling is None else _plan(setup.sibling, options)
    stddev = matrix_stddev(planned.mechanisms[0], task) / options.sampling_rate
    if not setup.noise_free:
        _warn_if_hidden(task, stddev)
    return SecondOrder(
        task=task,
        plan=plan,
        run=setup.run,
        floor=options.floor * matrix_floor(task, stddev),
        start=task.initial(seed=0),
    )


def _plan(setup: Setup, options: SecondOrderOptions) -> SecondOrderPlan | NoiseFree:
    return plan_second_order(
        setup,
        rounds=options.rounds,
        clip_norm=setup.task.lipschitz if options.clip == "auto" else options.clip,
        matrix_share=options.matrix_share,
        accountant=options.accountant,
        sampling_rate=options.sampling_rate,
    )


def score_curvature(task: Task) -> float:
    """β: the Hessian of a record's loss is at most β·x·xᵀ; of a person's, β times the mean x·xᵀ.

    The smoothness that a loss states is for ‖x‖ ≤ 1, where it is attained: that of the score.
    """
    task.require_convex("second-order")
    if task.persons is None:
        return task.loss.smoothness
    if task.persons.records is None:
        raise ValueError(
            "persons.records must be given for second-order: how steep a person's loss is depends "
            "on the most records that one has."
        )
    return task.persons.records * task.loss.smoothness


def matrix_floor(task: Task, stddev: float) -> float:
    """φ = σ_M·√(2d)/N, at least what truncating the records can cost."""
    noise = stddev * sqrt(2 * task.model.features) / task.records
    return max(noise, task.feature_bound**2 / UNITS)


def _warn_if_hidden(task: Task, stddev: float) -> None:
    size, bound = task.model.features, task.feature_bound
    needed = least_records(size=size, matrix_stddev=stddev, feature_bound=bound)
    if task.records < needed:
        warn(
            f"second-order: noise hides the mean eigenvalue of the matrix, with {task.records} "
            f"records in {size} coordinates; a rule of thumb asks for {needed:.0f} records. "
            "Privacy is not affected, but the matrix may gain little. Use fewer features, a larger "
            "epsilon, or gradient-perturbation.",
            stacklevel=3,
        )
