"""Plans of adaptive clipping, given the task's own numbers: noisy sums in units of the bound."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.federation.queries.bounds import counted_sensitivity
from fedpriv.learning.clipping.norms import require_clip
from fedpriv.privacy.planning.gradient import gradient_plan
from fedpriv.strategies.common.plans.plans import (
    gradient_grid,
    noise_free_gradients,
    require_shareable,
)
from fedpriv.strategies.common.plans.sharing import with_shares
from fedpriv.strategies.common.settling import clip_of

if TYPE_CHECKING:
    from fedpriv.federation.task import Task
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.privacy.planning.noise_free import NoiseFree
    from fedpriv.strategies.adaptive_clipping import ClippingOptions
    from fedpriv.strategies.common.building import Setup


def sum_bound(task: Task, counting: float | None) -> float:
    """The largest |coordinate| of a sum without noise, in units of the bound on a record."""
    return task.records * max(1.0, (counting or 0.0) / 2)


def clipping_plan(
    setup: Setup, options: ClippingOptions, *, name: str
) -> tuple[FixedPlan | NoiseFree, float | None]:
    """T noisy sums in units of the bound on a record's gradient; and κ, by which a count is scaled.

    κ is the even multiple of the grid step that gives the count its share of μ².
    """
    task, counted = setup.task, options.rule == "quantile"
    if setup.noise_free:
        rates = (options.sampling_rate,) * options.rounds
        exact = noise_free_gradients(setup, rates=rates, clip_norm=1.0)
        return exact, 1.0 if counted else None
    if setup.sharing is not None:
        require_shareable(setup, "exact", options.sampling_rate, options.accountant)
    step, moved = gradient_grid(setup, clip_norm=1.0)
    counting, parties = None, 1 if task.persons is None else task.persons.parties
    if counted:
        wanted = moved * sqrt(options.count_share / (1 - options.count_share))
        half = wanted / (parties * setup.adjacency.sum_sensitivity)
        counting = 2 * max(1.0, float(np.rint(half / step))) * step
        # Refused before it is paid for.
        require_clip(min(clip_of(options), options.most(counting)))
        moved = counted_sensitivity(task, counting=counting, adjacency=setup.adjacency, step=step)
    plan = gradient_plan(
        budget=setup.budget,
        rounds=options.rounds,
        sensitivity=moved,
        clip_norm=1.0,
        sizes=task.sizes,
        dimension=task.dimension + counted,
        step=step,
        adjacency=setup.adjacency,
        sampling_rate=options.sampling_rate,
        parts=parties,
        unit=setup.unit,
        accountant="auto" if setup.sharing else options.accountant,
    )
    and_counts = " and noisy counts" if counted else ""
    plan = replace(
        plan,
        strategy=name,
        query=_asked(setup, options, counting),
        released=f"noisy sums of gradients{and_counts}, hence every model of the run",
        clip_norm=None,  # it moves
    )
    if setup.sharing is None:
        return plan, counting
    bound, shape = sum_bound(task, counting), (1.0,) * options.rounds
    return with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=shape), counting


def _asked(setup: Setup, options: ClippingOptions, counting: float | None) -> str:
    """What a party is asked for, in words: the plan does not fix the bound to which it clips."""
    whole = ", each person's summed before it is clipped" if setup.task.persons else ""
    what = f"the sum of its records' clipped gradients{whole}"
    if counting is None:
        return f"{what}, in units of a scale of each coordinate, which follows what was released"
    first = min(clip_of(options), options.most(counting))
    return (
        f"{what}, in units of the bound, {first:g} in the first round, which follows what was "
        "released; and how many were not clipped"
    )
