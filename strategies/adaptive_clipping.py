"""Adaptive clipping: the bound on a record's gradient follows the releases.

    rule = "quantile"                                          (Andrew et al. 2021)
        S, n ← Σ clip_C(∇f)/C, and κ·Σ(b − ½), b = 1 for gradients that were not clipped
        θ ← step(θ, C·(S + noise)/N + λθ)
        C ← C·exp(−η_C·((n + noise)/(κN) + ½ − q))

    rule = "coordinate"                                        (AdaClip, Pichapati et al. 2019)
        S ← Σ clip_1((∇f − a)/b)
        g ← b·(S + noise)/N + a
        θ ← step(θ, g + λθ)
        a ← running mean of g, b² ∝ its running standard deviation, by coordinate; b = √(s_i·Σs)
            with size = "adaptive"

If more than the desired share q of the gradients is shorter than C, C is too large, and shrinks. S
and n form one vector, in one secure sum, with one draw of noise: one release a round, to which a
record adds a vector of norm at most √(1 + κ²/4), whatever C is. So the noise of all rounds, in
units that follow from earlier releases, is planned before the first; and the parties can add it in
shares, as with any sum. Whatever is computed from releases is free: θ, C, a and b.

With ``sampling_rate`` r both are sums over a Poisson sample, and r·N replaces N. A sampled record
adds that one vector; any other adds zero to gradients and count alike, not −κ/2. So each round is
one sampled Gaussian release, whatever the rule and the bound, and is amplified as one: the pair of
distributions that dominates it is known before the run, and such pairs compose although C, a and b
depend on releases (Zhu, Dong and Wang 2022, Thm. 10). Neighbours are add-remove.
"""

from __future__ import annotations

from math import exp, hypot, inf, log, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.learning.clipping.norms import LARGEST_CLIP, SMALLEST_CLIP
from fedpriv.learning.optimisers import Averaged
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.auto import strength
from fedpriv.strategies.common.building import (
    Positive,
    Rate,
    Rounds,
    Setup,
    Share,
    StrategyInfo,
    light_l2,
)
from fedpriv.strategies.common.coordinate_scale import Size, coordinate_scale
from fedpriv.strategies.common.optimiser import make_optimiser, pack, unpack
from fedpriv.strategies.common.plans.clipping_plans import clipping_plan, sum_bound
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach
from fedpriv.strategies.common.settling import (
    ClippedOptions,
    clip_of,
    follows_budget,
    settled,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.learning.optimisers import Optimiser
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.privacy.planning.noise_free import NoiseFree

    Vector = NDArray[np.float64]

_WIDEST = 2.0**6  # of C, in units of where it starts, either way


class ClippingOptions(ClippedOptions):
    """Options of adaptive clipping.

    Attributes:
        rounds: T, the number of rounds.
        rule: Adapt one bound to a quantile of the norms, or a scale for each coordinate.
        clip: C of the first round ("quantile"); or the root mean square of the scale b, which is
            the bound on a gradient while all coordinates have the same scale ("coordinate"). "auto"
            follows the rule of gradient perturbation, and so do the steps if neither learning_rate
            nor optimiser is given.
        size: How the scale b is sized ("coordinate"): "fixed" by ``clip``, or "adaptive" as in the
            paper, b_i² = s_i·Σs; then ``clip`` has no effect, and h₁ and h₂ keep b² within d·h₁ and
            d·h₂.
        largest_clip: An upper limit on one record's contribution to an answer: C·√(1 + κ²/4) or a
            scale. Parties of a deployment refuse a round beyond their ``max_clip``.
        quantile: q, the share of gradients that should not be clipped.
        clip_rate: η_C.
        count_share: The share of μ² spent on counting.
        mean_decay: β₁ of the running mean a.
        spread_decay: β₂ of the running variance behind b.
        least_variance: h₁, the least variance of a coordinate; if the size is fixed, only its ratio
            to h₂ matters.
        most_variance: h₂, the largest variance of a coordinate.
        sampling_rate: Poisson rate of the records of a round; 1 is full batch.
        accountant: Name of the accountant, or "auto" for the tightest.
        seed: Seed of the initial weights of a model that is not linear.
    """

    rounds: Rounds = 100
    rule: Literal["quantile", "coordinate"] = "quantile"
    size: Size = "fixed"
    largest_clip: Positive | None = None
    quantile: Share = 0.5
    clip_rate: Positive = 0.2
    count_share: Share = 0.05
    mean_decay: Share = 0.99
    spread_decay: Share = 0.9
    least_variance: Positive = 1e-8
    most_variance: Positive = 1e-2
    sampling_rate: Rate = 1.0
    accountant: str = "auto"
    seed: int = 0

    def most(self, counting: float | None) -> float:
        """The largest C, or scale, that keeps a record's part within its bound, up to rounding."""
        if self.largest_clip is None:
            return inf
        return self.largest_clip / hypot(1.0, (counting or 0.0) / 2) * (1 - 2.0**-50)


class AdaptiveClipping(SumStrategy):
    """T noisy steps, each one release, with an adaptive bound.

    Args:
        task: The problem.
        plan: In units of the bound: C, or the scale.
        optimiser: The server's optimiser.
        run: The run that it is part of.
        options: The strategy's options.
        counting: κ, for rule "quantile"; None for "coordinate".
    """

    name: ClassVar[str] = "adaptive-clipping"

    def __init__(
        self,
        *,
        task: Task,
        plan: FixedPlan | NoiseFree,
        optimiser: Optimiser,
        run: Run,
        options: ClippingOptions,
        counting: float | None,
    ) -> None:
        self.width = task.dimension + (counting is not None)
        start = task.initial(options.seed)
        super().__init__(task=task, plan=plan, run=run, start=start)
        self._plan, self._options, self._optimiser = plan, options, optimiser
        self._counting, self._most = counting, options.most(counting)
        self._middle = clip_of(options)
        self._first = min(self._middle, self._most)
        self._least = max(self._first / _WIDEST, SMALLEST_CLIP)
        self._clip = 1.0 if counting is None else self._first
        self._centre = np.zeros(task.dimension)
        middle = sqrt(options.least_variance * options.most_variance)
        self._variance = np.full(task.dimension, middle)
        self._iterate = self._theta
        self._memory = optimiser.start(self._iterate)

    @property
    def fixed_clip(self) -> float | None:
        """None where C moves; in scaled coordinates the bound is 1 and the scale moves."""
        return 1.0 if self._counting is None else None

    def _query(self) -> GradientQuery:
        mechanism, by_coordinate = self._plan.mechanisms[self._round], self._counting is None
        bound = sum_bound(self.task, self._counting) + share_reach(mechanism, self.task)
        return GradientQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=self._plan.step, bound=bound, parties=self.task.parties),
            event=self._event(),
            share=share_of(mechanism),
            theta=self._iterate,
            clip_norm=self._clip,
            sampling_rate=self._plan.rate(self._round),
            counting=self._counting,
            centre=self._centre if by_coordinate else None,
            scale=self._scale() if by_coordinate else None,
        )

    def _release(self, answer: Sum) -> Vector:
        """The noisy mean, in units of the bound, and the noisy count, per expected record."""
        noisy = released(self._plan.mechanisms[self._round], answer, self._stream)
        return noisy / (self._plan.rate(self._round) * sum(answer.sizes))

    def _update(self, release: Vector) -> None:
        if self._counting is None:
            self._follow_coordinates(release)
        else:
            self._step_along(self._clip * release[:-1])
            self._follow_quantile(float(release[-1]) / self._counting + 0.5)

    def _follow_quantile(self, below: float) -> None:
        # A noisy share may lie outside [0, 1]; no round moves C by more than e^±η.
        excess = min(1.0, max(0.0, below)) - self._options.quantile
        # At most from one end of the range to the other: a larger power might overflow.
        power = min(2 * log(_WIDEST), max(-2 * log(_WIDEST), -self._options.clip_rate * excess))
        moved = max(self._least, self._clip * exp(power))
        self._clip = min(self._first * _WIDEST, self._most, LARGEST_CLIP, moved)

    def _scale(self) -> Vector:
        """b² in proportion to the standard deviation: the least harm of noise of a given total."""
        spread, options = np.sqrt(self._variance), self._options
        scale = coordinate_scale(spread, clip=self._middle, size=options.size)
        return np.minimum(scale, self._most)

    def _follow_coordinates(self, release: Vector) -> None:
        options, scale = self._options, self._scale()
        gradient = scale * release + self._centre
        self._step_along(gradient)
        expected = self._plan.rate(self._round) * self.task.records
        seen = (gradient - self._centre) ** 2 - (scale * self._noise / expected) ** 2
        bounded = np.clip(seen, options.least_variance, options.most_variance)
        decay = options.spread_decay
        self._variance = decay * self._variance + (1 - decay) * bounded
        self._centre = options.mean_decay * self._centre + (1 - options.mean_decay) * gradient

    @property
    def _noise(self) -> float:
        """The standard deviation of the noise on a coordinate of the sum over all parties."""
        mechanism = self._plan.mechanisms[self._round]
        if isinstance(mechanism, SharedNoise):
            return mechanism.stddev_of(self.task.parties)
        return 0.0 if mechanism is None else mechanism.noise_stddev

    def _step_along(self, gradient: Vector) -> None:
        full = gradient + self.task.regulariser * self._iterate
        self._iterate, self._memory = self._optimiser.step(self._iterate, full, self._memory)
        averaged = isinstance(self._optimiser, Averaged)
        self._theta = self._memory.average if averaged else self._iterate

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
    asks=("gradient by coordinate", "gradient with a count"),
    convex_only=False,
    options=ClippingOptions,
    shares=True,
    units=(Unit.RECORD, Unit.PERSON),
    auto_l2=light_l2,
    follows_budget=follows_budget,
)


def build(setup: Setup, options: ClippingOptions) -> AdaptiveClipping:
    """The strategy, planned within its budget."""
    task = setup.task
    options = _settled(setup.private, options)
    plan, counting = clipping_plan(setup, options, name=AdaptiveClipping.name)
    return AdaptiveClipping(
        task=task,
        plan=plan,
        optimiser=make_optimiser(options, task, rounds=options.rounds),
        run=setup.run,
        options=options,
        counting=counting,
    )


def _settled(setup: Setup, options: ClippingOptions) -> ClippingOptions:
    """The options with "auto" replaced by numbers and names, from public facts alone.

    The noise is as strong as in gradient perturbation, except for the counts; steps follow from C
    of the first round, before ``largest_clip`` lowers it.
    """

    def strength_at(clip: float) -> float:
        tried = options.model_copy(update={"clip": clip})
        plan, _ = clipping_plan(setup, tried, name=AdaptiveClipping.name)
        return strength(plan, setup.task, clip_norm=1.0)  # the plan is in units of the bound

    return settled(options, setup.task, rounds=options.rounds, strength_at=strength_at)
