"""The model after a step: the checks on what a strategy's `_update` left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.learning.optimisers import project

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Diverged(ValueError):
    """The steps of a strategy grew without bound; depends on releases alone, noise included."""


def moved_model(
    theta: Any, *, dimension: int, radius: float | None, strategy: str, owner: str, after: str
) -> NDArray[np.float64]:
    """The model as a vector of finite numbers, one per coordinate; otherwise, what is wrong.

    Projected onto the ball of the task, if it has one: post-processing of releases.

    Args:
        theta: What the strategy assigned.
        dimension: The number of the model's parameters.
        radius: R of the ball ‖θ‖ ≤ R; None for no such constraint.
        strategy: The name of the strategy.
        owner: The class whose `_update` assigned it.
        after: After which round, in words.
    """
    try:
        vector = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):  # torch raises the last if a gradient is needed
        vector = None
    if vector is None or vector.shape != (dimension,):
        found = type(theta).__name__ if vector is None else f"shape {vector.shape}"
        raise ValueError(
            f"{strategy}: _update of {owner} must leave a vector of {dimension} numbers in "
            f"self._theta, one for each coordinate of the model, got {found} {after}."
        )
    if not np.isfinite(vector).all():
        raise Diverged(
            f"{strategy}: the model is not finite {after}: its steps grew without bound. Use a "
            "smaller learning rate."
        )
    return vector if radius is None else project(vector, radius)
