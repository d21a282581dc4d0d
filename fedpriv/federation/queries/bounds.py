"""Sensitivity bounds and fixed-point grids: how far one record changes a sum, from public facts.

The server chooses a grid by these numbers before the run, and the party checks it by the same
numbers: the two cannot drift apart. Sizes here are those of the task, public constants: under
add-remove adjacency a party may hold more or fewer records than its size says, and no number of
this module depends on how many. What concerns a single kind of query is in its own file.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, hypot, inf, isinf, log2, sqrt
from typing import TYPE_CHECKING

import torch

from fedpriv.federation.task import HEADROOM
from fedpriv.learning.erm.sensitivity import minimiser_sensitivity
from fedpriv.learning.rounding_error import rounding_sensitivity
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.privacy.planning.objective.objective import linear_reach
from fedpriv.privacy.planning.objective.objective_rules import ObjectiveProblem
from fedpriv.secagg import FixedPoint
from fedpriv.secagg.numbers.fixed_point import NOISE_DEVIATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.federation.queries.base import Query
    from fedpriv.federation.queries.erm import ErmQuery
    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.planning.objective.objective import ObjectiveMechanism, ObjectiveNoise

MAX_CONDITION = 1e7
"""The largest M/λ of a released minimiser: beyond it, the records decide how many steps a solver
takes, and so whether it succeeds."""

_MOST_ROUNDING = 0.02  # of the sensitivity: beyond that, float64 is worth its time


def headroom(adjacency: Adjacency, task: Task) -> float:
    """How many times its size a party's records, or persons, may be; 1 where that is public."""
    least = task.most_members
    return least if adjacency is Adjacency.REPLACE_ONE else max(least, HEADROOM * task.headroom)


def changes(task: Task, adjacency: Adjacency) -> int:
    """In how many terms of a sum neighbours differ, each bounded by itself: a clip norm, or G.

    A record is one term, or two if replaced. A person is one term at each of p parties; if
    replaced, the other's terms may be at p other parties.
    """
    parties = 1 if task.persons is None else task.persons.parties
    return parties * int(adjacency.sum_sensitivity)


def require_conditioned(task: Task, *, regulariser: float, headroom: float) -> None:
    """Refuse a minimiser beyond `MAX_CONDITION`, from public facts, before a record is read."""
    condition = 1 + headroom * task.curvature / regulariser
    if condition > MAX_CONDITION:
        raise ValueError(
            f"regulariser must make the problem better conditioned: M/λ is {condition:.3g}, and "
            f"beyond {MAX_CONDITION:g} the records decide whether a solver ends. Set a "
            "larger model.l2."
        )


def fits(query: Query, task: Task) -> bool:
    """Whether the sum of all parties' answers fits the ring of the query's grid."""
    counts = task.size_counts
    reach = sum(count * query.answer_bound(task, size) for size, count in counts.items())
    noise = sum(
        count * mechanism.noise_stddev**2
        for size, count in counts.items()
        if (mechanism := query.local_mechanism(task, size)) is not None
    )
    reach += NOISE_DEVIATIONS * sqrt(noise)
    if query.share is not None:
        reach += query.share.reach(task.parties) * query.grid.step
    return reach / query.grid.step + task.parties / 2 <= _largest(query.grid.bits)


def grid_of(*, step: float, bound: float, parties: int) -> FixedPoint:
    """The grid of a given step in the smallest ring that holds a sum of at most ``bound``.

    Raises:
        ValueError: Even 64 bits are too few. Nothing was asked.
    """
    reach = bound / step + parties / 2
    for bits in (32, 64):
        if reach <= _largest(bits):
            return FixedPoint(step=step, bits=bits)
    raise ValueError(
        f"a sum of up to {bound:.3g}, noise included, does not fit 64 bits on a grid of "
        f"{step:.3g}: it would wrap around. Plan less noise, or bound the answers more tightly."
    )


def _largest(bits: int) -> int:
    """The largest signed number of a ring, as an integer: 2^63 - 1 is not a double."""
    return (1 << (bits - 1)) - 1


def finest_grid(*, bound: float) -> FixedPoint:
    """The finest 64-bit grid with a bit to spare: for exact sums, which get no noise."""
    return FixedPoint(step=2.0 ** ceil(log2(bound / 2.0**62)), bits=64)


def gradient_sensitivity(
    task: Task,
    *,
    clip_norm: float,
    adjacency: Adjacency,
    step: float | None = None,
    wide: bool = False,
) -> float:
    """How far one unit moves a sum of clipped gradients as computed, before the grid.

    In L2; or in L1, if that is the norm that C bounds, and then ``wide``: summed in float64.

    A record: 2C (replace-one) or C (add-remove), plus what rounding can add in
    `gradient_precision`.

    A person: p·C (add-remove), C at each of the p parties with records of that person; 2p·C
    (replace-one), since the other person's may be at p other parties. Each of these answers is
    rounded separately, in floating point and to the grid of width ``step``: the result includes
    all but one of the grid's √d·step, since whoever plans a release adds that of one answer.
    """
    precision = torch.float64 if wide else gradient_precision(task, adjacency)
    rounding = _rounding(task, adjacency, precision)
    if task.persons is None:
        return clip_norm * (adjacency.sum_sensitivity + rounding)
    if step is None:
        raise ValueError("step must be given for persons: several answers are rounded to it.")
    answers = changes(task, adjacency)
    return answers * clip_norm * (1 + rounding) + (answers - 1) * sqrt(task.dimension) * step


def counted_sensitivity(task: Task, *, counting: float, adjacency: Adjacency, step: float) -> float:
    """How far one unit moves clipped gradients in units of C, with their count, before the grid.

    Gradients and count are one vector, whose blocks move by no more than each alone. The first is
    `gradient_sensitivity` for C = 1, plus one more rounding of every answer that changes, of at
    most 2⁻⁵² times its length before and after: the quotient by C. The second is exact: κ/2 for
    every unit at every party, joining or leaving, so that b itself, 0 or 1, costs at most ½.
    """
    moved = gradient_sensitivity(task, clip_norm=1.0, adjacency=adjacency, step=step)
    parties = 1 if task.persons is None else task.persons.parties
    changed = 1 if task.persons is None else parties * int(adjacency.sum_sensitivity)
    quotients = 2 * changed * headroom(adjacency, task) * task.largest * 2.0**-52
    return hypot(moved + quotients, adjacency.sum_sensitivity * parties * counting / 2)


def gradient_precision(task: Task, adjacency: Adjacency) -> torch.dtype:
    """The precision in which parties sum clipped gradients: that of the records, if possible.

    Those of persons are always summed in float64. Between add-remove neighbours every block of
    float32 sums may round differently, which with many records at one party would cost more noise
    than the record itself.
    """
    if task.persons is not None:
        return torch.float64
    cheap = _rounding(task, adjacency, torch.float32) <= (
        _MOST_ROUNDING * adjacency.sum_sensitivity
    )
    return torch.float32 if cheap else torch.float64


def summed_in_float64(query: Query, task: Task) -> bool:
    """Whether parties compute their clipped gradients in float64, by public facts alone.

    If the number of records decided, one more record would change the last digits of all others.
    """
    event = query.event
    if query.wide or event is None:
        return query.wide
    return gradient_precision(task, event.adjacency) is torch.float64


def most_in_blocks(query: Query, task: Task) -> float:
    """How many records of a party may be summed in blocks: as many as `_rounding` is proved for.

    A party with more records, which a declared number does not rule out, sums them one by one
    (`fedpriv.learning.clipping.one_by_one`). Its error is then far below that bound, on both sides
    of the limit.
    """
    event = query.event
    return inf if event is None else ceil(headroom(event.adjacency, task) * task.largest)


def _rounding(task: Task, adjacency: Adjacency, precision: torch.dtype) -> float:
    """What rounding adds to a sensitivity, in units of C, at the largest party.

    Other records keep their places only under replace-one adjacency, and only if no hash decides
    which of them are trained on: otherwise the exchanged record may join, or leave, that part.
    """
    return rounding_sensitivity(
        clip_norm=1.0,
        records=ceil(headroom(adjacency, task) * task.largest),
        dtype=precision,
        replace_one=adjacency is Adjacency.REPLACE_ONE and task.in_place,
    )


def model_sensitivity(
    task: Task,
    *,
    regulariser: float,
    tolerance: float,
    weights: Weights,
    sizes: Iterable[int],
    step: float,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
) -> float:
    """How far one unit moves Σ w_jθ_j over the parties of ``sizes``, in L2, before the grid.

    A record. Party j's certified minimiser moves by at most 2G/(n_jλ) + 2·tolerance/λ under
    replace-one, and the sum by w_j times that; the worst party decides.

    A person, whose records at a party count as their mean: G/(P_jλ) at each of the p parties with
    records of that person (add-remove), and as much for the other person (replace-one), where P_j
    is the declared number of persons. Each is at most max w_j·G/(P_jλ), so that the sum moves by p
    times that, or 2p.

    Where true numbers of records are private, they decide which parties are solved together, and so
    the last digits of all of them: every party may move by its tolerance, and may be rounded to
    another point of the grid of width ``step``. The result includes all but one of these √d·step,
    since whoever plans a release adds that of one answer.

    Raises:
        ValueError: The G of the loss is not known to hold at the minimisers.
    """
    counts = Counter(sizes)
    worst = max(
        task.model_weight(weights, size)
        * minimiser_sensitivity(
            task.loss,
            feature_bound=task.feature_bound,
            records=float(size),
            strong_convexity=regulariser,
            tolerance=tolerance,
            headroom=task.most_members,
            changes=changes(task, adjacency),
        )
        for size in counts
    )
    if task.in_place:
        return worst
    weight = sum(count * task.model_weight(weights, size) for size, count in counts.items())
    rounding = (counts.total() - 1) * sqrt(task.dimension) * step
    return worst + 2 * weight * tolerance / regulariser + rounding


def share_mechanism(query: Query, task: Task) -> SharedNoise | None:
    """The noise that the sum is sure to carry, if the parties add it in shares.

    Its sensitivities are those of the sum over any of the parties, in steps of the query's grid.
    """
    share, event = query.share, query.event
    if share is None or event is None:
        return None
    moved = query.sensitivity(task, sizes=task.sizes, adjacency=event.adjacency)
    if moved is None:
        return None
    width = query.answer_width(task)
    return SharedNoise(
        adjacency=event.adjacency,
        unit=event.unit,
        share=share,
        l1_sensitivity=query.grid.l1_sensitivity(sensitivity=moved, dimension=width),
        l2_sensitivity=query.grid.l2_sensitivity(sensitivity=moved, dimension=width),
        dimension=width,
        step=query.grid.step,
    )


def require_minimum(query: Query, parties: int) -> None:
    """Refuse to open a sum of fewer parties than its shares of noise are sized for."""
    if query.share is not None and parties < query.share.minimum:
        raise RuntimeError(
            f"the shares of noise are sized for sums of at least {query.share.minimum} parties, "
            f"and {parties} answered: such a sum must not be opened. Nothing was released."
        )


def objective_mechanism(
    query: ErmQuery, objective: ObjectiveNoise, task: Task, size: int
) -> ObjectiveMechanism:
    """The noise that a party of ``size`` adds to its own objective and to its minimiser.

    Raises:
        ValueError: The rules of objective perturbation do not hold for the loss.
    """
    return objective.mechanism(
        objective_problem(task, size, regulariser=query.regulariser, tolerance=query.tolerance),
        step=query.grid.step,
        weight=task.model_weight(query.weights, size),
    )


def certain_tolerance(
    task: Task, *, regulariser: float, objective: ObjectiveNoise | None = None
) -> float:
    """The least gradient norm that every party certifies whatever its records and its noise.

    With a linear term in the objectives, except for a probability of 2⁻⁶⁰ at each party: the longer
    b is, the more its rounding matters, and a party whose solver fails for long b would answer with
    short ones only. Public facts alone: below this, a query is refused before a record is read.
    """
    if objective is None:
        return task.certain_tolerance(regulariser)
    certain = 0.0
    for size in task.size_counts:
        problem = objective_problem(task, size, regulariser=regulariser, tolerance=1.0)
        linear, extra = objective.perturbation(problem)
        reach = linear_reach(linear, task.dimension) / size
        certain = max(certain, task.certain_tolerance(regulariser + extra, linear=reach))
    return certain


def objective_problem(
    task: Task, records: int, *, regulariser: float, tolerance: float
) -> ObjectiveProblem:
    """The facts on which objective perturbation of ``records`` records, or persons, rests.

    Raises:
        ValueError: The rules of objective perturbation do not hold for the loss.
    """
    return ObjectiveProblem(
        lipschitz=task.lipschitz,
        lipschitz_everywhere=isinf(task.loss.domain_radius),
        curvature=task.curvature,
        curvature_rank=task.loss.outputs,
        one_sided=task.loss.one_sided,
        records=records,
        regulariser=regulariser,
        dimension=task.dimension,
        tolerance=tolerance,
        person_records=task.most_records // task.largest,
        person_parties=1 if task.persons is None else task.persons.parties,
    )
