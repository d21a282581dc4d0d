"""What a deployed party is audited with: neighbouring tables, and queries of every kind."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.federation.queries.bounds import (
    certain_tolerance,
    counted_sensitivity,
    gradient_sensitivity,
    headroom,
    model_sensitivity,
    objective_mechanism,
    share_mechanism,
)
from fedpriv.federation.queries.hessian import hessian_sensitivity
from fedpriv.federation.queries.kinds import (
    ErmQuery,
    GradientQuery,
    HessianQuery,
    LossQuery,
    MomentsQuery,
    RiskGradientQuery,
)
from fedpriv.federation.queries.local_noise import LocalNoise, sensitivity_of
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import (
    ApproximateEvent,
    BoundedRangeEvent,
    GaussianEvent,
    PoissonGaussianEvent,
)
from fedpriv.privacy.mechanisms.shares import NoiseShare
from fedpriv.privacy.planning.objective.objective import ObjectiveNoise
from fedpriv.secagg import FixedPoint
from tests.federation.deployed.deployments import SIZES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.task import Task

R, A = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
N, CLIP, LAMBDA = SIZES[0], 0.25, 0.1
GRID = FixedPoint(step=2.0**-24, bits=64)
SCHEMA = """
label = "sick"
positive = "yes"
out_of_range = "clamp"
[columns.sick]
kind = "category"
values = ["no", "yes"]
[columns.age]
kind = "number"
min = 0
max = 100
fill = 50
[columns.dose]
kind = "number"
min = -1
max = 1
fill = 0
"""
LABEL = '[columns.sick]\nkind = "category"\nvalues = ["no", "yes"]\n'

# Tables and their neighbours.

Table = tuple[str, ...]
BASE: Table = tuple(
    f"{3 + 2.3 * i:.1f},{np.sin(i):.2f},{'yes' if i % 3 else 'no'}" for i in range(N)
)
LONELY: Table = ("1,0.1,yes", *(f"{2 * i},0.5,no" for i in range(1, N)))


def changed(table: Table, row: int, to: str) -> Table:
    return tuple(to if i == row % len(table) else each for i, each in enumerate(table))


def without(table: Table, row: int) -> Table:
    return tuple(each for i, each in enumerate(table) if i != row % len(table))


NEIGHBOURS: dict[Adjacency, dict[str, tuple[Table, Table]]] = {
    R: {
        "first row": (BASE, changed(BASE, 0, "60,0.3,yes")),
        "last row": (BASE, changed(BASE, -1, "2,-0.3,no")),
        "label flips": (changed(BASE, 7, "100,1,yes"), changed(BASE, 7, "100,1,no")),
        "opposite record": (changed(BASE, 7, "100,1,yes"), changed(BASE, 7, "0,-1,yes")),
        "only positive record": (LONELY, changed(LONELY, 0, "1,0.1,no")),
        "out of range": (BASE, changed(BASE, 3, "1e300,-1e300,yes")),
        "missing": (BASE, changed(BASE, 3, ",,yes")),
    },
    A: {
        "first row": (BASE, without(BASE, 0)),
        "last row": (BASE, without(BASE, -1)),
        "extreme record": (changed(BASE, 7, "100,1,no"), without(BASE, 7)),
        "only positive record": (LONELY, without(LONELY, 0)),
        "missing": (changed(BASE, 3, ",,yes"), without(BASE, 3)),
        "only record": (BASE[:1], ()),
    },
}


# Queries, each with the sensitivity that it is charged for: in L2, in steps of the grid.

Case = tuple["Query", float]


def gradient(task: Task, adjacency: Adjacency, **changes: Any) -> Case:
    event = GaussianEvent(relative_noise=10.0, adjacency=adjacency)
    query = GradientQuery(
        run="audit", round=0, grid=GRID, event=event, theta=np.zeros(3), clip_norm=CLIP, **changes
    )
    moved = gradient_sensitivity(task, clip_norm=CLIP, adjacency=adjacency)
    moved *= task.gradient_weight(query.weights, N)
    return query, moved / GRID.step + sqrt(task.dimension)


def equally_weighted(task: Task, adjacency: Adjacency) -> Case:
    return gradient(task, adjacency, weights="equal")


def sampled(task: Task, adjacency: Adjacency) -> Case:
    query, sensitivity = gradient(task, adjacency, sampling_rate=0.5)
    event = PoissonGaussianEvent(relative_noise=10.0, sampling_rate=0.5, adjacency=adjacency)
    return replace(query, event=event), sensitivity


def counted(task: Task, adjacency: Adjacency, **changes: Any) -> Case:
    """Adaptive clipping by a quantile: gradients in units of C, and how many were not clipped."""
    query, _ = gradient(task, adjacency, counting=0.5, **changes)
    moved = counted_sensitivity(task, counting=0.5, adjacency=adjacency, step=GRID.step)
    return query, moved / GRID.step + sqrt(task.dimension + 1)


def scaled(task: Task, adjacency: Adjacency, **changes: Any) -> Case:
    """Adaptive clipping by coordinates: (g − a)/b is clipped."""
    centre, scale = np.array([0.02, -0.1, 0.0]), np.array([0.5, 1.0, 2.0])
    return gradient(task, adjacency, centre=centre, scale=scale, **changes)


def with_own_noise(task: Task, query: GradientQuery | ErmQuery, law: Any, on: Adjacency) -> Case:
    query = replace(query, local=LocalNoise(law=law, relative_noise=20.0, adjacency=on))
    mechanism = query.local_mechanism(task, N)
    assert mechanism is not None
    return replace(query, event=mechanism.event()), sensitivity_of(mechanism) / GRID.step


def locally_gaussian(task: Task, adjacency: Adjacency) -> Case:
    query, _ = gradient(task, adjacency)
    assert isinstance(query, GradientQuery)
    return with_own_noise(task, query, "gaussian", adjacency)


def locally_laplace(task: Task, adjacency: Adjacency) -> Case:
    query, _ = gradient(task, adjacency)
    assert isinstance(query, GradientQuery)
    return with_own_noise(task, query, "l2-laplace", adjacency)


def with_a_share(task: Task, adjacency: Adjacency, kind: Callable[..., Case] = gradient) -> Case:
    share = NoiseShare(law="skellam", parameter=1e18, minimum=2, colluders=1)
    query, _ = kind(task, adjacency, share=share)
    mechanism = share_mechanism(query, task)
    assert mechanism is not None
    return replace(query, event=mechanism.event()), mechanism.l2_sensitivity


def counted_with_a_share(task: Task, adjacency: Adjacency) -> Case:
    return with_a_share(task, adjacency, counted)


def scaled_with_a_share(task: Task, adjacency: Adjacency) -> Case:
    return with_a_share(task, adjacency, scaled)


def minimiser(task: Task, adjacency: Adjacency, **changes: Any) -> Case:
    query = ErmQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=GaussianEvent(relative_noise=10.0, adjacency=adjacency),
        regulariser=LAMBDA,
        tolerance=1e-9,
        **changes,
    )
    moved = model_sensitivity(
        task, regulariser=LAMBDA, tolerance=1e-9, weights=query.weights, sizes=(N,), step=GRID.step
    )
    return query, moved / GRID.step + sqrt(task.dimension)


def minimiser_with_own_noise(task: Task, adjacency: Adjacency) -> Case:
    query, _ = minimiser(task, adjacency, weights="equal")
    assert isinstance(query, ErmQuery)
    return with_own_noise(task, query, "l1-laplace", adjacency)


def perturbed_minimiser(task: Task, adjacency: Adjacency, *, epsilon: float = 0.05) -> Case:
    """With the same b the minimisers differ as without one, by strong convexity λ + Δ."""
    objective = ObjectiveNoise(law="l2-laplace", epsilon=epsilon, delta=0.0, adjacency=adjacency)
    tolerance = certain_tolerance(task, regulariser=LAMBDA, objective=objective)
    query, _ = minimiser(task, adjacency, objective=objective)
    assert isinstance(query, ErmQuery)
    query = replace(query, tolerance=tolerance)
    mechanism = objective_mechanism(query, objective, task, N)
    moved = model_sensitivity(
        task,
        regulariser=LAMBDA + mechanism.extra_regulariser,
        tolerance=tolerance,
        weights=query.weights,
        sizes=(N,),
        step=GRID.step,
    )
    return replace(query, event=mechanism.event()), moved / GRID.step + sqrt(task.dimension)


def joint_fit(task: Task, adjacency: Adjacency) -> Case:
    base, _ = gradient(task, adjacency)
    query = RiskGradientQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=base.event,
        theta=np.full(3, 0.3),
        exchange=0,
        headroom=headroom(adjacency, task),
    )
    moved = adjacency.sum_sensitivity * task.lipschitz * (1 + 1e-9)  # summed in float64
    return query, moved / GRID.step + sqrt(task.dimension)


def hessian(task: Task, adjacency: Adjacency) -> Case:
    query = HessianQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=ApproximateEvent(epsilon=0.05, delta=1e-9, adjacency=adjacency),
        theta=np.full(3, 0.3),
        exchange=7,
        headroom=headroom(adjacency, task),
    )
    return query, hessian_sensitivity(task, adjacency=adjacency, step=GRID.step) / GRID.step


def losses(task: Task, adjacency: Adjacency) -> Case:
    query = LossQuery(
        run="audit",
        round=0,
        grid=GRID,
        event=BoundedRangeEvent(epsilon=0.01, adjacency=adjacency),
        points=np.array([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]]),
        clip=CLIP,
    )
    return query, sqrt(2) * CLIP / GRID.step


def moments(task: Task, adjacency: Adjacency, **changes: Any) -> Case:
    """Second moments: R² or √2·R², by hand."""
    event = GaussianEvent(relative_noise=10.0, adjacency=adjacency)
    query = MomentsQuery(run="audit", round=0, grid=GRID, event=event, **changes)
    square = 1.0 if query.label_scale is None else 1.25
    square *= 1.0 if query.theta is None else 0.25
    moved = square * (sqrt(2) if adjacency is R else 1) * (1 + 2.0**-28)
    return query, moved / GRID.step + sqrt(query.answer_width(task))


def weighted_moments(task: Task, adjacency: Adjacency, **changes: Any) -> Case:
    """With the label, and weights at a point."""
    at = np.array([0.3, -0.2, 0.1])
    return moments(
        task,
        adjacency,
        label_scale=0.5,
        label_bound=1.0,
        weighting="logistic",
        theta=at,
        **changes,
    )


def moments_with_a_share(task: Task, adjacency: Adjacency) -> Case:
    return with_a_share(task, adjacency, moments)


def weighted_moments_with_a_share(task: Task, adjacency: Adjacency) -> Case:
    return with_a_share(task, adjacency, weighted_moments)


# How much of the sensitivity the worst of the neighbours takes up, at the least: a check
# that nothing comes near would not see a sensitivity that is too small.
CASES: dict[str, tuple[Callable[[Task, Adjacency], Case], Adjacency, float]] = {
    f"{case.__name__}-{adjacency.value}": (case, adjacency, least)
    for case, adjacency, least in (
        (gradient, R, 0.9),
        (gradient, A, 0.9),
        (sampled, A, 0.9),
        (counted, R, 0.9),
        (counted, A, 0.9),
        (scaled, R, 0.9),
        (scaled, A, 0.9),
        (equally_weighted, R, 0.9),
        (locally_gaussian, R, 0.9),
        (locally_gaussian, A, 0.9),
        (locally_laplace, R, 0.9),
        (with_a_share, R, 0.9),
        (with_a_share, A, 0.9),
        (counted_with_a_share, R, 0.9),
        (counted_with_a_share, A, 0.9),
        (scaled_with_a_share, R, 0.9),
        (joint_fit, R, 0.45),
        (joint_fit, A, 0.6),
        (hessian, R, 0.3),
        (hessian, A, 0.6),
        (losses, R, 0.6),
        (losses, A, 0.9),
        (moments, R, 0.9),
        (weighted_moments, A, 0.8),
        (moments_with_a_share, R, 0.9),
        (weighted_moments_with_a_share, R, 0.6),
        (weighted_moments_with_a_share, A, 0.8),
        (minimiser, R, 0.3),
        (minimiser_with_own_noise, R, 0.3),
        (perturbed_minimiser, R, 0.05),
    )
}
DRAWN = (
    locally_gaussian,
    locally_laplace,
    with_a_share,
    counted_with_a_share,
    perturbed_minimiser,
)
