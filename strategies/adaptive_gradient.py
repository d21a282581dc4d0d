"""Adaptive gradient descent: noise and step size follow from earlier releases.

    p ← R/2s of the budget                                    (s splits; noise of precision p)
    while the budget lasts:
        g ← noisy mean of clipped gradients, precision p
        repeat:
            u ← (g + λθ)/‖g + λθ‖
            i ← noisy argmin over i = 0 … k of the clipped risk at θ − α_i·u,   α_0 = 0
            if i > 0:  θ ← θ − α_i·u;  leave
            g ← average of g with a second noisy gradient of precision γp, weighted by precision
            p ← (1 + γ)·p

Lee and Kifer 2018 ("Concentrated differentially private gradient descent with adaptive
per-iteration privacy budget"). When no step seems to help, the gradient is measured again, more
exactly; earlier measurements are kept. Here noisy-min is report-noisy-max (ε for monotone losses,
twice the noise for others), each release is charged once and before it is asked for, and a Rényi
filter pays: noise that depends on earlier releases needs a filter, which their theorem lacks.

With ``sampling_rate`` q every sum, of gradients or of losses, is over a fresh Poisson sample, and
q·N replaces N. Given earlier releases, each is one sampled release, whose divergence at the
filter's order is charged before it is asked for. Two releases on one sample would not be: the noise
of the second would be chosen after a first look at the same draw.
"""

from __future__ import annotations

from itertools import count
from math import floor, log2, sqrt
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery, LossQuery
from fedpriv.federation.queries.loss import loss_sensitivity
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy, Step
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.mechanisms.selection import ExponentialMechanism, ReportNoisyMax
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import RdpFilter, least_noise, most_epsilon
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.planning.plan import grid_sensitivity
from fedpriv.privacy.unit import Unit
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.building import (
    Count,
    Options,
    Positive,
    Rate,
    Rounds,
    Setup,
    StrategyInfo,
)
from fedpriv.strategies.common.plans.plans import (
    gradient_grid,
    noise_free_gradients,
    require_sampleable,
)
from fedpriv.strategies.common.plans.sharing import noisy_sum

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.adaptive import Round
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.privacy.events import Event
    from fedpriv.privacy.planning.adaptive_plan import Release
    from fedpriv.privacy.randomness import RandomStream

    Vector = NDArray[np.float64]

_LEVELS = 2**16  # least number of grid steps in the bound on one record's loss
_REVIEW = 10  # rounds after which the range of steps is fitted to those that were taken
_MOST = 2.0**52  # grid steps: sums of losses up to this size are exact in float64
_ROOM = 1.1  # the largest step taken, times this, is the new end of the range


class AdaptiveOptions(Options):
    """Options of adaptive gradient descent; the defaults are the paper's.

    Attributes:
        clip: C, the bound on the gradient of one record, or person.
        loss_clip: The bound on the loss of one record, or person.
        splits: s: a first gradient and a selection cost 1/2s of the budget each.
        growth: γ, by which the precision of gradients grows when no step helps.
        candidates: k, the number of step sizes.
        largest_step: α_k at the start; the step is along a unit vector.
        selection: The rule of the noisy argmin. The exponential mechanism composes better.
        rounds: The largest number of rounds; the budget usually ends first.
        sampling_rate: Poisson rate of the records of every sum; 1 is all records.
        seed: Seed of the initial weights of a model that is not linear.
    """

    clip: Positive = 3.0
    loss_clip: Positive = 3.0
    splits: Count = 60
    growth: Positive = 0.1
    candidates: Count = 20
    largest_step: Positive = 2.0
    selection: Literal["report-noisy-max", "exponential"] = "report-noisy-max"
    rounds: Rounds = 1000
    sampling_rate: Rate = 1.0
    seed: int = 0


class AdaptiveGradient(AdaptiveStrategy):
    """Rounds of one step each; a round makes at least two releases."""

    name: ClassVar[str] = "agd"

    def __init__(
        self,
        *,
        task: Task,
        plan: AdaptivePlan | NoiseFree,
        moved: float,
        run: Run,
        options: AdaptiveOptions,
    ) -> None:
        start = task.initial(options.seed)
        super().__init__(task=task, plan=plan, rounds=options.rounds, run=run, start=start)
        if plan.clip_norm is None:
            raise ValueError("plan must state the clip_norm of a gradient, got None.")
        self._options = options
        self._clip, self._grid_step = plan.clip_norm, plan.step
        self._longest = options.largest_step
        self._taken = self._relative_noise = self._epsilon = 0.0
        self._rate = options.sampling_rate
        self._reach = loss_sensitivity(task, clip=options.loss_clip)
        # Refuses what no grid can represent, before anything is paid.
        self._levels = FixedPoint(step=2.0 ** floor(log2(options.loss_clip / _LEVELS))).step
        if isinstance(plan, NoiseFree):
            return
        if not isinstance(plan.filter, RdpFilter):
            raise ValueError("plan must hold a Rényi filter.")
        self._sensitivity = grid_sensitivity(moved, dimension=task.dimension, step=plan.step)
        self._relative_noise, self._epsilon = _strengths(plan, plan.filter, options)

    def _play(self) -> Round:
        first, chooser = self._gradient(1.0), self._chooser()
        if self.plan and first and chooser and not self.plan.affords(first, chooser):
            self.stopped = "the budget is too small for another gradient and another step."
            return
        gradient = yield self._asking(first)
        for attempt in count():
            full = gradient + self.task.regulariser * self._theta
            direction = full / max(float(np.linalg.norm(full)), np.finfo(float).tiny)
            steps = np.linspace(0, self._longest, self._options.candidates + 1)
            points = self._theta - np.outer(steps, direction)
            (index,) = yield self._choosing(chooser, points, attempt)
            if index > 0:
                break
            if first is None:
                self.stopped = "no step along the exact gradient lowers the risk."
                return
            second = self._gradient(1 / sqrt(self._options.growth))
            again = yield self._asking(second, part=f"gradient-{attempt}")
            share = self._options.growth / (1 + self._options.growth)
            gradient = (1 - share) * gradient + share * again
            self._relative_noise /= sqrt(1 + self._options.growth)
        self._theta = points[int(index)]
        self._remember(float(steps[int(index)]))

    def _remember(self, step: float) -> None:
        """Fit the range of candidates to the steps that were taken."""
        self._taken = max(self._taken, step)
        if (self.round + 1) % _REVIEW == 0:
            self._longest, self._taken = _ROOM * self._taken, 0.0

    def _gradient(self, factor: float) -> GaussianMechanism | None:
        """Noise on a sum of gradients, in units of the round's first noise; None without noise."""
        if self.plan is None:
            return None
        return GaussianMechanism(
            sensitivity=self._sensitivity,
            stddev=factor * self._relative_noise * self._sensitivity,
            adjacency=self.plan.adjacency,
            unit=self.plan.unit,
        )

    def _asking(self, mechanism: GaussianMechanism | None, part: str = "") -> Step:
        def draw(answer: Sum, stream: RandomStream) -> Vector:
            noisy = noisy_sum(mechanism, answer.total, step=answer.step, stream=stream)
            return noisy / (self._rate * self.task.gradient_count("proportional", answer.sizes))

        bound = self.task.records * self._clip
        query = GradientQuery(
            run=self._run.name,
            round=self._release_index,
            grid=grid_of(step=self._grid_step, bound=bound, parties=self.task.parties),
            event=self._priced(mechanism),
            theta=self._theta,
            clip_norm=self._clip,
            sampling_rate=self._rate,
        )
        return Step(release=mechanism, query=query, draw=draw, part=part)

    def _chooser(self) -> ReportNoisyMax | ExponentialMechanism | None:
        """The rule of a selection that costs one share of the budget; None without noise.

        Under add-remove adjacency all losses move the same way: monotone.
        """
        if self.plan is None:
            return None
        range_only = self._options.selection == "exponential"
        kind = ExponentialMechanism if range_only else ReportNoisyMax
        return kind(
            adjacency=self.plan.adjacency,
            unit=self.plan.unit,
            epsilon=self._epsilon,
            sensitivity=self._reach,
            monotone=self.plan.adjacency is Adjacency.ADD_REMOVE,
        )

    def _choosing(
        self, chooser: ReportNoisyMax | ExponentialMechanism | None, points: Vector, attempt: int
    ) -> Step:
        penalties = self.task.regulariser / 2 * np.square(points).sum(axis=1)

        def draw(answer: Sum, stream: RandomStream) -> Vector:
            count = self._rate * sum(answer.sizes)
            risks = answer.value + _on_grid(count * penalties, step=answer.step)
            least = np.argmin(risks) if chooser is None else chooser.select(-risks, stream)
            return np.array([float(least)])

        clip = self._options.loss_clip
        query = LossQuery(
            run=self._run.name,
            round=self._release_index,
            grid=grid_of(
                step=self._levels,
                bound=self.task.records * clip,
                parties=self.task.parties,
            ),
            event=self._priced(chooser),
            points=points,
            clip=clip,
            sampling_rate=self._rate,
        )
        return Step(release=chooser, query=query, draw=draw, part=f"step-{attempt}")

    def _priced(self, release: Release | None) -> Event | None:
        return None if release is None or self.plan is None else self.plan.priced(release)

    def _state(self) -> dict[str, Any]:
        return {
            "relative_noise": self._relative_noise,
            "longest": self._longest,
            "taken": self._taken,
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._relative_noise = float(state["relative_noise"])
        self._longest, self._taken = float(state["longest"]), float(state["taken"])


def _strengths(
    plan: AdaptivePlan, fund: RdpFilter, options: AdaptiveOptions
) -> tuple[float, float]:
    """σ/Δ of a first gradient and ε of a selection: each costs 1/2s of the budget.

    Without sampling, D_α is α/(2z²) for Gaussian noise, at most αε²/2 for ε-DP and at most αε²/8
    for the exponential mechanism (bounded range).
    """
    share, rate = fund.limit / (2 * options.splits), plan.sampling_rate
    if rate < 1:
        noise = least_noise(fund, amount=share, sampling_rate=rate)
        return noise, most_epsilon(fund, amount=share, sampling_rate=rate)
    most = (8 if options.selection == "exponential" else 2) * share
    return sqrt(fund.order / (2 * share)), sqrt(most / fund.order)


def _on_grid(penalties: Vector, *, step: float) -> Vector:
    """Penalties above the least of them, in whole grid steps: adding losses then rounds nothing.

    In floating point, a score with a large penalty would move by a whole unit of rounding or not
    at all, whatever a record's loss is: one record could count as many. Penalties cut off at
    2³⁵ times the bound on a loss have no chance of being selected anyway.
    """
    above: Vector = np.minimum(np.rint((penalties - penalties.min()) / step), _MOST)
    return above * step


INFO = StrategyInfo(
    name=AdaptiveGradient.name,
    summary="descend with noise and steps that follow from what was released",
    noise_by="server",
    asks=("gradient", "loss"),
    convex_only=False,
    options=AdaptiveOptions,
    units=(Unit.RECORD, Unit.PERSON),
)


def build(setup: Setup, options: AdaptiveOptions) -> AdaptiveGradient:
    """The strategy, with an empty plan and a fresh filter."""
    task = setup.task
    step, moved = gradient_grid(setup, clip_norm=options.clip)
    rate = options.sampling_rate
    require_sampleable(setup, rate, coins="a selection from sums")
    if setup.noise_free:
        exact = noise_free_gradients(setup, rates=(rate,) * options.rounds, clip_norm=options.clip)
        return AdaptiveGradient(task=task, plan=exact, moved=moved, run=setup.run, options=options)
    if setup.budget.delta == 0:
        raise ValueError(
            "delta must be positive for agd, got 0: Gaussian noise has no pure guarantee."
        )
    plan = AdaptivePlan(
        strategy=AdaptiveGradient.name,
        query="sums of its records' clipped gradients, and of their clipped losses at some points",
        released="noisy sums of gradients and the steps selected, hence every model of the run",
        parties=task.parties,
        records=task.records,
        smallest_party=task.smallest,
        dimension=task.dimension,
        step=step,
        clip_norm=options.clip,
        sampling_rate=rate,
        filter=RdpFilter.for_gaussians(
            budget=setup.budget, adjacency=setup.adjacency, unit=setup.unit
        ),
    )
    return AdaptiveGradient(task=task, plan=plan, moved=moved, run=setup.run, options=options)
