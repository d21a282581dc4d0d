"""Noise schedules as numbers and pictures: σ_t, ρ_t and the bound, if any, round by round."""

from __future__ import annotations

from contextlib import contextmanager
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
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget

NAMES = ("uniform", "dynamic", "momentum", "exponential", "step")
_WIDTH, _HEIGHT = 64, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A schedule with its noise, cost and bound for one budget and problem.

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
    def bounds(self) -> NDArray[np.float64] | None:
        """The bound on the excess risk after each round, where one is proved."""
        return None if self.descent.no_bound else self.descent.bounds(self.noise)

    def summary(self) -> dict[str, Any]:
        """One line of a table, JSON-ready; no bound and no gain where nothing is proved."""
        noise, bounds = self.noise, self.bounds
        return {
            "schedule": self.schedule.name,
            "rounds": self.rounds,
            "gamma": self.descent.gamma,
            "step": self.descent.step,
            "first_noise": float(noise[0]),
            "last_noise": float(noise[-1]),
            "bound": None if bounds is None else float(bounds[-1]),
            "no_bound": self.descent.no_bound,
            "gain": None if bounds is None else self.descent.gain(noise),
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

    M = 1/4 + λ and μ = λ, so that λ = 1/(4(κ − 1)); a record's gradient has a norm of at most 1.
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
        lipschitz=1.0,
        momentum=momentum,
    )


def planned(
    *, budget: Budget, adjacency: Adjacency, descent: Descent, most: int
) -> tuple[Sketch, ...]:
    """Uniform noise and that which is best for the descent, each with its best number of rounds.

    The best noise is dynamic for plain descent, and momentum-aware for debiased momentum.
    """
    total, gamma = allowed(budget, adjacency), descent.gamma
    best: Schedule = (
        MomentumAware(gamma=gamma, beta=descent.momentum)
        if descent.momentum
        else Dynamic(gamma=gamma)
    )
    schedules = (Uniform(), best)
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


def text_curve(
    values: NDArray[np.float64],
    *,
    title: str,
    axis: str = "round",
    ends: tuple[str, str] | None = None,
) -> str:
    """A curve for a terminal, from its least to its largest value; over the rounds by default.

    ``ends`` are the first and the last place on the ``axis``, which is then as wide as it can be.
    """
    count = len(values)
    columns = min(_WIDTH, count) if ends is None else _WIDTH
    chosen = np.linspace(0, count - 1, min(columns, count)).round().astype(int)
    spots = np.linspace(0, columns - 1, len(chosen)).round().astype(int)
    low, high = float(values.min()), float(values.max())
    span = (high - low) or 1.0
    lines = ((high - values[chosen]) / span * (_HEIGHT - 1)).round().astype(int)
    blank = np.full((_HEIGHT, columns), " ")
    blank[lines, spots] = "●"
    grid = ["".join(row).rstrip() for row in blank]
    ticks = [f"{high - span * row / (_HEIGHT - 1):>10.4g} ┤" for row in range(_HEIGHT)]
    body = [tick + cells for tick, cells in zip(ticks, grid, strict=True)]
    first, last = ends or ("1", str(count))
    below = f"{axis:>11} {first}{last:>{max(1, columns - len(first))}}"
    return "\n".join([title, *body, " " * 11 + "└" + "─" * columns, below])


@contextmanager
def svg_figure(path: Path, *, title: str, plots: int = 2) -> Iterator[list[Axes]]:
    """Axes below one another, to draw on, saved as SVG at the end; needs matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--svg needs matplotlib: pip install 'fedpriv[report]'.") from None
    figure = Figure(figsize=(7, 7), layout="constrained")
    yield [figure.add_subplot(plots, 1, place) for place in range(1, plots + 1)]
    figure.suptitle(title)
    with rc_context({"svg.hashsalt": "fedpriv"}):  # the same numbers make the same file
        figure.savefig(path, format="svg", metadata={"Date": None})


def save_svg(sketch: Sketch, path: Path) -> None:
    """The curves as SVG; needs matplotlib."""
    curves = {"noise σ / clip norm": sketch.noise, "cost ρ": sketch.rho}
    if sketch.bounds is not None:
        curves["bound on the excess risk"] = sketch.bounds
    title = f"{sketch.schedule.name}, {sketch.budget}, {sketch.adjacency.value}"
    with svg_figure(path, title=title, plots=len(curves)) as plots:
        for axes, (label, values) in zip(plots, curves.items(), strict=True):
            axes.plot(np.arange(1, sketch.rounds + 1), values)
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
        plots[-1].set_xlabel("round")
