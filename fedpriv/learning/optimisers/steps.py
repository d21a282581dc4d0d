"""Server optimisers: from a released gradient to a step. Pure functions over float64 vectors.

Everything here is post-processing of a release: it costs no privacy, whatever it remembers. An
optimiser is a frozen description; what changes from step to step is an explicit state:

>>> optimiser = Momentum(learning_rate=0.1, decay=0.9)
>>> theta = np.zeros(2)
>>> state = optimiser.start(theta)
>>> theta, state = optimiser.step(theta, np.array([1.0, -2.0]), state)
>>> theta
array([-0.1, 0.2])

The gradient includes the regulariser, which the server knows and adds without noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fedpriv._validate import require_non_negative, require_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


class Optimiser(Protocol):
    """A rule that turns gradients into steps."""

    def start(self, theta: Vector) -> Any:
        """The state before the first step from ``theta``."""
        ...

    def step(self, theta: Vector, gradient: Vector, state: Any) -> tuple[Vector, Any]:
        """The next parameters and the next state; the arguments are left as they are."""
        ...


class Stateless(NamedTuple):
    """Nothing to remember."""


class VelocityState(NamedTuple):
    """A decaying sum or mean of gradients, and the number of steps taken."""

    velocity: Vector
    steps: int


class SquaresState(NamedTuple):
    """The sum of squared gradients, by coordinate."""

    squares: Vector


class MomentsState(NamedTuple):
    """Decaying means of gradients and of their squares, and the number of steps taken."""

    mean: Vector
    squares: Vector
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """θ ← θ - η·g."""

    learning_rate: float

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate)

    def start(self, theta: Vector) -> Stateless:
        return Stateless()

    def step(self, theta: Vector, gradient: Vector, state: Stateless) -> tuple[Vector, Stateless]:
        return theta - self.learning_rate * gradient, state


@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum:
    """Heavy ball (Polyak 1964): v ← βv + g, θ ← θ - η·v."""

    learning_rate: float
    decay: float

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate)
        _require_decay(decay=self.decay)

    def start(self, theta: Vector) -> VelocityState:
        return VelocityState(np.zeros_like(theta), 0)

    def step(
        self, theta: Vector, gradient: Vector, state: VelocityState
    ) -> tuple[Vector, VelocityState]:
        velocity = self.decay * state.velocity + gradient
        return theta - self.learning_rate * velocity, VelocityState(velocity, state.steps + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nesterov:
    """Nesterov momentum (1983): v ← βv + g, θ ← θ - η(g + βv).

    In the variables of Sutskever et al. (2013), θ is their look-ahead point: a gradient is taken
    where the iterate is, and one release a step is all that is needed.

    No bound on the excess risk is known here for noisy gradients.
    """

    learning_rate: float
    decay: float

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate)
        _require_decay(decay=self.decay)

    def start(self, theta: Vector) -> VelocityState:
        return VelocityState(np.zeros_like(theta), 0)

    def step(
        self, theta: Vector, gradient: Vector, state: VelocityState
    ) -> tuple[Vector, VelocityState]:
        velocity = self.decay * state.velocity + gradient
        direction = gradient + self.decay * velocity
        return theta - self.learning_rate * direction, VelocityState(velocity, state.steps + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebiasedMomentum:
    """v ← βv + (1 - β)g, θ ← θ - η·v/(1 - βᵗ) at step t: the step is a true mean of gradients.

    The momentum that the momentum-aware noise schedule assumes.
    """

    learning_rate: float
    decay: float

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate)
        _require_decay(decay=self.decay)

    def start(self, theta: Vector) -> VelocityState:
        return VelocityState(np.zeros_like(theta), 0)

    def step(
        self, theta: Vector, gradient: Vector, state: VelocityState
    ) -> tuple[Vector, VelocityState]:
        steps = state.steps + 1
        velocity = self.decay * state.velocity + (1 - self.decay) * gradient
        direction = velocity / (1 - self.decay**steps)
        return theta - self.learning_rate * direction, VelocityState(velocity, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaGrad:
    """S ← S + g², θ ← θ - η·g/(√S + ε) by coordinate (Duchi, Hazan and Singer 2011)."""

    learning_rate: float
    stability: float = 1e-10

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate, stability=self.stability)

    def start(self, theta: Vector) -> SquaresState:
        return SquaresState(np.zeros_like(theta))

    def step(
        self, theta: Vector, gradient: Vector, state: SquaresState
    ) -> tuple[Vector, SquaresState]:
        squares = state.squares + gradient**2
        scaled = gradient / (np.sqrt(squares) + self.stability)
        return theta - self.learning_rate * scaled, SquaresState(squares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Adam (Kingma and Ba 2015): both moments debiased, θ ← θ - η·m̂/(√ŝ + ε).

    With ``weight_decay`` w > 0 it is AdamW (Loshchilov and Hutter 2019): θ is first scaled by
    1 - η·w, apart from the gradient, whose moments do not see it.
    """

    learning_rate: float
    mean_decay: float = 0.9
    squares_decay: float = 0.999
    stability: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate, stability=self.stability)
        _require_decay(mean_decay=self.mean_decay, squares_decay=self.squares_decay)
        require_non_negative(weight_decay=self.weight_decay)

    def start(self, theta: Vector) -> MomentsState:
        return MomentsState(np.zeros_like(theta), np.zeros_like(theta), 0)

    def step(
        self, theta: Vector, gradient: Vector, state: MomentsState
    ) -> tuple[Vector, MomentsState]:
        steps = state.steps + 1
        mean = self.mean_decay * state.mean + (1 - self.mean_decay) * gradient
        squares = self.squares_decay * state.squares + (1 - self.squares_decay) * gradient**2
        scale = np.sqrt(squares / (1 - self.squares_decay**steps)) + self.stability
        direction = mean / (1 - self.mean_decay**steps) / scale
        shrunk = theta * (1 - self.learning_rate * self.weight_decay)
        return shrunk - self.learning_rate * direction, MomentsState(mean, squares, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yogi:
    """Yogi (Zaheer et al. 2018): s ← s - (1 - β₂)·sign(s - g²)·g², θ ← θ - η·m̂/(√ŝ + ε).

    As Adam, with squares that move by no more than their own size, so that one large gradient does
    not stop a coordinate for long.
    """

    learning_rate: float
    mean_decay: float = 0.9
    squares_decay: float = 0.99
    stability: float = 1e-3

    def __post_init__(self) -> None:
        require_positive(learning_rate=self.learning_rate, stability=self.stability)
        _require_decay(mean_decay=self.mean_decay, squares_decay=self.squares_decay)

    def start(self, theta: Vector) -> MomentsState:
        return MomentsState(np.zeros_like(theta), np.zeros_like(theta), 0)

    def step(
        self, theta: Vector, gradient: Vector, state: MomentsState
    ) -> tuple[Vector, MomentsState]:
        steps, new = state.steps + 1, gradient**2
        mean = self.mean_decay * state.mean + (1 - self.mean_decay) * gradient
        towards = np.sign(state.squares - new)
        squares = state.squares - (1 - self.squares_decay) * towards * new
        scale = np.sqrt(squares / (1 - self.squares_decay**steps)) + self.stability
        direction = mean / (1 - self.mean_decay**steps) / scale
        return theta - self.learning_rate * direction, MomentsState(mean, squares, steps)


def _require_decay(**parameters: float) -> None:
    for name, value in parameters.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {value!r}.")
