"""Noise at the parties, for strategies whose noise is on a sum of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.queries.bounds import grid_of
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.shares import shared_noise
from fedpriv.secagg import FixedPoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fedpriv.federation.federation import Sum
    from fedpriv.federation.task import Task
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.mechanisms.shares import NoiseShare
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.privacy.planning.shares import Sharing
    from fedpriv.privacy.randomness import RandomStream


def with_shares(
    plan: FixedPlan,
    sharing: Sharing,
    task: Task,
    *,
    moved: float,
    bound: float,
    shape: Sequence[float],
) -> FixedPlan:
    """The plan with its noise added by the parties, within the same budget.

    Args:
        plan: Made for noise at the server; everything but its mechanisms is kept.
        sharing: Who adds shares.
        task: The problem.
        moved: How far one record moves the sum over any of the parties in L2, before rounding to
            the grid.
        bound: The largest |coordinate| of a sum without noise.
        shape: The noise of each release relative to the others.

    Raises:
        ValueError: The sum, with the noise of all parties on it, could wrap around.
    """
    grid, d = FixedPoint(step=plan.step, bits=64), plan.dimension
    mechanisms = shared_noise(
        budget=plan.budget,
        sharing=sharing,
        l1_sensitivity=grid.l1_sensitivity(sensitivity=moved, dimension=d),
        l2_sensitivity=grid.l2_sensitivity(sensitivity=moved, dimension=d),
        dimension=d,
        step=plan.step,
        adjacency=plan.adjacency,
        unit=plan.unit,
        shape=shape,
        sampling_rate=plan.sampling_rate,
    )
    reach = max(share_reach(mechanism, task) for mechanism in set(mechanisms))
    grid_of(step=plan.step, bound=bound + reach, parties=task.parties)  # refuses sums that wrap
    return replace(
        plan,
        query=f"{plan.query}, with a share of the noise",
        mechanisms=mechanisms,
        noise_at="parties",
        accountant="auto",
    )


def share_of(mechanism: Mechanism | None) -> NoiseShare | None:
    """What a party adds to its answer, if noise is added in shares."""
    return mechanism.share if isinstance(mechanism, SharedNoise) else None


def share_reach(mechanism: Mechanism | None, task: Task) -> float:
    """Room in the ring for the shares of all parties, on top of the sum; 0 without shares."""
    if not isinstance(mechanism, SharedNoise):
        return 0.0
    return mechanism.share.reach(task.parties) * mechanism.step


def released(
    mechanism: Mechanism | None, answer: Sum, stream: Callable[[], RandomStream]
) -> NDArray[np.float64]:
    """The noisy sum: as received, if the parties added its noise, or with noise added here."""
    if isinstance(mechanism, SharedNoise):
        return answer.value
    return noisy_sum(mechanism, answer.total, step=answer.step, stream=stream())


def noisy_sum(
    mechanism: Mechanism | None, total: NDArray[np.int64], *, step: float, stream: RandomStream
) -> NDArray[np.float64]:
    """Grid integers with the mechanism's noise added; unchanged in a `NoiseFree` run."""
    if mechanism is None:
        return total.astype(np.float64) * step
    return mechanism.release(total, step=step, stream=stream)
