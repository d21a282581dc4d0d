"""The server optimiser of a gradient strategy: chosen by options, kept in a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedpriv.learning.optimisers import (
    AdaGrad,
    Adam,
    Averaged,
    DebiasedMomentum,
    Momentum,
    Nesterov,
    Optimiser,
    Projected,
    Sgd,
    WarmUp,
    Yogi,
)
from fedpriv.strategies.common.building import Count, Options, Positive, Share

if TYPE_CHECKING:
    from fedpriv.federation.task import Task

_WEIGHT_DECAY = 0.01
# Optimisers whose steps are linear in the gradients, and so in the noise.
LINEAR = ("auto", "sgd", "momentum", "nesterov", "debiased-momentum")


class OptimiserOptions(Options):
    """How noisy gradients become steps.

    Attributes:
        learning_rate: η, or "auto" for 1/M with M = B²·c + λ.
        optimiser: The server optimiser; "auto" is "sgd", unless the strategy has a better default.
        momentum: β of the three kinds of momentum.
        warm_up: W, the number of first steps that grow to the learning rate: step t has η·t/W; None
            for no warm-up.
        averaging: Which model to publish: the last iterate, the mean of all, or the mean of the
            last half; "auto" is the last, unless the strategy has another default.
    """

    learning_rate: Positive | Literal["auto"] = "auto"
    optimiser: Literal[
        "auto",
        "sgd",
        "momentum",
        "nesterov",
        "debiased-momentum",
        "adagrad",
        "adam",
        "adamw",
        "yogi",
    ] = "auto"
    momentum: Share = 0.9
    warm_up: Count | None = None
    averaging: Literal["auto", "last", "mean", "tail"] = "auto"


def learning_rate(options: OptimiserOptions, task: Task) -> float:
    """η: as given, or 1/M."""
    if options.learning_rate != "auto":
        return options.learning_rate
    if not task.convex:
        raise ValueError(
            "learning_rate must be a number for a model that is not linear, got 'auto': 1/M "
            "is known for convex problems only. Begin with learning_rate = 1.0, and try others "
            "on public data: docs/own-model.md."
        )
    return 1 / task.smoothness


def make_optimiser(
    options: OptimiserOptions,
    task: Task,
    *,
    rounds: int,
    rate: float | None = None,
    stability: float | None = None,
) -> Optimiser:
    """The optimiser that the options name, with their learning rate or another.

    ``stability`` is added to the roots by which an adaptive optimiser divides; by default, its own.
    """
    chosen = learning_rate(options, task) if rate is None else rate
    inner = _rule(options, chosen, {} if stability is None else {"stability": stability})
    if options.warm_up is not None:
        inner = WarmUp(optimiser=inner, steps=options.warm_up)
    if task.radius is not None:
        inner = Projected(optimiser=inner, radius=task.radius)
    if options.averaging in ("auto", "last"):
        return inner
    return Averaged(optimiser=inner, skip=rounds // 2 if options.averaging == "tail" else 0)


def _rule(options: OptimiserOptions, rate: float, more: dict[str, float]) -> Optimiser:
    match options.optimiser:
        case "auto" | "sgd":
            return Sgd(learning_rate=rate)
        case "momentum":
            return Momentum(learning_rate=rate, decay=options.momentum)
        case "nesterov":
            return Nesterov(learning_rate=rate, decay=options.momentum)
        case "debiased-momentum":
            return DebiasedMomentum(learning_rate=rate, decay=options.momentum)
        case "adagrad":
            return AdaGrad(learning_rate=rate, **more)
        case "adam":
            return Adam(learning_rate=rate, **more)
        case "adamw":
            return Adam(learning_rate=rate, weight_decay=_WEIGHT_DECAY, **more)
        case "yogi":
            return Yogi(learning_rate=rate, **more)


def pack(memory: Any, prefix: str = "memory") -> dict[str, Any]:
    """An optimiser's state, nested named tuples of arrays and numbers, as flat names."""
    if not hasattr(memory, "_asdict"):
        return {prefix: memory}
    flat: dict[str, Any] = {}
    for name, value in memory._asdict().items():
        flat |= pack(value, f"{prefix}.{name}")
    return flat


def unpack(flat: dict[str, Any], *, like: Any, prefix: str = "memory") -> Any:
    """What `pack` flattened, in the shape of ``like``."""
    if not hasattr(like, "_asdict"):
        value = flat[prefix]
        return np.array(value) if isinstance(like, np.ndarray) else type(like)(value)
    return type(like)(
        *(
            unpack(flat, like=value, prefix=f"{prefix}.{name}")
            for name, value in like._asdict().items()
        )
    )
