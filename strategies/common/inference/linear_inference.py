"""Linear inference: least squares from one release of noisy second moments."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.federation.queries.bounds import finest_grid, grid_of
from fedpriv.federation.queries.kinds import MomentsQuery
from fedpriv.federation.queries.moments import moment_sensitivity
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.inference.linear import adassp, linear_estimate
from fedpriv.inference.noisy_matrix import NoisyMatrix
from fedpriv.learning import moments
from fedpriv.learning.losses import Squared
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.planning.single import single_plan
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach, with_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.inference.coding import Coding
    from fedpriv.inference.estimate import Estimate
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.secagg import FixedPoint
    from fedpriv.strategies.common.building import Setup

    Vector = NDArray[np.float64]

NAME = "inference"
_FINE = 2.0**-10  # of a sensitivity: about what rounding to the grid adds to it


class LinearInference(SumStrategy):
    """One exchange, one release: noisy second moments of features and label."""

    name: ClassVar[str] = NAME

    def __init__(
        self, *, task: Task, plan: Plan | NoiseFree, adjacency: Adjacency, run: Run
    ) -> None:
        if not isinstance(task.loss, Squared):
            raise ValueError(f"loss must be Squared, got {type(task.loss).__name__}.")
        self._loss = task.loss
        self.width = moments.width(task.dimension + 1)
        super().__init__(task=task, plan=plan, run=run)
        self._step, self._mechanism = plan.step, plan.mechanisms[0]
        self._grid = _grid(task, self._mechanism, self._step)
        # Where neighbours have equally many records, and no hash holds any out, N is public.
        self._counted = adjacency is Adjacency.REPLACE_ONE and task.in_place
        self._released = np.zeros(self.width)

    @property
    def noise_stddev(self) -> float:
        """σ of a diagonal entry; with shares, that of all the parties' shares together."""
        if isinstance(self._mechanism, SharedNoise):
            return self._mechanism.stddev_of(self.task.parties)
        return 0.0 if self._mechanism is None else self._mechanism.noise_stddev

    def estimate(self, coding: Coding) -> Estimate:
        """Estimates of the coefficients from the release: post-processing.

        The number of records is N where that is public. Where it is private, it comes from the
        noisy sum of a constant feature, or without one from the declared N.
        """
        known, records = coding.known(self._moments()), float(self.task.records)
        if coding.constant is not None:
            place, value = coding.constant
            if self._counted:
                known = known.with_known(place, place, records * value**2)
            else:
                records = max(float(known.value[place, place]) / value**2, 1.0)
        found = linear_estimate(known.take([*coding.kept, self.task.dimension]), records=records)
        return found.mapped(np.eye(len(coding.kept)) / self._scale, np.zeros(len(coding.kept)))

    @property
    def _scale(self) -> float:
        """s: scales labels to the length of features, which makes the best use of their noise."""
        return self.task.feature_bound / self._loss.label_bound

    def _moments(self) -> NoisyMatrix:
        return NoisyMatrix.released(moments.symmetric(self._released), stddev=self.noise_stddev)

    def _query(self) -> MomentsQuery:
        return MomentsQuery(
            run=self._run.name,
            round=self._round,
            grid=self._grid,
            event=self._event(),
            share=share_of(self._mechanism),
            label_scale=self._scale,
            label_bound=self._loss.label_bound,
        )

    def _release(self, answer: Sum) -> Vector:
        require_everybody(self.task, answer)
        return released(self._mechanism, answer, self._stream)

    def _update(self, release: Vector) -> None:
        self._released = np.array(release)
        self._theta = np.asarray(adassp(self._moments()) / self._scale, dtype=np.float64)

    def _state(self) -> dict[str, Any]:
        return {"released": self._released}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._released = np.array(state["released"])


def plan_linear(setup: Setup) -> LinearInference:
    """The strategy, planned within its budget; without noise the moments are exact."""
    task, adjacency = setup.task, setup.adjacency
    radius, width = sqrt(2) * task.feature_bound, moments.width(task.dimension + 1)
    plan: FixedPlan | NoiseFree
    if setup.noise_free:
        bound = task.records * radius**2 * moments.SLACK**2
        plan = NoiseFree(step=finest_grid(bound=bound).step)
    else:
        if setup.sharing is not None and setup.sharing.law == "polya":
            raise ValueError(
                "share_law must be 'auto', 'skellam' or 'discrete-gaussian' for inference, got "
                "'polya': an interval is known to hold for noise that is nearly normal."
            )
        step = fine_step(radius**2, width)
        moved = moment_sensitivity(task, radius=radius, width=width, adjacency=adjacency, step=step)
        plan = single_plan(
            strategy=NAME,
            query="the sum over its records of all products of features and label",
            released="the second moments of features and label over all parties, with noise",
            budget=setup.budget,
            sensitivity=moved,
            width=width,
            sizes=task.sizes,
            step=step,
            adjacency=adjacency,
            unit=setup.unit,
        )
        if setup.sharing is not None:
            bound = _bound(task)
            plan = with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=(1.0,))
    return LinearInference(task=task, plan=plan, adjacency=adjacency, run=setup.run)


def _bound(task: Task) -> float:
    """The largest |coordinate| of the sum: n·2B² on the diagonal."""
    return task.records * 2 * task.feature_bound**2 * moments.SLACK**2


def _grid(task: Task, mechanism: Mechanism | None, step: float) -> FixedPoint:
    """A grid with room for the sum of all parties and for their shares of the noise."""
    bound = _bound(task) + share_reach(mechanism, task)
    return grid_of(step=step, bound=bound, parties=task.parties)


def fine_step(moved: float, width: int) -> float:
    """A grid on which rounding adds about a thousandth to a sensitivity of ``moved``."""
    return float(2.0 ** np.floor(np.log2(moved * _FINE / sqrt(width))))


def require_everybody(task: Task, answer: Sum) -> None:
    """Refuse a sum that lacks parties: N, and the records, would be others."""
    if sorted(answer.sizes) != sorted(task.sizes):
        raise RuntimeError(
            f"inference needs all {task.parties} parties in its sums, {len(answer.sizes)} "
            "answered: begin again with those that will stay."
        )
