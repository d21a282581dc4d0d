"""The noise schedule of a gradient strategy: chosen by options, filled in from public facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag

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
from strategies.building import Count, Options, Positive, Share
from strategies.optimiser import OptimiserOptions, learning_rate

if TYPE_CHECKING:
    from fedpriv.federation.task import Task


class DynamicOptions(Options):
    """Falling noise, the best for plain descent.

    Attributes:
        gamma: γ, or "auto" for 1 − λη with η the learning rate, at most 1/M: public facts.
    """

    name: Literal["dynamic"]
    gamma: Share | Literal["auto"] = "auto"


class MomentumOptions(Options):
    """The best noise for debiased momentum.

    Attributes:
        gamma: As for "dynamic".
        beta: β, or "auto" for the momentum of the optimiser.
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
    """The best noise for an influence that was measured on public data.

    Attributes:
        public: The data set on which a simulation measures it, before the run.
        values: q_t of every round, where it is known already.
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
    """Which form of a schedule is meant, so that an error speaks of that form alone."""
    if isinstance(value, str):
        return "text"
    return "table" if isinstance(value, dict | Options) else "list"


ScheduleOption = Annotated[
    Annotated[Name, Tag("text")]
    | Annotated[tuple[Positive, ...], Tag("list")]
    | Annotated[ScheduleTable, Tag("table")],
    Discriminator(_form),
]
"""A name, one relative noise a round, or a table with a name and its parameters."""


class ScheduledOptions(OptimiserOptions):
    """Options of a descent whose rounds share a budget by a schedule.

    Attributes:
        rounds: T.
        schedule: Noise of each round relative to the others: "uniform", "dynamic", "momentum", a
            table with a name and its parameters, or one number a round.
    """

    rounds: Count = 100
    schedule: ScheduleOption = "uniform"


def relative_noise(options: ScheduledOptions, task: Task) -> tuple[float, ...] | None:
    """The noise of every round, relative to the others; None for uniform noise."""
    if isinstance(options.schedule, tuple):
        return options.schedule
    schedule = _schedule(options, options.schedule, task)
    return None if isinstance(schedule, Uniform) else schedule.shape(options.rounds)


def scheduled_rate(options: ScheduledOptions, task: Task) -> float:
    """η; where it is left to us, no larger than the theorem behind the schedule allows."""
    rate = learning_rate(options, task)
    match options.schedule:
        case "momentum" | MomentumOptions(beta="auto"):
            beta = options.momentum
        case MomentumOptions(beta=float(stated)):
            beta = stated
        case _:
            return rate
    if options.learning_rate != "auto":
        return rate
    return min(rate, momentum_step_limit(smoothness=task.smoothness, beta=beta))


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
        case MomentumOptions(gamma=gamma, beta=beta):
            return MomentumAware(
                gamma=_gamma(options, task) if gamma == "auto" else gamma,
                beta=options.momentum if beta == "auto" else beta,
            )
        case ExponentialOptions(decay=decay):
            return Exponential(decay=decay)
        case StepOptions(every=every, factor=factor):
            return Step(every=every, factor=factor)
        case InfluenceOptions(values=values):
            if not values:
                raise ValueError(
                    "schedule.values must hold the influence of every round, got none: a "
                    "simulation measures it on schedule.public, if that names a data set."
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
