"""Gradient perturbation: descend along noisy sums of clipped gradients.

    for t = 1 … T:
        S ← Σ over all records of clip_C(∇f(θ; x, y))         (a secure sum over the parties)
        g ← (S + N(0, σ_t²)) / N + λθ
        θ ← step(θ, g)

With a Laplace law instead of N(0, σ_t²) the run is ε-DP with δ = 0, and each round has ε/T.

Jayaraman, Wang, Evans and Gu 2018 (full batch, noise inside a secure sum); Abadi et al. 2016
(Poisson sampling). The regulariser is neither clipped nor noised. The step is post-processing: any
server optimiser, any average of the iterates, and any factor on it that follows from the plan, has
the same cost.

For the person unit of privacy S is Σ over persons of clip_C(Σ over that person's records of ∇f), N
the declared number of persons: descent on the mean over persons of the sum of their losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.base import SumStrategy
from fedpriv.learning.optimisers import Averaged
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.auto import strength
from fedpriv.strategies.common.building import (
    Setup,
    StrategyInfo,
    heavy_l2,
    light_l2,
)
from fedpriv.strategies.common.optimiser import make_optimiser, pack, unpack
from fedpriv.strategies.common.plans.growing import GrowingOptions, SamplingOption, plan_growing
from fedpriv.strategies.common.plans.plans import Calibration, plan_gradients
from fedpriv.strategies.common.plans.sharing import released, share_of, share_reach
from fedpriv.strategies.common.schedules import (
    ScheduledOptions,
    follows_from_a_theorem,
    relative_noise,
    scheduled_rate,
)
from fedpriv.strategies.common.settling import (
    ClippedOptions,
    clip_of,
    follows_budget,
    left_open,
    settled,
)
from fedpriv.strategies.common.shrinking import gradient_noise, shrink_by_noise, shrinkable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task, Weights
    from fedpriv.learning.optimisers import Optimiser
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.strategies.common.shrinking import Shrink


class GradientOptions(ScheduledOptions, ClippedOptions):
    """Options of gradient perturbation.

    With neither learning_rate nor optimiser, steps follow a rule from public facts
    (`fedpriv.strategies.common.auto`): momentum, and which model is published. If
    the optimiser is named, or a schedule requires it, "auto" is 1/M.

    Attributes:
        clip: C, the bound on one record's gradient, or on a person's summed gradients; "auto" is,
            by that rule, a fraction of the loss's own bound at the first model, or all of it if the
            schedule follows from a theorem.
        law: Distribution of the noise; "auto" is Gaussian if δ > 0, else l2-laplace, which is pure;
            l1-laplace with ``clip_in``.
        clip_in: "l1" clips gradients to C in L1 instead of L2: for l1-laplace, whose noise is then
            calibrated to an L1 sensitivity.
        shrink: "auto" multiplies the published model, where steps follow the rule and scores become
            probabilities, by a factor that the noise in its scores determines: it names the same
            classes, with less bold probabilities, at no cost; "none" leaves it alone.
        weights: Every record counts equally ("proportional"), or every party ("equal").
        calibration: How the noise is calibrated to the budget.
        sampling_rate: Poisson rate q of the records of a round; 1 is full batch. A table with
            ``first``, ``factor`` and ``every`` makes it grow.
        accountant: Name of the accountant, or "auto" for the tightest.
        seed: Seed of the initial weights of a model that is not linear.
    """

    law: Literal["auto", "gaussian", "l2-laplace", "l1-laplace"] = "auto"
    clip_in: Literal["l2", "l1"] | None = None
    shrink: Literal["auto", "none"] = "auto"
    weights: Literal["equal", "proportional"] = "proportional"
    calibration: Calibration = "exact"
    sampling_rate: SamplingOption = 1.0
    accountant: str = "auto"
    seed: int = 0


class GradientPerturbation(SumStrategy):
    """T noisy steps, each one release."""

    name: ClassVar[str] = "gradient-perturbation"

    def __init__(
        self,
        *,
        task: Task,
        plan: Plan | NoiseFree,
        optimiser: Optimiser,
        run: Run,
        weights: Weights = "proportional",
        clip_in: Literal["l2", "l1"] = "l2",
        start: NDArray[np.float64] | None = None,
        shrink: Shrink | None = None,
    ) -> None:
        super().__init__(task=task, plan=plan, run=run, start=start)
        if plan.clip_norm is None:
            raise ValueError("plan must state the clip_norm of a gradient, got None.")
        self._plan, self._clip = plan, plan.clip_norm
        self._weights: Weights = weights
        self._clip_in: Literal["l2", "l1"] = clip_in
        self._optimiser = optimiser
        self._shrink = shrink
        self._iterate = self._theta
        self._memory = optimiser.start(self._iterate)

    @property
    def fixed_clip(self) -> float | None:
        """C."""
        return self._clip

    def _query(self) -> GradientQuery:
        mechanism = self._plan.mechanisms[self._round]
        bound = self.task.records * self._clip + share_reach(mechanism, self.task)
        return GradientQuery(
            run=self._run.name,
            round=self._round,
            grid=grid_of(step=self._plan.step, bound=bound, parties=self.task.parties),
            event=self._event(),
            share=share_of(mechanism),
            theta=self._iterate,
            clip_norm=self._clip,
            sampling_rate=self._plan.rate(self._round),
            weights=self._weights,
            clip_in=self._clip_in,
        )

    def _release(self, answer: Sum) -> NDArray[np.float64]:
        """The noisy mean. Divided by the *expected* number of records: the real one is private."""
        noisy = released(self._plan.mechanisms[self._round], answer, self._stream)
        count = self.task.gradient_count(self._weights, answer.sizes)
        return noisy / (self._plan.rate(self._round) * count)

    def _update(self, release: NDArray[np.float64]) -> None:
        gradient = release + self.task.regulariser * self._iterate
        self._iterate, self._memory = self._optimiser.step(self._iterate, gradient, self._memory)
        averaged = isinstance(self._optimiser, Averaged)
        published: NDArray[np.float64] = self._memory.average if averaged else self._iterate
        # The next round starts from the iterate, which stays as it is.
        if self._shrink is not None:
            published = self._shrink.published(published, self._round)
        self._theta = published

    def _state(self) -> dict[str, Any]:
        return {"iterate": self._iterate, **pack(self._memory)}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._iterate = np.array(state["iterate"])
        self._memory = unpack(state, like=self._memory)


def _auto_l2(options: GradientOptions) -> float:
    """λ: no more than descent needs, except for schedules whose theorem needs it larger."""
    return (heavy_l2 if follows_from_a_theorem(options.schedule) else light_l2)(options)


INFO = StrategyInfo(
    name=GradientPerturbation.name,
    summary="descend along noisy sums of clipped gradients",
    noise_by="server",
    asks=("gradient",),
    convex_only=False,
    options=GradientOptions,
    shares=True,
    units=(Unit.RECORD, Unit.PERSON),
    auto_l2=_auto_l2,
    follows_budget=follows_budget,
)


def build(setup: Setup, options: GradientOptions) -> GradientPerturbation:
    """The strategy, planned within its budget."""
    task = setup.task
    options = settled_gradients(setup.private, options)
    plan = _plan(setup, options)
    return GradientPerturbation(
        task=task,
        plan=plan,
        optimiser=make_optimiser(
            options, task, rounds=options.rounds, rate=scheduled_rate(options, task)
        ),
        weights=options.weights,
        clip_in=options.clip_in or "l2",
        run=setup.run,
        start=task.initial(options.seed),
        shrink=shrink_of(options, plan, task),
    )


def shrink_of(
    options: GradientOptions, plan: Plan | NoiseFree, task: Task, *, draws: int = 1
) -> Shrink | None:
    """What the published model is multiplied by, for settled options."""
    if options.shrink == "none":
        return None
    noise = gradient_noise(plan, task, weights=options.weights, draws=draws)
    return shrink_by_noise(options, task, noise) if noise.any() else None


def settled_gradients(setup: Setup, options: GradientOptions, *, draws: int = 1) -> GradientOptions:
    """The options with "auto" replaced by numbers and names, from public facts alone.

    ``draws`` is how many draws of noise each sum carries, where every party adds its own.
    """
    task, theorem = setup.task, follows_from_a_theorem(options.schedule)
    if theorem:
        chosen: dict[str, Any] = {"optimiser": theorem}  # the options name no other
        if options.clip == "auto" and task.convex:
            chosen["clip"] = task.lipschitz
        options = options.model_copy(update=chosen)

    def strength_at(clip: float) -> float:
        plan = _plan(setup, options.model_copy(update={"clip": clip}))
        return strength(plan, task, clip_norm=clip, draws=draws)

    shrunk = options.shrink == "auto" and left_open(options) and shrinkable(task)
    options = options.model_copy(update={"shrink": "auto" if shrunk else "none"})
    return settled(options, task, rounds=options.rounds, strength_at=strength_at)


def _plan(setup: Setup, options: GradientOptions) -> Plan | NoiseFree:
    law: Literal["gaussian", "l2-laplace", "l1-laplace"]
    if options.law != "auto":
        law = options.law
    else:
        # With shares, a pure budget is refused there, with the reason.
        pure = setup.sharing is None and not setup.noise_free and setup.budget.delta == 0
        law = "l1-laplace" if options.clip_in == "l1" else "l2-laplace"
        law = law if pure else "gaussian"
    if not isinstance(options.sampling_rate, GrowingOptions):
        return plan_gradients(
            setup,
            rounds=options.rounds,
            clip_norm=clip_of(options),
            weights=options.weights,
            sampling_rate=options.sampling_rate,
            shape=relative_noise(options, setup.task),
            calibration=options.calibration,
            accountant=options.accountant,
            law=law,
            clip_in=options.clip_in or "l2",
        )
    fixed = (options.schedule, options.weights, options.calibration, law, options.clip_in or "l2")
    if fixed != ("uniform", "proportional", "exact", "gaussian", "l2"):
        raise ValueError(
            "schedule must be 'uniform', weights 'proportional', calibration 'exact', law "
            "'gaussian' and clip_in 'l2' with a growing sampling_rate, which is a schedule itself."
        )
    return plan_growing(
        setup,
        options.sampling_rate,
        rounds=options.rounds,
        clip_norm=clip_of(options),
        accountant=options.accountant,
    )
