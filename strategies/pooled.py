"""Pooled, without privacy: the minimiser of all records together, by sums of exact gradients.

This is what could be learned if all records were in one place: the upper end of every comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv.federation.strategy.joint import JointStrategy, certain_joint_tolerance
from fedpriv.strategies.common.averaging import FitOptions
from fedpriv.strategies.common.building import Setup, StrategyInfo, light_l2

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Pooled(JointStrategy):
    """Many exchanges, no noise."""

    name: ClassVar[str] = "pooled"

    def _begin(self) -> tuple[NDArray[np.float64], float]:
        return np.zeros(self.task.dimension), 0.0

    def _end(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        return theta


INFO = StrategyInfo(
    name=Pooled.name,
    summary="no privacy: the joint minimiser of all records",
    noise_by="nobody",
    convex_only=True,
    options=FitOptions,
    auto_l2=light_l2,
)


def build(setup: Setup, options: FitOptions) -> Pooled:
    """The strategy; it has no guarantee, so no plan."""
    task = setup.task
    certain = certain_joint_tolerance(task, adjacency=setup.adjacency)
    tolerance = options.gradient_norm(task, certain=certain)
    return Pooled(
        task=task, plan=None, adjacency=setup.adjacency, tolerance=tolerance, run=setup.run
    )
