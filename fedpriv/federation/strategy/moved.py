"""The model after a step: what a strategy must have left when its `_update` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.learning.optimisers import project

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Diverged(ValueError):
    """The steps of a strategy grew without bound; a matter of what was released, noise included."""


def moved_model(
    theta: Any, *, dimension: int, radius: float | None, strategy: str, owner: str, after: str
) -> NDArray[np.float64]:
    """The model as a vector of finite numbers, one for each coordinate, or what is wrong with it.

    Projected onto the ball of the task, if it has one: post-processing, whatever was released.

    Args:
        theta: What the strategy assigned.
        dimension: Of the model.
        radius: R of the ball ‖θ‖ ≤ R; None for no such constraint.
        strategy: What the strategy is called.
        owner: The class whose `_update` assigned it.
        after: Which round that was, in words.
    """
    try:
        vector = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):  # torch has the last, for what needs a gradient
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
