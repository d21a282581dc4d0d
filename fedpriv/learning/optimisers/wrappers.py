"""Optimisers around another one: warm-up of the rate, projection onto a ball, averaged iterates.

Like those that they wrap they are post-processing of releases, and frozen: see `steps`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedpriv._validate import require_count, require_non_negative, require_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.learning.optimisers.steps import Optimiser

    Vector = NDArray[np.float64]


class WarmUpState(NamedTuple):
    """The number of steps taken, and the inner optimiser's state."""

    steps: int
    inner: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """Warm-up of the learning rate: step t of the first ``steps`` has η·t/steps, all later ones η.

    For any optimiser with a ``learning_rate``. Which steps are shortened is fixed beforehand: it
    costs no privacy. Bounds that assume one step size do not hold with it.
    """

    optimiser: Optimiser
    steps: int

    def __post_init__(self) -> None:
        require_count(steps=self.steps)

    def start(self, theta: Vector) -> WarmUpState:
        """No step was taken yet."""
        return WarmUpState(0, self.optimiser.start(theta))

    def step(
        self, theta: Vector, gradient: Vector, state: WarmUpState
    ) -> tuple[Vector, WarmUpState]:
        """One step of the inner optimiser, with its share of the learning rate."""
        steps, inner = state.steps + 1, self.optimiser
        if steps < self.steps:
            rated: Any = inner
            inner = replace(rated, learning_rate=rated.learning_rate * steps / self.steps)
        theta, memory = inner.step(theta, gradient, state.inner)
        return theta, WarmUpState(steps, memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """Projection onto a ball: after every step of any optimiser, θ ← θ·min(1, R/‖θ‖).

    For a constraint set ‖θ‖ ≤ R. What an optimiser remembers stays as it is. An average of iterates
    lies in the ball as well.
    """

    optimiser: Optimiser
    radius: float

    def __post_init__(self) -> None:
        require_positive(radius=self.radius)

    def start(self, theta: Vector) -> Any:
        """That of the inner optimiser."""
        return self.optimiser.start(theta)

    def step(self, theta: Vector, gradient: Vector, state: Any) -> tuple[Vector, Any]:
        """One step of the inner optimiser, and back into the ball."""
        theta, state = self.optimiser.step(theta, gradient, state)
        return project(theta, self.radius), state


def project(theta: Vector, radius: float) -> Vector:
    """The nearest point of the ball ‖θ‖ ≤ R."""
    length = float(np.linalg.norm(theta))
    return theta if length <= radius else theta * (radius / length)


class AveragedState(NamedTuple):
    """The average so far, the number of steps taken, and the inner optimiser's state."""

    average: Vector
    steps: int
    inner: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaged:
    """Any optimiser, with a running average of its iterates θ₁, θ₂, … in `AveragedState.average`.

    The iterates themselves are those of the inner optimiser; the average is what to publish. After
    k iterates past ``skip`` the newest has weight (p + 1)/(k + p), p = ``power``:

    - p = 0: the uniform mean (Polyak and Ruppert);
    - ``skip`` > 0: the tail mean, of all iterates after the first ``skip``; until then, the newest;
    - p > 0: polynomial decay of the older ones (Shamir and Zhang 2013), without choosing a tail.
    """

    optimiser: Optimiser
    skip: int = 0
    power: float = 0.0

    def __post_init__(self) -> None:
        require_non_negative(skip=self.skip, power=self.power)

    def start(self, theta: Vector) -> AveragedState:
        """The start stands for the average, and does not enter it."""
        return AveragedState(theta.copy(), 0, self.optimiser.start(theta))

    def step(
        self, theta: Vector, gradient: Vector, state: AveragedState
    ) -> tuple[Vector, AveragedState]:
        """One step of the inner optimiser, one of the average."""
        theta, inner = self.optimiser.step(theta, gradient, state.inner)
        steps = state.steps + 1
        counted = max(1, steps - self.skip)
        weight = (self.power + 1) / (counted + self.power)
        average = state.average + weight * (theta - state.average)
        return theta, AveragedState(average, steps, inner)
