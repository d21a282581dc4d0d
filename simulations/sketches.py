"""Noise schedules as numbers and pictures: σ_t, ρ_t and the predicted bound, round by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_choice
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.privacy.schedules import (
    Descent,
    Dynamic,
    Exponential,
    MomentumAware,
    Schedule,
    Step,
    Uniform,
    best_rounds,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget

NAMES = ("uniform", "dynamic", "momentum", "exponential", "step")
_WIDTH, _HEIGHT = 64, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A schedule with its noise, cost and promise for one budget and problem.

    Attributes:
        schedule: how rounds share the budget.
        budget: (ε, δ) of all rounds together.
        adjacency: which data sets are compared.
        descent: the problem, for the bound.
        rounds: T.
    """

    schedule: Schedule
    budget: Budget
    adjacency: Adjacency
    descent: Descent
    rounds: int

    @property
    def total(self) -> float:
        """R = Σσ_t⁻² that the budget allows, σ in units of the clip norm on the sum."""
        return allowed(self.budget, self.adjacency)

    @property
    def noise(self) -> NDArray[np.float64]:
        """σ_t: standard deviation on the sum, in units of the clip norm."""
        return self.schedule.noise(self.rounds, total=self.total)

    @property
    def rho(self) -> NDArray[np.float64]:
        """ρ_t, the zCDP cost of every round: (Δ/σ_t)²/2."""
        return np.asarray((self.adjacency.sum_sensitivity / self.noise) ** 2 / 2)

    @property
    def bound(self) -> float:
        """The bound on the excess risk after all rounds."""
        return self.descent.bound(self.noise)

    @property
    def bounds(self) -> NDArray[np.float64]:
        """The bound on the excess risk after each round."""
        noise = self.noise
        return np.array([self.descent.bound(noise[:t]) for t in range(1, self.rounds + 1)])

    @property
    def gain(self) -> float:
        """How many times smaller the noise term of the bound is than with uniform noise."""
        return self.schedule.gain(self.descent.influence(self.rounds))

    def summary(self) -> dict[str, Any]:
        """One line of a table, JSON-ready."""
        return {
            "schedule": self.schedule.name,
            "rounds": self.rounds,
            "gamma": self.descent.gamma,
            "first_noise": float(self.noise[0]),
            "last_noise": float(self.noise[-1]),
            "bound": self.bound,
            "gain": self.gain,
        }


def allowed(budget: Budget, adjacency: Adjacency) -> float:
    """R = μ(ε, δ)²/Δ², with Δ the sensitivity of a sum of vectors of norm 1."""
    mu = gdp_mu(epsilon=budget.epsilon, delta=budget.delta)
    return (mu / adjacency.sum_sensitivity) ** 2


def schedule_named(
    name: str,
    *,
    gamma: float,
    beta: float = 0.9,
    decay: float = 0.99,
    every: int = 20,
    factor: float = 0.8,
) -> Schedule:
    """A schedule by its name, with those of the parameters that it has."""
    require_choice(NAMES, schedule=name)
    schedules: dict[str, Schedule] = {
        "uniform": Uniform(),
        "dynamic": Dynamic(gamma=gamma),
        "momentum": MomentumAware(gamma=gamma, beta=beta),
        "exponential": Exponential(decay=decay),
        "step": Step(every=every, factor=factor),
    }
    return schedules[name]


def logistic_descent(
    *, records: int, dimension: int, condition: float, clip: float, momentum: float = 0.0
) -> Descent:
    """Logistic regression on features of norm at most 1 with condition number κ = M/μ.

    M = 1/4 + λ and μ = λ, so that λ = 1/(4(κ − 1)) and γ = 1 − 1/κ.
    """
    if not condition > 1:
        raise ValueError(f"kappa must be above 1, got {condition!r}: it is M/λ = 1/(4λ) + 1.")
    convexity = 0.25 / (condition - 1)
    return Descent(
        smoothness=0.25 + convexity,
        strong_convexity=convexity,
        records=records,
        dimension=dimension,
        clip_norm=clip,
        momentum=momentum,
    )


def planned(
    *, budget: Budget, adjacency: Adjacency, descent: Descent, most: int
) -> tuple[Sketch, ...]:
    """The uniform and the dynamic schedule, each with the number of rounds of its least bound."""
    total = allowed(budget, adjacency)
    schedules = (Uniform(), Dynamic(gamma=descent.gamma))
    return tuple(
        Sketch(
            schedule=schedule,
            budget=budget,
            adjacency=adjacency,
            descent=descent,
            rounds=best_rounds(descent, schedule, total=total, most=most),
        )
        for schedule in schedules
    )


def text_curve(values: NDArray[np.float64], *, title: str) -> str:
    """A curve over the rounds for a terminal, from its least to its largest value."""
    rounds = len(values)
    columns = min(_WIDTH, rounds)
    chosen = values[np.linspace(0, rounds - 1, columns).round().astype(int)]
    low, high = float(values.min()), float(values.max())
    span = (high - low) or 1.0
    lines = ((high - chosen) / span * (_HEIGHT - 1)).round().astype(int)
    grid = [
        "".join("●" if line == row else " " for line in lines).rstrip() for row in range(_HEIGHT)
    ]
    ticks = [f"{high - span * row / (_HEIGHT - 1):>10.4g} ┤" for row in range(_HEIGHT)]
    body = [tick + cells for tick, cells in zip(ticks, grid, strict=True)]
    axis = [" " * 11 + "└" + "─" * columns, f"{'round':>11} 1{rounds:>{max(1, columns - 1)}}"]
    return "\n".join([title, *body, *axis])


def save_svg(sketch: Sketch, path: Path) -> None:
    """The three curves as SVG; needs matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--svg needs matplotlib: pip install 'fedpriv[report]'.") from None
    figure = Figure(figsize=(7, 7), layout="constrained")
    rounds = np.arange(1, sketch.rounds + 1)
    curves = {
        "noise σ / clip norm": sketch.noise,
        "cost ρ": sketch.rho,
        "bound on the excess risk": sketch.bounds,
    }
    for place, (label, values) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(3, 1, place)
        axes.plot(rounds, values)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    axes.set_xlabel("round")
    figure.suptitle(f"{sketch.schedule.name}, {sketch.budget}, {sketch.adjacency.value}")
    with rc_context({"svg.hashsalt": "fedpriv"}):  # the same numbers make the same file
        figure.savefig(path, format="svg", metadata={"Date": None})
