"""A joint fit: the minimiser of all records together, by secure sums of exact gradients.

The server learns every exact sum on the way, and must be trusted with it; only the end is released.
The parties see the points at which sums are asked for. These follow from the sums before, with one
b in all of them: whoever knows all records but one can compute that one from three points. So a
deployed fit also rests on trust in the other parties, and its statement says so.
N is the public number of records of the task. Under add-remove adjacency it is a declared one: the
objective of any data set is divided by it, and bounds that grow with the true number allow for
`HEADROOM` times as many records. They serve the solver alone. For the person unit, N counts
persons, and f is the mean over one person's records at a party.
"""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv.federation.queries.bounds import (
    finest_grid,
    headroom,
    objective_problem,
    require_conditioned,
)
from fedpriv.federation.queries.kinds import RiskGradientQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.learning.clipping.norms import SMALLEST_CLIP, require_clip
from fedpriv.learning.erm.certificate import ToleranceNotReachedError
from fedpriv.learning.erm.minimise import minimise
from fedpriv.privacy.planning.objective.objective import linear_reach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.secagg import FixedPoint

    Vector = NDArray[np.float64]

_EXPECTED_EXCHANGES = 40
_MAX_EXCHANGES = 5000
_U = 2.0**-53


HESSIANS_SEEN = "exact sums of gradients, and of Hessians where a fit ends, over all parties"
"""What the server learns on the way to a fit with intervals."""


class JointStrategy(SumStrategy):
    """Minimise (1/N)Σ f(θ) + (λ/2)‖θ‖² [+ bᵀθ/N + (Δ/2)‖θ‖²] over all parties. Use a subclass.

    No checkpoint holds anything of the fit: exact sums never touch a disk. After an interruption
    the fit restarts, in a release with the same b: the number of exchanges depends on b and the
    records, and if every fit that was stopped for taking long got a new b, the final release would
    have another distribution. For the same reason a fit that *fails* is never tried again: its
    release is void, permanently, in the ledger.
    """

    server_also_sees: ClassVar[str] = "exact sums of gradients over all parties"

    def __init__(
        self,
        *,
        task: Task,
        plan: Plan | None,
        adjacency: Adjacency,
        tolerance: float,
        run: Run,
    ) -> None:
        task.require_strongly_convex(self.name)
        if plan is not None and plan.adjacency is not adjacency:
            raise ValueError(
                f"adjacency must be the plan's, {plan.adjacency.value!r}, got {adjacency.value!r}."
            )
        super().__init__(task=task, plan=plan, run=run)
        self._headroom = headroom(adjacency, task)
        if plan is not None:
            require_conditioned(task, regulariser=task.regulariser, headroom=self._headroom)
            require_clip(max(SMALLEST_CLIP, 2 * task.lipschitz))  # or no gradient is exact
        self._tolerance = tolerance
        self._fit: Fit | None = None

    @abstractmethod
    def _begin(self) -> tuple[Vector, float]:
        """b and Δ of this fit; zero, unless the objective is perturbed."""

    @abstractmethod
    def _end(self, theta: Vector) -> Vector:
        """The release, from a point with a gradient norm of at most the tolerance."""

    @property
    def rounds(self) -> int:
        """A guess: how many exchanges a fit needs is known only at its end."""
        return _EXPECTED_EXCHANGES

    def _query(self) -> Query:
        fit = self._fit or self._started()
        return RiskGradientQuery(
            run=self._run.name,
            round=self._round,
            grid=fit.grid,
            event=self._event(),
            theta=fit.wanted,
            exchange=fit.exchanges,
            headroom=self._headroom,
        )

    def _release(self, answer: Sum) -> Vector | None:
        fit, task = self._fit, self.task
        if fit is None:
            raise RuntimeError("a sum was learned that was not asked for.")
        if sorted(answer.sizes) != sorted(task.sizes):
            raise RuntimeError(
                f"a joint fit needs all {task.parties} parties in every exchange, "
                f"{len(answer.sizes)} answered: begin again with those that will stay."
            )
        try:
            found = fit.tell(answer.value / task.records)
        except (ToleranceNotReachedError, ValueError):  # the latter: b too long to be certified
            self.void()
            raise
        return None if found is None else self._end(found)

    def void(self) -> None:
        """Spend the release without making it: it is not tried again."""
        reservation, self._reservation = self._reservation, None
        if self._run.ledger is not None and reservation is not None:
            self._run.ledger.commit(reservation, b"")

    def _stored(self, data: bytes) -> Vector:
        if not data:
            raise RuntimeError(
                f"the joint fit of run {self._run.name!r} failed, and is not tried again: a new "
                "draw for the same payment would be selected by this failure. Nothing was "
                "released, and the budget of the release is spent. Start a new run, with a larger "
                "model.l2 or tolerance."
            )
        return super()._stored(data)

    def _update(self, release: Vector) -> None:
        self._theta = release
        self._fit = None

    def _started(self) -> Fit:
        linear, extra = self._begin()
        self._fit = Fit(
            task=self.task,
            linear=linear / self.task.records,
            strong_convexity=self.task.regulariser + extra,
            tolerance=self._tolerance,
            headroom=self._headroom,
        )
        return self._fit


class Fit:
    """`minimise`, turned inside out: it names a point, and receives the gradient there.

    The minimiser calls for gradients, while here they arrive from outside. It is deterministic, so
    it is rerun from its start on all gradients so far, until it asks for one more.

    Args:
        task: The problem.
        linear: b/N.
        strong_convexity: λ + Δ.
        tolerance: The gradient norm to certify.
        headroom: The parties hold at most so many times N records: the objective is then
            (headroom·c + λ + Δ)-smooth, and its mean gradient at most headroom·G.
    """

    def __init__(
        self,
        *,
        task: Task,
        linear: Vector,
        strong_convexity: float,
        tolerance: float,
        headroom: float = 1.0,
    ) -> None:
        self._task = task
        self._headroom = headroom
        self._linear = linear
        self._strong_convexity = strong_convexity
        self._tolerance = tolerance
        self._gradients: list[Vector] = []
        self._coarsest = 0.0  # grid step of the coarsest sum so far
        self.wanted = np.zeros(task.dimension)

    @property
    def exchanges(self) -> int:
        """How many gradients were received."""
        return len(self._gradients)

    @property
    def grid(self) -> FixedPoint:
        """The finest grid for the sum that is needed next."""
        most = self._headroom * self._task.records
        return finest_grid(bound=most * self._task.gradient_bound(self.wanted))

    def tell(self, mean: Vector) -> Vector | None:
        """Take the mean gradient at ``wanted``; returns the minimiser, once certified."""
        self._coarsest = max(self._coarsest, self.grid.step)
        self._gradients.append(mean + self._linear + self._strong_convexity * self.wanted)
        told = iter(self._gradients)

        def gradient(theta: Vector) -> Vector:
            known = next(told, None)
            if known is None:
                raise _Wanted(theta)
            return known

        try:
            minimum = minimise(
                gradient,
                np.zeros(self._task.dimension),
                strong_convexity=self._strong_convexity,
                smoothness=self._headroom * self._task.curvature + self._strong_convexity,
                tolerance=self._tolerance,
                oracle_error=self._oracle_error(),
                max_queries=_MAX_EXCHANGES,
            )
        except _Wanted as wanted:
            self.wanted = wanted.theta
            return None
        return minimum.theta

    def _oracle_error(self) -> float:
        return _oracle_error(
            self._task,
            headroom=self._headroom,
            strong_convexity=self._strong_convexity,
            pull=float(np.linalg.norm(self._linear)),
            tolerance=self._tolerance,
            step=self._coarsest,
        )


def certain_joint_tolerance(
    task: Task, *, adjacency: Adjacency, objective: ObjectiveNoise | None = None
) -> float:
    """The least gradient norm to which a joint fit is certified whatever the records are.

    Four times the largest error of a received gradient; with a linear term in the objective, for a
    length that b exceeds with a probability of 2⁻⁶⁰. With less, long b would fail where short ones
    do not, and whoever tries again until a fit succeeds would release from another law of b.
    """
    task.require_convex("a minimiser")
    if not task.regulariser:
        return 0.0  # there is no minimiser, and the strategy will say so
    extra = pull = 0.0
    if objective is not None:
        problem = objective_problem(task, task.records, regulariser=task.regulariser, tolerance=1.0)
        linear, extra = objective.perturbation(problem)
        pull = linear_reach(linear, task.dimension) / task.records
    most = headroom(adjacency, task)
    return 4 * _oracle_error(
        task,
        headroom=most,
        strong_convexity=task.regulariser + extra,
        pull=pull,
        tolerance=0.01 * task.lipschitz,  # more than any: it hardly matters
        step=finest_grid(bound=most * task.records * task.lipschitz).step,
    )


def _oracle_error(
    task: Task,
    *,
    headroom: float,
    strong_convexity: float,
    pull: float,
    tolerance: float,
    step: float,
) -> float:
    """How far a mean gradient of a joint fit can be from the exact one, at the point returned.

    With r times N records, r ≤ headroom, that point is no longer than (rG + ‖b/N‖ + tolerance)/Λ.
    Float64 moves a score by at most γ_d·B‖θ‖, a slope by c times that and its own error, a sum of n
    terms by γ_n of their sizes (Higham 2002, §3.1), all of them r times in the mean; the grid moves
    each party's coordinate by half a step.
    """
    reach = (headroom * task.lipschitz + pull + tolerance) / strong_convexity
    gamma = 1.01 * _U * (headroom * task.most_records + task.dimension + 16)
    # A score is a sum of d products, whatever the number of records.
    smooth = task.curvature * 1.01 * _U * (task.dimension + 16) * reach
    slopes = task.feature_bound * task.loss.slope_rounding + 8 * gamma * task.lipschitz
    local = gamma * (strong_convexity * reach + pull)
    grid = task.parties * sqrt(task.dimension) * step / (2 * task.records)
    return headroom * (smooth + slopes) + local + grid


class _Wanted(Exception):
    def __init__(self, theta: Vector) -> None:
        super().__init__()
        self.theta = theta
