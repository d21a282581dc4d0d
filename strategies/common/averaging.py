"""Averaging of models: what the strategies that average have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedpriv.federation.queries.bounds import grid_of
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.building import Options, Positive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.planning.plan import Plan


class FitOptions(Options):
    """Options of a fit.

    Attributes:
        tolerance: The gradient norm to which a minimiser is certified, or "auto".
    """

    tolerance: Positive | Literal["auto"] = "auto"

    def gradient_norm(self, task: Task, *, certain: float | None = None) -> float:
        """The tolerance; by default a thousandth of the 2G/N that it adds to, within limits.

        At least ``certain``, which is certified whatever the records and the noise are; by default
        that of every party's own minimiser. With a smaller one the records would decide whether
        there is an answer, and a release that fails and is tried again would reveal it.
        """
        wanted = min(1e-6, max(1e-11, 1e-3 * task.lipschitz / task.records))
        if not (task.convex and task.regulariser):
            return wanted  # there is no minimiser, and the strategy will say so
        least = task.certain_tolerance(task.regulariser) if certain is None else certain
        if self.tolerance == "auto":
            return max(wanted, least)
        if self.tolerance < least:
            raise ValueError(
                f"tolerance must be at least {least:.3g} here, got {self.tolerance!r}: with less, "
                "whether a minimiser is found depends on the records and the noise. Use 'auto'."
            )
        return self.tolerance


class ModelOptions(FitOptions):
    """Options of an average of minimisers.

    Attributes:
        weights: n_j/N ("proportional") or 1/m ("equal").
    """

    weights: Literal["equal", "proportional"] = "proportional"


class RuledOptions(Options):
    """Which λ a strategy of noisy minimisers has.

    Attributes:
        regulariser: λ of the "model", or "auto" for that of a rule from public facts, the default
            if an experiment states no λ.
    """

    regulariser: Literal["model", "auto"] = "model"


def model_grid(task: Task, plan: Plan, *, noise_reach: float = 0.0) -> FixedPoint:
    """The plan's grid, in a ring that holds any average of minimisers, and noise on it."""
    bound = task.lipschitz / task.regulariser + noise_reach
    return grid_of(step=plan.step, bound=bound, parties=task.parties)


def mean_model(
    total: NDArray[np.float64], task: Task, weights: Weights, sizes: tuple[int, ...]
) -> NDArray[np.float64]:
    """Σ w_jθ_j over the parties of ``sizes``, divided by Σ w_j, which is 1 if all answered."""
    if sorted(sizes) == sorted(task.sizes):
        return total
    return total / sum(task.model_weight(weights, size) for size in sizes)


def on_grid(theta: NDArray[np.float64], *, step: float) -> NDArray[np.int64]:
    """A model as integers on a grid, 64 bits each."""
    grid = FixedPoint(step=step, bits=64)
    return grid.decode(grid.encode(theta))
