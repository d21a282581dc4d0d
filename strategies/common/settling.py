"""Settling: replaces "auto" by numbers and names, for descent along noisy sums.

Open settings follow from public facts alone, by the rule of `fedpriv.strategies.common.auto`: the
clip norm and, if neither a learning rate nor an optimiser is given, the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fedpriv.learning.models import MlpModel
from fedpriv.strategies.common.auto import auto_averaging, auto_clip, auto_rate, longest_gradient
from fedpriv.strategies.common.building import Positive  # noqa: TC001 - pydantic
from fedpriv.strategies.common.optimiser import OptimiserOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.task import Task


class ClippedOptions(OptimiserOptions):
    """Options of a descent along sums of clipped gradients.

    Attributes:
        clip: C, or "auto" for that of a rule from public facts.
    """

    clip: Positive | Literal["auto"] = "auto"


def left_open(options: OptimiserOptions) -> bool:
    """Whether the options say nothing about the steps."""
    return options.learning_rate == options.optimiser == "auto"


def perceptron(task: Task) -> bool:
    """Whether the rule for perceptrons applies: other networks have none."""
    return isinstance(task.model, MlpModel) and task.persons is None


def follows_budget(options: ClippedOptions) -> bool:
    """Whether the rule applies: its result depends on how strong the noise is."""
    return options.clip == "auto" or left_open(options)


Chosen = TypeVar("Chosen", bound=ClippedOptions)


def settled(
    options: Chosen, task: Task, *, rounds: int, strength_at: Callable[[float], float]
) -> Chosen:
    """The options, with open ones settled by the rule.

    Args:
        options: As the file states them.
        task: The public facts.
        rounds: T, the number of rounds.
        strength_at: The noise strength at a clip norm. Which one hardly matters: noise grows with
            it as gradients do.
    """
    ruled = left_open(options) and (task.convex or perceptron(task))
    if options.clip != "auto" and not ruled:
        return options
    clip = longest_gradient(task) if options.clip == "auto" else options.clip
    strength = strength_at(clip)
    if options.clip == "auto":
        clip = auto_clip(strength, task)
    chosen: dict[str, Any] = {"clip": clip}
    if ruled:
        chosen["optimiser"] = "momentum"
        averaging = options.averaging
        if averaging == "auto":
            averaging = chosen["averaging"] = auto_averaging(strength, task)
        chosen["learning_rate"] = auto_rate(
            strength,
            task,
            clip_norm=clip,
            rounds=rounds,
            beta=options.momentum,
            averaging=averaging,
        )
    return options.model_copy(update=chosen)


def clip_of(options: ClippedOptions) -> float:
    """C, once settled."""
    if options.clip == "auto":
        raise ValueError("clip must be settled before anything is planned, got 'auto'.")
    return options.clip
