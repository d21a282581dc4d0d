"""Plans of minimisers: one noisy model, an average of the parties' minimisers or the joint one."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Literal

from fedpriv.federation.queries.bounds import changes, headroom, model_sensitivity
from fedpriv.learning.erm.sensitivity import minimiser_sensitivity
from fedpriv.privacy.planning.calibration import optimal_regulariser
from fedpriv.privacy.planning.output import output_plan
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.auto import output_regulariser
from fedpriv.strategies.common.building import HEAVY_L2
from fedpriv.strategies.common.plans.plans import UNCERTIFIED, refuse_study, require_replace_one
from fedpriv.strategies.common.plans.sharing import with_shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.mechanisms.laws import Law
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.strategies.common.building import Setup


def plan_output(
    setup: Setup,
    *,
    law: Law | Literal["auto"],
    weights: Weights,
    tolerance: float,
    joint: bool = False,
) -> FixedPlan:
    """One noisy average of the parties' minimisers, or the ``joint`` minimiser with noise.

    A joint fit is the case of one party that holds all records, N of them as declared by the task:
    it moves by 2G/(Nλ), or by G/(Nλ) under add-remove adjacency; by p times that for the person
    unit. The law "unsound-laplace" is for study: its plan states the √d·ε that it really costs.
    """
    refuse_study(law, setup)
    task, budget = setup.task, setup.budget
    task.require_stable_minimiser("output perturbation")
    if not joint and task.persons is None:
        require_replace_one(setup, "an average of minimisers", because=UNCERTIFIED)
    if setup.sharing is not None and (law != "auto" or joint):
        raise ValueError(
            "law must be 'auto' and fit 'average' with noise at the parties: shares have their "
            "own distribution (share_law), and a joint fit shows the server exact sums."
        )
    if law == "auto":
        law = "gaussian" if budget.delta > 0 else "l2-laplace"

    def sensitivity(tolerance: float, step: float) -> float:
        if joint:
            return _joint_sensitivity(setup, tolerance=tolerance)
        return model_sensitivity(
            task,
            regulariser=task.regulariser,
            tolerance=tolerance,
            weights=weights,
            sizes=task.sizes,
            step=step,
            adjacency=setup.adjacency,
        )

    # No average of minimisers is longer than G/λ; a joint fit may have more records than N.
    most = headroom(setup.adjacency, task) if joint else 1.0
    bound = most * task.lipschitz / task.regulariser
    rounded = 1 if joint or task.in_place else task.parties  # answers whose rounding may differ
    step = FixedPoint.for_sum(
        bound=bound,
        sensitivity=sensitivity(0.0, 0.0) / rounded,
        dimension=task.dimension,
        noise_stddev=0.0,
        parties=task.parties,
    ).step
    moved = sensitivity(tolerance, step)
    plan = output_plan(
        budget=budget,
        sensitivity=moved,
        sizes=task.sizes,
        dimension=task.dimension,
        step=step,
        law=law,
        joint=joint,
        adjacency=setup.adjacency,
        unit=setup.unit,
    )
    plan = of_means(plan, task)
    if setup.sharing is None:
        return plan
    return with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=(1.0,))


def of_means(plan: FixedPlan, task: Task) -> FixedPlan:
    """The plan of a minimiser; it says so where a person's records count as their mean."""
    if task.persons is None:
        return plan
    return replace(plan, query=f"{plan.query}, the mean over each person's records as one")


def with_ruled_regulariser(
    setup: Setup, *, plan: Callable[[Setup], FixedPlan], draws: float = 1.0
) -> Setup:
    """The task with the rule's λ for noisy minimisers, from public facts.

    ``plan`` gives the plan of a set-up, whatever its λ: noise on a model is proportional to 1/λ.
    ``draws`` is the factor by which the model's noise variance exceeds the plan's.
    """
    tried = replace(setup.task, regulariser=HEAVY_L2)
    noise = plan(replace(setup, task=tried)).mechanisms[0].noise_stddev * sqrt(draws)
    ruled = output_regulariser(tried.lipschitz / (HEAVY_L2 * noise), tried)
    return replace(setup, task=replace(tried, regulariser=ruled))


def regularised(
    setup: Setup,
    choice: Literal["model", "auto", "optimal"],
    *,
    rule: Callable[[Setup], Setup],
    optimal: Callable[[Setup], Setup] | None = None,
) -> Setup:
    """The set-up with the λ that the options ask for.

    A twin without noise has the λ of its private run; without such a run, that of the model.
    """
    private = setup.private
    if choice == "model" or private.noise_free:
        return setup
    choose = optimal if choice == "optimal" and optimal else rule
    return replace(setup, task=choose(private).task)


def with_optimal_regulariser(setup: Setup, *, radius: float) -> Setup:
    """The task with the λ that balances bias and noise, from public facts."""
    task, budget = setup.task, setup.budget
    regulariser = optimal_regulariser(
        lipschitz=task.lipschitz,
        dimension=task.dimension,
        epsilon=budget.epsilon,
        delta=budget.delta,
        records=task.records,
        radius=radius,
    )
    return replace(setup, task=replace(task, regulariser=regulariser))


def _joint_sensitivity(setup: Setup, *, tolerance: float) -> float:
    """The sensitivity of a joint fit: that of one party with all records."""
    task = setup.task
    return minimiser_sensitivity(
        task.loss,
        feature_bound=task.feature_bound,
        records=float(task.records),
        strong_convexity=task.regulariser,
        tolerance=tolerance,
        headroom=headroom(setup.adjacency, task),
        changes=changes(task, setup.adjacency),
    )
