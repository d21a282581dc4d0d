"""The advantage of a dynamic schedule over uniform noise, as a curve over the condition number κ.

For each κ both schedules get the number of rounds that is best for them, and the advantage is the
ratio of their proved bounds on the excess risk. It is a statement about bounds: where these say
nothing (a bound above that of no training), neither does their ratio, and it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv._validate import require_count
from fedpriv.simulations.schedule_pictures import logistic_descent, planned, svg_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.simulations.schedule_pictures import Sketch


@dataclass(frozen=True, slots=True, kw_only=True)
class Advantage:
    """Uniform and dynamic noise on one problem, each with its best number of rounds.

    Attributes:
        kappa: κ = M/λ.
        uniform: The same noise in every round.
        dynamic: Noise that falls with γ.
    """

    kappa: float
    uniform: Sketch
    dynamic: Sketch

    @property
    def ratio(self) -> float | None:
        """The bound of uniform noise over that of dynamic noise; None if either says nothing."""
        bounds = [float(sketch.summary()["bound"]) for sketch in (self.uniform, self.dynamic)]
        known = all(bound < self.uniform.descent.gap for bound in bounds)
        return bounds[0] / bounds[1] if known else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "kappa": self.kappa,
            "gamma": self.uniform.descent.gamma,
            "uniform_rounds": self.uniform.rounds,
            "uniform_bound": self.uniform.summary()["bound"],
            "dynamic_rounds": self.dynamic.rounds,
            "dynamic_bound": self.dynamic.summary()["bound"],
            "advantage": self.ratio,
        }


def advantages(
    *,
    budget: Budget,
    adjacency: Adjacency,
    records: int,
    dimension: int,
    least: float,
    most: float,
    points: int,
    rounds: int,
) -> tuple[Advantage, ...]:
    """For ``points`` values of κ from ``least`` to ``most``, evenly spaced by their logarithms.

    No gradient is clipped: of clipped ones no bound is known. ``rounds`` is the largest number that
    is tried.
    """
    require_count(points=points, rounds=rounds)
    if not 1 < least <= most:
        raise ValueError(f"kappa must range from above 1 upwards, got {least!r} to {most!r}.")
    made = []
    for kappa in np.geomspace(least, most, points).tolist():
        descent = logistic_descent(records=records, dimension=dimension, condition=kappa, clip=1.0)
        uniform, dynamic = planned(budget=budget, adjacency=adjacency, descent=descent, most=rounds)
        made.append(Advantage(kappa=kappa, uniform=uniform, dynamic=dynamic))
    return tuple(made)


def save_advantage(found: Sequence[Advantage], path: Path) -> None:
    """The curve as SVG, with the bounds below it; needs matplotlib."""
    with svg_figure(path, title=f"dynamic against uniform noise, {found[0].uniform.budget}") as (
        upper,
        lower,
    ):
        known = [(one.kappa, one.ratio) for one in found if one.ratio is not None]
        upper.plot([kappa for kappa, _ in known], [ratio for _, ratio in known], "o-", ms=3)
        upper.set_ylabel("advantage: ratio of the bounds")
        for name in ("uniform", "dynamic"):
            bounds = [getattr(one, name).summary()["bound"] for one in found]
            lower.plot([one.kappa for one in found], bounds, "o-", ms=3, label=name)
        lower.set_yscale("log")
        lower.set_ylabel("bound on the excess risk")
        lower.legend()
        for axes in (upper, lower):
            axes.set_xscale("log")
            axes.grid(alpha=0.3)
        lower.set_xlabel("κ = M/λ")
