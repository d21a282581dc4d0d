"""Learned protection: networks trained on public data choose the noise and the steps.

    while the budget lasts:
        S ← Σ over all records of clip_C(∇f(θ; x, y))         (a secure sum over the parties)
        s ← (‖S‖ + N(0, σ_s²)) / (C·N)                        (charged before S is asked for)
        σ ← scheduler(s, …), within (σ_g/4, 2σ_g)             (charged before S is asked for again)
        g ← ((S + N(0, σ²)) / N + λθ) / C
        θ ← θ + projector(g, …)/B

L2P: Hong, Wang, Wang and Zhou 2021. Both networks see releases only, so everything they choose is
post-processing, however bad: a poor protector costs accuracy, never privacy. The filter
Σμ² ≤ μ(ε, δ)² pays for noise that depends on earlier releases; a composition theorem for fixed
schedules would not.

For the person unit of privacy S is Σ over persons of clip_C(Σ over that person's records of ∇f), N
the declared number of persons. When a person is exchanged, added or removed, the norm of S changes
by no more than S does.

With ``sampling_rate`` q, S is over a Poisson sample and q·N replaces N: one sample for the norm,
and a fresh one for the gradient, whose noise is chosen by then. A Rényi filter pays for both.

Without noise, for study, it moves as at the largest budget for which the protector was trained,
with exact norms and gradients, for T rounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from fedpriv._validate import require_choice
from fedpriv.federation.queries.bounds import grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.strategy.adaptive import AdaptiveStrategy, Step
from fedpriv.learning.protector import (
    LEAST_NOISE,
    MOST_NOISE,
    Allowance,
    Memory,
    State,
    Trained,
    load,
)
from fedpriv.privacy.planning.adaptive_plan import AdaptivePlan
from fedpriv.privacy.planning.filters import least_noise
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.planning.plan import grid_sensitivity
from fedpriv.privacy.unit import Unit
from fedpriv.strategies.common.building import (
    Count,
    Options,
    Positive,
    Rate,
    Setup,
    StrategyInfo,
)
from fedpriv.strategies.common.learned_noise import Noises, fund_of, noise_of_all, noises_of
from fedpriv.strategies.common.plans.plans import (
    gradient_grid,
    noise_free_gradients,
    require_sampleable,
)
from fedpriv.strategies.common.plans.sharing import noisy_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.strategy.adaptive import Round
    from fedpriv.federation.strategy.base import Run
    from fedpriv.federation.task import Task
    from fedpriv.learning.protector import Surroundings
    from fedpriv.privacy.mechanisms import GaussianMechanism
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.strategies.common.chooser import Chooser

    Vector = NDArray[np.float64]

PROTECTORS = Path(__file__).parent / "protectors"
_NORM = "norm"


class LearnedOptions(Options):
    """Options of learned protection.

    Attributes:
        protector: The name of a protector that comes with fedpriv, or the path of a file.
        protector_sha256: The hash that identifies the file: filled in when an experiment names a
            file, and compared whenever the file is read.
        horizon: T, the number of rounds for which the budget should last; "auto" is the protector's
            own for such a budget.
        clip: C, the bound on one record's gradient, or on a person's summed gradients; "auto" is
            the protector's, times B.
        sampling_rate: Poisson rate of the records of every sum; 1 is all records.
        seed: Seed of the initial weights of a model that is not linear.
    """

    protector: str = "mnist-4v6"
    protector_sha256: str | None = None
    horizon: Count | Literal["auto"] = "auto"
    clip: Positive | Literal["auto"] = "auto"
    sampling_rate: Rate = 1.0
    seed: int = 0


class LearnedProtection(AdaptiveStrategy):
    """Noisy steps, each after a noisy norm, until the budget is spent."""

    name: ClassVar[str] = "learned-protection"

    def __init__(
        self,
        *,
        task: Task,
        plan: AdaptivePlan | NoiseFree,
        noises: Noises | None,
        around: Surroundings,
        protector: Chooser,
        run: Run,
        start: Vector | None = None,
    ) -> None:
        if plan.clip_norm is None:
            raise ValueError("plan must state the clip_norm of a gradient, got None.")
        self._clip, self._grid_step, self._noises = plan.clip_norm, plan.step, noises
        self._rate = plan.rate(0)
        rounds = plan.rounds
        if not isinstance(plan, NoiseFree):
            if noises is None:
                raise ValueError("noises must be given with a plan, got None.")
            round_ = (noises.norm, noises.times(MOST_NOISE))
            least = sum(plan.filter.cost(plan.priced(release)) for release in round_)
            rounds = ceil(plan.filter.limit / least)
        super().__init__(task=task, plan=plan, rounds=rounds, run=run, start=start)
        self._protector, self._around = protector, around
        self._memory = protector.start(task.dimension)

    def _play(self) -> Round:
        noises = self._noises
        if noises and not self.paid.affords(noises.norm, noises.times(MOST_NOISE)):
            self.stopped = f"the budget is spent after {self._round} rounds"
            return
        (norm,) = yield self._step_of(noises.norm if noises else None, self._draw_norm, part=_NORM)
        chosen = self._schedule(float(norm))
        mechanism = self._affordable(noises.times(chosen)) if noises else None
        mean = yield self._step_of(mechanism, self._draw_mean, same_sum=self._rate == 1)
        if noises and mechanism:
            chosen = mechanism.stddev / noises.reference.stddev
        self._move(mean, noise=chosen)

    def _step_of(
        self, release: GaussianMechanism | None, draw: Callable[..., Vector], **more: Any
    ) -> Step:
        """A release made from the sum of gradients at θ: without sampling, both use one sum."""
        query = GradientQuery(
            run=self._run.name,
            round=self._release_index,
            grid=grid_of(
                step=self._grid_step,
                bound=self.task.records * self._clip,
                parties=self.task.parties,
            ),
            event=None if release is None else self.paid.priced(release),
            theta=self._theta,
            clip_norm=self._clip,
            sampling_rate=self._rate,
        )
        return Step(release=release, query=query, draw=partial(draw, release), **more)

    def _draw_norm(
        self, mechanism: GaussianMechanism | None, answer: Sum, stream: RandomStream
    ) -> Vector:
        """The noisy norm of the mean, over C; noise is added to the norm as a grid integer."""
        length = np.linalg.norm(answer.total.astype(np.float64))
        total = np.array([np.rint(length)]).astype(np.int64)
        noisy = noisy_sum(mechanism, total, step=answer.step, stream=stream)
        return noisy / (self._clip * self._rate * sum(answer.sizes))

    def _draw_mean(
        self, mechanism: GaussianMechanism | None, answer: Sum, stream: RandomStream
    ) -> Vector:
        """The noisy mean gradient."""
        noisy = noisy_sum(mechanism, answer.total, step=answer.step, stream=stream)
        return noisy / (self._rate * sum(answer.sizes))

    # From here on, everything sees releases only.

    def _schedule(self, norm: float) -> float:
        """The scheduler's choice, within its range; NaN counts as the most noise."""
        fund = None if self.plan is None else self.plan.filter
        spendable = 1 - self._elapsed if fund is None else fund.left / fund.limit
        answer, self._memory = self._protector.schedule(
            torch.tensor([norm], dtype=torch.float32),
            elapsed=self._elapsed,
            left=torch.tensor([spendable], dtype=torch.float32),
            around=self._around,
            state=self._memory,
        )
        noise = float(answer)
        if not isfinite(noise):
            return MOST_NOISE
        # Coarser than the rounding of a network: a run that another machine resumes from its
        # ledger must ask for the noise that was paid for.
        return min(max(round(noise, 3), LEAST_NOISE), MOST_NOISE)

    def _affordable(self, mechanism: GaussianMechanism) -> GaussianMechanism:
        """``mechanism``, with more noise if it costs more than is left of the budget."""
        fund, relative = self.paid.filter, mechanism.event().relative_noise
        if self._rate == 1:
            relative = max(relative, 1 / sqrt(fund.left))
        elif not self.paid.affords(mechanism):
            relative = least_noise(fund, amount=fund.left, sampling_rate=self._rate)
        return replace(mechanism, stddev=relative * mechanism.sensitivity)

    def _move(self, mean: Vector, *, noise: float) -> None:
        gradient = (mean + self.task.regulariser * self._theta) / self._clip
        step, self._memory = self._protector.project(
            torch.from_numpy(gradient.astype(np.float32))[None],
            noise=torch.tensor([noise], dtype=torch.float32),
            elapsed=self._elapsed,
            around=self._around,
            state=self._memory,
        )
        moved = self._theta + step[0].numpy().astype(np.float64) / self.task.feature_bound
        if np.isfinite(moved).all():
            self._theta = moved
        else:
            self.stopped = "the protector proposed a step that is not finite: it was not taken"

    @property
    def _elapsed(self) -> float:
        return min(1.0, self._round / self._around.horizon)

    def _state(self) -> dict[str, Any]:
        return {name: memory.values.numpy() for name, memory in self._memory._asdict().items()}

    def _set_state(self, state: dict[str, Any]) -> None:
        shapes = {name: memory.values.shape for name, memory in self._memory._asdict().items()}
        self._memory = State(
            **{
                name: Memory(torch.from_numpy(np.array(state[name], np.float32).reshape(shape)))
                for name, shape in shapes.items()
            }
        )


INFO = StrategyInfo(
    name=LearnedProtection.name,
    summary="noise and steps chosen by networks that were trained on public data",
    noise_by="server",
    asks=("gradient",),
    convex_only=False,
    options=LearnedOptions,
    units=(Unit.RECORD, Unit.PERSON),
    follows_budget=lambda _options: True,  # steps do, and the rounds
)


def build(setup: Setup, options: LearnedOptions) -> LearnedProtection:
    """The strategy, with an empty plan that grows within its budget."""
    task = setup.task
    protector, card, sha256 = _loaded(options)
    clip = card.clip_norm * task.feature_bound if options.clip == "auto" else options.clip
    step, moved = gradient_grid(setup, clip_norm=clip)
    sensitivity = grid_sensitivity(moved, dimension=task.dimension, step=step)
    rate, whole = options.sampling_rate, task.records * clip  # the unit of a protector's numbers
    require_sampleable(setup, rate, coins="a norm of a sum")
    # A twin without noise takes the steps of its private run: its networks see that run's noise.
    private = setup.private
    fresh, noise = None, card.least_noise
    if not private.noise_free:
        noise = sensitivity / whole * fund_of(private, sampling_rate=1.0).whole_noise
    horizon = card.horizon(noise) if options.horizon == "auto" else options.horizon
    if not private.noise_free:
        fresh = fund_of(private, sampling_rate=rate)
        each = noise_of_all(fresh, sampling_rate=rate, horizon=horizon, norm_share=card.norm_share)
        noise = sensitivity / whole * each
    allowance = Allowance(noise=noise, horizon=horizon, norm_share=card.norm_share)
    around = allowance.around(task.dimension)
    shared: dict[str, Any] = {
        "task": task,
        "around": around,
        "protector": protector,
        "run": setup.run,
        "start": task.initial(options.seed),
    }
    if fresh is None or setup.noise_free:
        exact = noise_free_gradients(setup, rates=(rate,) * horizon, clip_norm=clip)
        return LearnedProtection(plan=exact, noises=None, **shared)
    plan = AdaptivePlan(
        strategy=LearnedProtection.name,
        query="the sum of its records' clipped gradients at the current model"
        + (", each person's summed before it is clipped" if task.persons else ""),
        released=(
            "every round's noisy norm and noisy sum of gradients, hence every model of the "
            f"run; noise and steps by the protector {options.protector!r}, trained on "
            f"{card.trained_on}, sha256 {sha256[:16]}"
        ),
        filter=fresh,
        parties=task.parties,
        records=task.records,
        smallest_party=task.smallest,
        dimension=task.dimension,
        step=step,
        clip_norm=clip,
        sampling_rate=rate,
    )
    noises = noises_of(
        setup,
        around,
        clip_norm=clip,
        step=step,
        sensitivity=sensitivity,
        unit=rate * whole,
    )
    return LearnedProtection(plan=plan, noises=noises, **shared)


def _loaded(options: LearnedOptions) -> Trained:
    """The protector that the options name, which must have the hash that they state."""
    trained, stated = load(protector_path(options.protector)), options.protector_sha256
    if stated is not None and stated != trained.sha256:
        raise ValueError(
            f"strategy.protector {Path(options.protector).name!r} is not the one that the "
            f"experiment states: its sha256 is {trained.sha256[:8]}…, and "
            f"{stated[:8]}… is stated. Put that file back, or leave out protector_sha256 and begin "
            "a new run."
        )
    return trained


def protector_path(name: str) -> Path:
    """The file of a protector: one that comes with fedpriv, or any path."""
    known = {path.stem: path for path in sorted(PROTECTORS.glob("*.json"))}
    if Path(name).suffix == ".json":
        return Path(name)
    require_choice(known, protector=name)
    return known[name]
