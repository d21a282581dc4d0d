"""Adaptive clipping: the bound on a record's gradient follows what was released.

    rule = "quantile"                                          (Andrew et al. 2021)
        S, n ← Σ clip_C(∇f), and how many records were not clipped         (one secure sum)
        θ ← step(θ, (S + noise)/N + λθ)
        C ← C·exp(−η_C·((n + noise)/N − q))

    rule = "coordinate"                                        (AdaClip, Pichapati et al. 2019)
        S ← Σ clip_1((∇f − a)/b)
        g ← b·(S + noise)/N + a
        θ ← step(θ, g + λθ)
        a ← running mean of g, b² ∝ its running standard deviation, by coordinate

If more than the wanted share q of the gradients is shorter than C, C is too large, and shrinks.
Counting is a release of its own: S and n together are one Gaussian vector, whose μ² is the sum of
the two (Dong, Roth and Su 2022, Cor. 2). The noise of S is relative to the C of its round, so that
its cost is the same in all rounds. Whatever follows from releases is free: θ, C, a and b.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedpriv.federation.queries.bounds import gradient_sensitivity, grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy, Step
from fedpriv.learning.optimisers import Averaged
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.mechanisms import GaussianMechanism
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import GdpFilter
from fedpriv.privacy.planning.plan import grid_sensitivity
from fedpriv.strategies.common.building import Count, Positive, Setup, Share, StrategyInfo
from fedpriv.strategies.common.optimiser import OptimiserOptions, make_optimiser, pack, unpack
from fedpriv.strategies.common.plans import gradient_grid, noise_free_gradients
from fedpriv.strategies.common.sharing import noisy_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.adaptive import Round
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.learning.optimisers import Optimiser
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.privacy.randomness import RandomStream

    Vector = NDArray[np.float64]

_WIDEST = 2.0**6  # of C, in units of where it starts, either way: the grid is fitted to that


class ClippingOptions(OptimiserOptions):
    """Options of adaptive clipping.

    Attributes:
        rounds: T.
        rule: Adapt one bound to a quantile of the norms, or a scale for each coordinate.
        clip: C of the first round ("quantile"); or the root mean square of the scale b, which is
            the bound on a gradient while all coordinates have the same scale ("coordinate").
        quantile: q, the share of gradients that should not be clipped.
        clip_rate: η_C.
        count_share: Which share of μ² pays for counting.
        mean_decay: β₁ of the running mean a.
        spread_decay: β₂ of the running variance behind b.
        least_variance: h₁, the least variance of a coordinate; only the ratio to h₂ matters.
        most_variance: h₂, the largest.
        seed: Of the initial weights of a model that is not linear.
    """

    rounds: Count = 100
    rule: Literal["quantile", "coordinate"] = "quantile"
    clip: Positive = 1.0
    quantile: Share = 0.5
    clip_rate: Positive = 0.2
    count_share: Share = 0.05
    mean_decay: Share = 0.99
    spread_decay: Share = 0.9
    least_variance: Positive = 1e-8
    most_variance: Positive = 1e-2
    seed: int = 0


class AdaptiveClipping(AdaptiveStrategy):
    """T noisy steps, with a bound that adapts."""

    name: ClassVar[str] = "adaptive-clipping"

    def __init__(
        self,
        *,
        task: Task,
        plan: AdaptivePlan | NoiseFree,
        optimiser: Optimiser,
        run: Run,
        options: ClippingOptions,
    ) -> None:
        start = task.model.initial(np.random.default_rng(options.seed)).numpy()
        super().__init__(task=task, plan=plan, rounds=options.rounds, run=run, start=start)
        self._options, self._optimiser = options, optimiser
        self._clip = options.clip if options.rule == "quantile" else 1.0
        self._centre = np.zeros(task.dimension)
        middle = sqrt(options.least_variance * options.most_variance)
        self._variance = np.full(task.dimension, middle)
        self._iterate = self._theta
        self._memory = optimiser.start(self._iterate)
        counting = options.rule == "quantile"
        each = (
            0.0 if self.plan is None else self.plan.filter.limit / options.rounds
        )  # μ² of a round
        self._gradient_mu = sqrt(each * (1 - options.count_share) if counting else each)
        self._count_mu = sqrt(each * options.count_share)
        self._grid_step = plan.step

    def _play(self) -> Round:
        return self._quantile() if self._options.rule == "quantile" else self._coordinate()

    def _quantile(self) -> Round:
        mechanism, counting = self._on_gradients(), self._on_counts()
        query = self._query_at(self._both(), counted=True)

        def count(answer: Sum, stream: RandomStream) -> Vector:
            noisy = noisy_sum(counting, answer.total[-1:], step=answer.step, stream=stream)
            return noisy / sum(answer.sizes)

        gradient = yield Step(release=mechanism, query=query, draw=self._mean(mechanism))
        (below,) = yield Step(release=counting, query=query, draw=count, part="count")
        self._step_along(gradient)
        # A noisy share may lie outside [0, 1]; no round moves C by more than e^±η.
        excess = min(1.0, max(0.0, float(below))) - self._options.quantile
        # From one end of the range to the other, at most: a larger power might overflow.
        power = min(2 * log(_WIDEST), max(-2 * log(_WIDEST), -self._options.clip_rate * excess))
        moved = self._clip * exp(power)
        low, high = self._options.clip / _WIDEST, self._options.clip * _WIDEST
        self._clip = min(high, max(low, moved))

    def _coordinate(self) -> Round:
        # Noise of a given total harms least with b² in proportion to the standard deviation.
        spread = np.sqrt(self._variance)
        scale = self._options.clip * np.sqrt(spread / spread.mean())
        mechanism = self._on_gradients()
        event = None if mechanism is None else mechanism.event()
        query = self._query_at(event, centre=self._centre, scale=scale)
        scaled = yield Step(release=mechanism, query=query, draw=self._mean(mechanism))
        gradient = scale * scaled + self._centre
        self._step_along(gradient)
        options, records = self._options, self.task.records
        noise = 0.0 if mechanism is None else (scale * mechanism.stddev / records) ** 2
        seen = (gradient - self._centre) ** 2 - noise
        bounded = np.clip(seen, options.least_variance, options.most_variance)
        decay = options.spread_decay
        self._variance = decay * self._variance + (1 - decay) * bounded
        self._centre = options.mean_decay * self._centre + (1 - options.mean_decay) * gradient

    def _step_along(self, gradient: Vector) -> None:
        full = gradient + self.task.regulariser * self._iterate
        self._iterate, self._memory = self._optimiser.step(self._iterate, full, self._memory)
        averaged = isinstance(self._optimiser, Averaged)
        self._theta = self._memory.average if averaged else self._iterate

    # The noise of a round; None in a run without.

    def _on_gradients(self) -> GaussianMechanism | None:
        if self.plan is None:
            return None
        moved = gradient_sensitivity(self.task, clip_norm=self._clip, adjacency=self.plan.adjacency)
        sensitivity = grid_sensitivity(moved, dimension=self.task.dimension, step=self.plan.step)
        return GaussianMechanism(
            sensitivity=sensitivity,
            stddev=sensitivity / self._gradient_mu,
            adjacency=self.plan.adjacency,
            unit=self.plan.unit,
        )

    def _on_counts(self) -> GaussianMechanism | None:
        """A record more, less or another changes the count by at most one; the grid is exact."""
        if self.plan is None:
            return None
        return GaussianMechanism(
            sensitivity=1.0,
            stddev=1 / self._count_mu,
            adjacency=self.plan.adjacency,
            unit=self.plan.unit,
        )

    def _both(self) -> GaussianEvent | None:
        """What the parties are told: the cost of both releases together."""
        if self.plan is None:
            return None
        relative = 1 / sqrt(self._gradient_mu**2 + self._count_mu**2)
        return GaussianEvent(
            adjacency=self.plan.adjacency, unit=self.plan.unit, relative_noise=relative
        )

    def _mean(self, mechanism: GaussianMechanism | None) -> Any:
        def draw(answer: Sum, stream: RandomStream) -> Vector:
            total = answer.total[: self.task.dimension]
            noisy = noisy_sum(mechanism, total, step=answer.step, stream=stream)
            return noisy / sum(answer.sizes)

        return draw

    def _query_at(self, event: GaussianEvent | None, **more: Any) -> GradientQuery:
        bound = self.task.records * max(self._clip, 1.0)
        return GradientQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=self._grid_step, bound=bound, parties=self.task.parties),
            event=event,
            theta=self._iterate,
            clip_norm=self._clip,
            **more,
        )

    def _state(self) -> dict[str, Any]:
        return {
            "iterate": self._iterate,
            "clip": self._clip,
            "centre": self._centre,
            "variance": self._variance,
            **pack(self._memory),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._iterate, self._clip = np.array(state["iterate"]), float(state["clip"])
        self._centre, self._variance = np.array(state["centre"]), np.array(state["variance"])
        self._memory = unpack(state, like=self._memory)


INFO = StrategyInfo(
    name=AdaptiveClipping.name,
    summary="noisy descent whose clipping follows the released gradients or a noisy quantile",
    noise_by="server",
    convex_only=False,
    options=ClippingOptions,
)


def build(setup: Setup, options: ClippingOptions) -> AdaptiveClipping:
    """The strategy, with an empty plan and a fresh filter."""
    task = setup.task
    optimiser = make_optimiser(options, task, rounds=options.rounds)
    return AdaptiveClipping(
        task=task,
        plan=_plan(setup, options),
        optimiser=optimiser,
        run=setup.run,
        options=options,
    )


def _plan(setup: Setup, options: ClippingOptions) -> AdaptivePlan | NoiseFree:
    task, quantile = setup.task, options.rule == "quantile"
    if setup.noise_free:
        widest = max(1.0, _WIDEST * options.clip)
        return noise_free_gradients(
            setup, rates=(1.0,) * options.rounds, clip_norm=options.clip, widest=widest
        )
    step, _ = gradient_grid(setup, clip_norm=options.clip / _WIDEST if quantile else 1.0)
    return AdaptivePlan(
        strategy=AdaptiveClipping.name,
        query="the sum of its records' clipped gradients, and how many were not clipped",
        released="noisy sums of gradients and noisy counts, hence every model of the run",
        parties=task.parties,
        records=task.records,
        smallest_party=task.smallest,
        dimension=task.dimension,
        step=min(step, 1.0),
        clip_norm=options.clip if quantile else 1.0,
        filter=GdpFilter(budget=setup.budget, adjacency=setup.adjacency, unit=setup.unit),
    )
