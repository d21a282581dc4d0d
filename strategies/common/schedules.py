"""Noise schedules of a gradient strategy: chosen by options, completed from public facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from fedpriv.privacy.schedules import (
    Dynamic,
    Exponential,
    Measured,
    MomentumAware,
    Schedule,
    Step,
    Uniform,
    momentum_step_limit,
)
from fedpriv.strategies.common.building import Count, Options, Positive, Rounds, Share
from fedpriv.strategies.common.optimiser import LINEAR, OptimiserOptions, learning_rate

if TYPE_CHECKING:
    from fedpriv.federation.task import Task


class DynamicOptions(Options):
    """Falling noise, optimal for plain descent.

    Attributes:
        gamma: γ, or "auto" for 1 − λη with η the learning rate, at most 1/M: from public facts,
            and valid for plain descent alone. A number of your own goes with any optimiser.
    """

    name: Literal["dynamic"]
    gamma: Share | Literal["auto"] = "auto"


class MomentumOptions(Options):
    """Optimal noise for debiased momentum.

    Attributes:
        gamma: γ, or "auto" for 1 − λη with η the learning rate, at most 1/M.
        beta: β, the momentum of the optimiser, which must be "debiased-momentum"; "auto" takes it.
    """

    name: Literal["momentum"]
    gamma: Share | Literal["auto"] = "auto"
    beta: Share | Literal["auto"] = "auto"


class ExponentialOptions(Options):
    """Every round has ``decay`` times the noise of the one before."""

    name: Literal["exponential"]
    decay: Positive


class StepOptions(Options):
    """The noise is multiplied by ``factor`` after every ``every`` rounds."""

    name: Literal["step"]
    every: Count
    factor: Positive


class InfluenceOptions(Options):
    """Optimal noise for an influence measured on public data.

    Attributes:
        public: The data set on which it is measured before the run, along plain descent: for
            optimiser "sgd". A built-in one, or a CSV or Parquet file with the private data's
            schema. Measured from curvature, or for a network from the decay of its gradients.
        values: q_t of every round, if already known; for an optimiser that is linear in the
            gradients, since otherwise the harm is not q_t·σ_t².
    """

    name: Literal["influence"]
    public: str | None = None
    values: tuple[Positive, ...] = ()


ScheduleTable = Annotated[
    DynamicOptions | MomentumOptions | ExponentialOptions | StepOptions | InfluenceOptions,
    Field(discriminator="name"),
]
Name = Literal["uniform", "dynamic", "momentum"]


def _form(value: object) -> str:
    """Which form of schedule is meant, so that an error mentions that form alone."""
    if isinstance(value, str):
        return "text"
    return "table" if isinstance(value, dict | Options) else "list"


ScheduleOption = Annotated[
    Annotated[Name, Tag("text")]
    | Annotated[tuple[Positive, ...], Tag("list")]
    | Annotated[ScheduleTable, Tag("table")],
    Discriminator(_form),
]
"""A name, one relative noise per round, or a table with a name and its parameters."""


class ScheduledOptions(OptimiserOptions):
    """Options of a descent whose rounds share a budget by a schedule.

    Attributes:
        rounds: T, the number of rounds.
        schedule: Noise of each round relative to the others: "uniform", "dynamic", "momentum", a
            table with a name and its parameters, or one number per round.
    """

    rounds: Rounds = 100
    schedule: ScheduleOption = "uniform"

    @model_validator(mode="after")
    def _fits_the_optimiser(self) -> Self:
        """Refuse a schedule derived for one optimiser where another one runs."""
        match self.schedule:
            case "momentum" | MomentumOptions():
                self._require("debiased-momentum", "momentum")
                beta = getattr(self.schedule, "beta", "auto")
                if beta not in ("auto", self.momentum):
                    raise ValueError(
                        f"schedule.beta must be the momentum of the optimiser, {self.momentum!r}, "
                        f"got {beta!r}. Leave it out."
                    )
            case "dynamic" | DynamicOptions(gamma="auto"):
                self._require("sgd", "dynamic", remedy=", or state schedule.gamma yourself")
            case InfluenceOptions(public=str()):
                self._require("sgd", "influence")
            case InfluenceOptions() if self.optimiser not in LINEAR:
                raise ValueError(
                    f"optimiser must be one of {', '.join(LINEAR[1:])} for schedule = 'influence', "
                    f"got {self.optimiser!r}: its divisor depends on the noise too, so influence "
                    "does not measure the harm. Use another optimiser or schedule."
                )
        return self

    def _require(self, optimiser: str, schedule: str, remedy: str = "") -> None:
        if self.optimiser not in ("auto", optimiser):
            raise ValueError(
                f"optimiser must be {optimiser!r} for schedule = {schedule!r}, got "
                f"{self.optimiser!r}: the schedule is derived for that optimiser alone. Change one "
                f"of them{remedy}."
            )
        if self.averaging not in ("auto", "last"):
            raise ValueError(
                f"averaging must be 'last' for schedule = {schedule!r}, got {self.averaging!r}: "
                "the schedule is derived for the last model, not for an average. Change one of them"
                f"{remedy}."
            )
        if self.warm_up is not None:
            raise ValueError(
                f"warm_up must not be given for schedule = {schedule!r}, got {self.warm_up}: the "
                f"schedule was derived for steps of one size. Change one of them{remedy}."
            )


def relative_noise(options: ScheduledOptions, task: Task) -> tuple[float, ...] | None:
    """The noise of every round, relative to the others; None for uniform noise."""
    if isinstance(options.schedule, tuple):
        return options.schedule
    if task.radius is not None and follows_from_a_theorem(options.schedule):
        raise ValueError(
            "schedule must not be derived from a theorem where models stay in a ball (radius = "
            f"{task.radius:g}), got {options.schedule!r}: its theorem is for descent without "
            "projection. Leave out the ball, or state the noise yourself."
        )
    schedule = _schedule(options, options.schedule, task)
    return None if isinstance(schedule, Uniform) else schedule.shape(options.rounds)


def follows_from_a_theorem(
    schedule: ScheduleOption,
) -> Literal["sgd", "debiased-momentum"] | None:
    """The optimiser that a schedule's theorem is for; None if it has no theorem."""
    match schedule:
        case "momentum" | MomentumOptions():
            return "debiased-momentum"
        case "dynamic" | DynamicOptions(gamma="auto") | InfluenceOptions(public=str()):
            return "sgd"
    return None


def scheduled_rate(options: ScheduledOptions, task: Task) -> float:
    """η; by default no larger than the schedule's theorem allows."""
    rate = learning_rate(options, task)
    aware = options.schedule == "momentum" or isinstance(options.schedule, MomentumOptions)
    if not aware or options.learning_rate != "auto":
        return rate
    return momentum_step_limit(
        smoothness=task.smoothness, strong_convexity=task.regulariser, beta=options.momentum
    )


def _schedule(options: ScheduledOptions, choice: Name | ScheduleTable, task: Task) -> Schedule:
    match choice:
        case "uniform":
            return Uniform()
        case "dynamic":
            return Dynamic(gamma=_gamma(options, task))
        case "momentum":
            return MomentumAware(gamma=_gamma(options, task), beta=options.momentum)
        case DynamicOptions(gamma=gamma):
            return Dynamic(gamma=_gamma(options, task) if gamma == "auto" else gamma)
        case MomentumOptions(gamma=gamma):
            return MomentumAware(
                gamma=_gamma(options, task) if gamma == "auto" else gamma, beta=options.momentum
            )
        case ExponentialOptions(decay=decay):
            return Exponential(decay=decay)
        case StepOptions(every=every, factor=factor):
            return Step(every=every, factor=factor)
        case InfluenceOptions(values=values):
            if not values:
                raise ValueError(
                    "schedule.values must hold the influence of every round, got none: it is "
                    "measured on schedule.public, if that names a data set or a table."
                )
            return Measured(influence=values)


def _gamma(options: ScheduledOptions, task: Task) -> float:
    """γ = 1 − λη for η ≤ 1/M, by the PL condition with μ = λ: public facts alone."""
    if not task.convex or task.regulariser == 0:
        raise ValueError(
            "schedule.gamma must be a number where it does not follow from the problem, got "
            "'auto': that needs a linear model and a positive model.l2. Choose it on public data."
        )
    return 1 - task.regulariser * min(scheduled_rate(options, task), 1 / task.smoothness)
