"""Plans of second-order steps, given the task's own numbers: one matrix, then gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.queries.bounds import finest_grid, gradient_sensitivity, grid_of
from fedpriv.federation.queries.kinds import GradientQuery
from fedpriv.federation.queries.moments import moment_sensitivity, most_in_answer
from fedpriv.learning.moments import width
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.planning.second_order import noise_shape, of_persons, second_order_plan
from fedpriv.privacy.planning.shares import SharedSum, shared_noises
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.plans.plans import gradient_grid, require_shareable
from fedpriv.strategies.common.plans.sharing import share_reach

if TYPE_CHECKING:
    from fedpriv.federation.task import Task
    from fedpriv.privacy.mechanisms import Mechanism
    from fedpriv.privacy.planning.second_order import SecondOrderPlan
    from fedpriv.privacy.planning.shares import Sharing
    from fedpriv.strategies.common.building import Setup


def plan_second_order(
    setup: Setup,
    *,
    rounds: int,
    clip_norm: float,
    matrix_share: float,
    accountant: str,
    sampling_rate: float = 1.0,
) -> SecondOrderPlan | NoiseFree:
    """One noisy matrix and T noisy sums of gradients; in a noise-free set-up, exact sums.

    Sensitivities are those of `moment_sensitivity` and `gradient_sensitivity`, on one grid: the
    finer of the two that they need.
    """
    task, size = setup.task, setup.task.model.features
    _require_clippable(task, clip_norm)
    if setup.noise_free:
        step = finest_grid(bound=2 * max(sum_bounds(task, clip_norm))).step
        return NoiseFree(step=step, rates=(sampling_rate,) * (rounds + 1), clip_norm=clip_norm)
    if setup.sharing is not None:
        require_shareable(setup, sampling_rate=sampling_rate, accountant=accountant)
    step = min(gradient_grid(setup, clip_norm=clip_norm)[0], _matrix_step(setup))
    moved = gradient_sensitivity(task, clip_norm=clip_norm, adjacency=setup.adjacency, step=step)
    moved_matrix = moment_sensitivity(
        task,
        radius=task.feature_bound,
        width=width(size),
        adjacency=setup.adjacency,
        step=step,
    )
    plan = second_order_plan(
        budget=setup.budget,
        rounds=rounds,
        matrix_sensitivity=moved_matrix,
        gradient_sensitivity=moved,
        clip_norm=clip_norm,
        sizes=task.sizes,
        dimension=task.dimension,
        matrix_width=width(size),
        step=step,
        adjacency=setup.adjacency,
        matrix_share=matrix_share,
        accountant="auto" if setup.sharing else accountant,
        unit=setup.unit,
        sampling_rate=sampling_rate,
        parts=1 if task.persons is None else task.persons.parties,
    )
    plan = plan if task.persons is None else of_persons(plan)
    if setup.sharing is not None:
        moves = (moved_matrix, moved)
        plan = _with_shares(plan, setup.sharing, matrix_share=matrix_share, moved=moves)
    for bound, mechanism in zip(sum_bounds(task, clip_norm), plan.mechanisms, strict=False):
        sum_grid(task, bound, mechanism, step)  # refuses sums that would wrap, before any payment
    return plan


def matrix_stddev(mechanism: Mechanism | None, task: Task) -> float:
    """σ_M, if all parties are in the sum; 0 without noise."""
    if isinstance(mechanism, SharedNoise):
        return mechanism.stddev_of(task.parties)
    return 0.0 if mechanism is None else mechanism.noise_stddev


def _require_clippable(task: Task, clip_norm: float) -> None:
    """Refuse a clip norm that parties would refuse, before the matrix is paid for."""
    GradientQuery(
        run="plan",
        round=1,
        grid=FixedPoint(step=1.0),
        event=None,
        theta=np.zeros(task.dimension),
        clip_norm=clip_norm,
    ).check(task)


def _matrix_step(setup: Setup) -> float:
    """The grid step that the matrix needs."""
    task, square = setup.task, setup.task.feature_bound**2
    return FixedPoint.for_sum(
        bound=task.records * square,
        sensitivity=square,  # the smaller one, under add-remove
        dimension=width(task.model.features),
        noise_stddev=0.0,
        parties=task.parties,
    ).step


def sum_bounds(task: Task, clip_norm: float) -> tuple[float, float]:
    """The largest |coordinate| of the sum of all matrices, and of all gradients."""
    members = sum(count * most_in_answer(task, size) for size, count in task.size_counts.items())
    return members * task.feature_bound**2, task.records * clip_norm


def sum_grid(task: Task, bound: float, mechanism: Mechanism | None, step: float) -> FixedPoint:
    """A grid with room for a sum of up to ``bound``, for rounding, and for shares of its noise.

    Raises:
        ValueError: The sum, with the noise of all parties on it, could wrap around.
    """
    reach = bound * (1 + 2.0**-20) + share_reach(mechanism, task)
    return grid_of(step=step, bound=reach, parties=task.parties)


def _with_shares(
    plan: SecondOrderPlan,
    sharing: Sharing,
    *,
    matrix_share: float,
    moved: tuple[float, float],
) -> SecondOrderPlan:
    """The plan with noise of the parties; one unit moves matrix and gradients by ``moved``."""
    rounds = plan.rounds - 1
    grid = FixedPoint(step=plan.step, bits=64)
    matrix, gradient = (
        SharedSum(
            l1_sensitivity=grid.l1_sensitivity(sensitivity=far, dimension=numbers),
            l2_sensitivity=grid.l2_sensitivity(sensitivity=far, dimension=numbers),
            dimension=numbers,
            step=plan.step,
        )
        for far, numbers in zip(moved, (plan.matrix_width, plan.dimension), strict=True)
    )
    mechanisms = shared_noises(
        budget=plan.budget,
        sharing=sharing,
        sums=(matrix, *(gradient,) * rounds),
        adjacency=plan.adjacency,
        unit=plan.unit,
        shape=noise_shape(rounds, matrix_share),
        sampling_rate=plan.sampling_rate,
    )
    return replace(
        plan,
        query=f"{plan.query}, with a share of the noise",
        mechanisms=mechanisms,
        noise_at="parties",
        accountant="auto",
    )
