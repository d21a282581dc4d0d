"""Plans of the strategies here: the planners of `fedpriv.privacy`, with the task's own numbers."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import TYPE_CHECKING, Literal

from fedpriv._validate import require_choice
from fedpriv.federation.queries.bounds import (
    finest_grid,
    gradient_sensitivity,
    headroom,
    model_sensitivity,
)
from fedpriv.learning.erm.problem import minimiser_sensitivity
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.planning.calibration import optimal_regulariser
from fedpriv.privacy.planning.gradient import gradient_plan, laplace_gradient_plan
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.planning.output import output_plan
from fedpriv.privacy.unit import Unit, sizes_are_public
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.sharing import with_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.federation.task import Task, Weights
    from fedpriv.privacy.mechanisms.laws import Law
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.strategies.common.building import Setup

Calibration = Literal["exact", "textbook", "unsound-textbook"]
CALIBRATIONS: tuple[Calibration, ...] = ("exact", "textbook", "unsound-textbook")

# Why some sums are for replace-one adjacency, under which the numbers of records are public.
UNCERTIFIED = (
    "with a declared number of records n_j a minimiser would move by G/(n_jλ), but whether it is "
    "certified to its tolerance is proved for at most n_j of them, and the true number is private"
)
_UNEQUAL = "they make parties count alike by their true numbers of records, which are private"


def plan_gradients(
    setup: Setup,
    *,
    rounds: int,
    clip_norm: float,
    weights: Weights = "proportional",
    sampling_rate: float = 1.0,
    shape: Sequence[float] | None = None,
    calibration: Calibration = "exact",
    accountant: str = "auto",
    law: Literal["gaussian", "l2-laplace", "l1-laplace"] = "gaussian",
) -> FixedPlan | NoiseFree:
    """T noisy sums of clipped gradients; in a noise-free set-up, T sums as they are.

    Sensitivity. One record moves the sum by at most 2C (replace-one) or C (add-remove), plus what
    float32 rounding can add, plus √d·step for the grid; one person by p times that, as
    `gradient_sensitivity` has it.

    Calibration. "exact": the least noise that the tightest accountant proves. "textbook": the
    relative noise √(2T·ln(1/δ))/ε, which is σ² = 8G²T·ln(1/δ)/(m²n₍₁₎²ε²) on the mean (Jayaraman
    et al. 2018, Thm. 3), accounted for like any other: it wastes noise. "unsound-textbook": the
    noise printed with that paper's experiments, which lacks a factor √(4·ln(1/δ)). For study: the
    plan states the ε that it really costs.

    Law. The Laplace laws are for δ = 0, where the ε of the rounds add up: `laplace_gradient_plan`.
    """
    require_choice(CALIBRATIONS, calibration=calibration)
    _refuse_study(calibration, setup)
    if weights == "equal":
        require_replace_one(setup, "equal weights", because=_UNEQUAL)
    if setup.noise_free:
        return noise_free_gradients(setup, rates=(sampling_rate,) * rounds, clip_norm=clip_norm)
    task, budget = setup.task, setup.budget
    step, moved = gradient_grid(setup, clip_norm=clip_norm)
    if setup.sharing is not None:
        _require_shareable(setup, calibration, sampling_rate, accountant)
    if law != "gaussian":
        _require_pure(law, setup, calibration, shape, accountant)
        return laplace_gradient_plan(
            budget=budget,
            rounds=rounds,
            sensitivity=moved,
            clip_norm=clip_norm,
            sizes=task.sizes,
            dimension=task.dimension,
            step=step,
            adjacency=setup.adjacency,
            law=law,
            sampling_rate=sampling_rate,
            unit=setup.unit,
        )
    relative = None
    if calibration != "exact":
        if sampling_rate != 1 or shape is not None or budget.delta == 0:
            raise ValueError(
                f"calibration must be 'exact' with sampling, a schedule or delta = 0, got "
                f"{calibration!r}: the textbook rule knows full batches, equal noise and delta > 0."
            )
        relative = sqrt(2 * rounds * log(1 / budget.delta)) / budget.epsilon
    if relative is not None and calibration == "unsound-textbook":
        relative /= sqrt(4 * log(1 / budget.delta))
        event = GaussianEvent(relative_noise=relative, adjacency=setup.adjacency, unit=setup.unit)
        spent = account([(event, rounds)], delta=budget.delta).epsilon
        budget = replace(budget, epsilon=spent or budget.epsilon)
    plan = gradient_plan(
        budget=budget,
        rounds=rounds,
        sensitivity=moved,
        clip_norm=clip_norm,
        sizes=task.sizes,
        dimension=task.dimension,
        step=step,
        adjacency=setup.adjacency,
        sampling_rate=sampling_rate,
        shape=shape,
        relative_noise=relative,
        accountant="auto" if setup.sharing else accountant,
        unit=setup.unit,
        parts=1 if task.persons is None else task.persons.parties,
    )
    if task.persons is not None:
        plan = replace(plan, query=f"{plan.query}, each person's summed before it is clipped")
    if setup.sharing is None:
        return plan
    return with_shares(
        plan,
        setup.sharing,
        task,
        moved=moved,
        bound=task.records * clip_norm,
        shape=(1.0,) * rounds if shape is None else shape,
    )


def noise_free_gradients(
    setup: Setup, *, rates: tuple[float, ...], clip_norm: float, widest: float | None = None
) -> NoiseFree:
    """Sums of clipped gradients without noise, on the finest grid; ``widest`` is the largest C."""
    bound = setup.task.records * (widest or clip_norm)
    return NoiseFree(step=finest_grid(bound=bound).step, rates=rates, clip_norm=clip_norm)


def gradient_grid(setup: Setup, *, clip_norm: float) -> tuple[float, float]:
    """The grid step of a sum of clipped gradients, and how far one unit moves the sum before it.

    On the grid it moves by √d·step more.
    """
    task, adjacency = setup.task, setup.adjacency
    step = FixedPoint.for_sum(
        bound=task.records * clip_norm,
        sensitivity=adjacency.sum_sensitivity * clip_norm,
        dimension=task.dimension,
        noise_stddev=0.0,
        parties=task.parties,
    ).step
    moved = gradient_sensitivity(task, clip_norm=clip_norm, adjacency=adjacency, step=step)
    return step, moved


def plan_output(
    setup: Setup,
    *,
    law: Law | Literal["auto"],
    weights: Weights,
    tolerance: float,
    joint: bool = False,
) -> FixedPlan:
    """One noisy average of the parties' minimisers, or the ``joint`` minimiser with noise.

    A joint fit is the case of one party that holds all records, N of them as the task declares: it
    moves by 2G/(Nλ), or under add-remove adjacency by G/(Nλ). The law "unsound-laplace" is for
    study: its plan states the √d·ε that it really costs.
    """
    _refuse_study(law, setup)
    task, budget = setup.task, setup.budget
    task.require_stable_minimiser("output perturbation")
    if not joint:
        require_replace_one(setup, "an average of minimisers", because=UNCERTIFIED)
    if setup.sharing is not None and (law != "auto" or joint):
        raise ValueError(
            "law must be 'auto' and fit 'average' with noise at the parties: the shares have a law "
            "of their own (share_law), and a joint fit shows the server exact sums."
        )
    if law == "auto":
        law = "gaussian" if budget.delta > 0 else "l2-laplace"
    moved, exact = (
        _joint_sensitivity(setup, tolerance=allowed)
        if joint
        else _average_sensitivity(task, weights, tolerance=allowed)
        for allowed in (tolerance, 0.0)
    )
    # No average of minimisers is longer than G/λ; a joint one may have more records than N.
    most = headroom(setup.adjacency, task) if joint else 1.0
    bound = most * task.lipschitz / task.regulariser
    plan = output_plan(
        budget=budget,
        sensitivity=moved,
        sizes=task.sizes,
        dimension=task.dimension,
        step=FixedPoint.for_sum(
            bound=bound,
            sensitivity=exact,
            dimension=task.dimension,
            noise_stddev=0.0,
            parties=task.parties,
        ).step,
        law=law,
        joint=joint,
        adjacency=setup.adjacency,
        unit=setup.unit,
    )
    if setup.sharing is None:
        return plan
    return with_shares(plan, setup.sharing, task, moved=moved, bound=bound, shape=(1.0,))


def require_replace_one(setup: Setup, what: str, *, because: str) -> None:
    """Refuse neighbours of other sizes where an answer rests on how many records its party has."""
    if setup.adjacency is not Adjacency.REPLACE_ONE:
        raise ValueError(
            f"adjacency must be 'replace-one' for {what}, got {setup.adjacency.value!r}: "
            f"{because}. Use gradient-perturbation with proportional weights."
        )
    if not sizes_are_public(setup.unit, setup.adjacency):
        raise ValueError(
            f"unit must be 'record' for {what}, got {setup.unit.value!r}: {because}. Use "
            "gradient-perturbation with proportional weights."
        )


def with_optimal_regulariser(setup: Setup, *, radius: float) -> Setup:
    """The task with the λ that balances bias and noise; it follows from public facts."""
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


def _average_sensitivity(task: Task, weights: Weights, *, tolerance: float) -> float:
    return model_sensitivity(
        task,
        regulariser=task.regulariser,
        tolerance=tolerance,
        weights=weights,
        sizes=task.sizes,
    )


def _joint_sensitivity(setup: Setup, *, tolerance: float) -> float:
    """A joint fit is that of one party which holds all records."""
    task = setup.task
    return minimiser_sensitivity(
        task.loss,
        feature_bound=task.feature_bound,
        records=float(task.records),
        strong_convexity=task.regulariser,
        tolerance=tolerance,
        headroom=headroom(setup.adjacency, task),
        replaced=setup.adjacency is Adjacency.REPLACE_ONE,
    )


def _require_shareable(
    setup: Setup, calibration: Calibration, sampling_rate: float, accountant: str
) -> None:
    """Refuse what shares of noise on gradients cannot do, each with its reason."""
    reasons = {
        "delta must be positive: pure shares are for a single release": setup.budget.delta == 0,
        "share_law must not be 'polya': pure shares are for a single release": (
            setup.sharing is not None and setup.sharing.law == "polya"
        ),
        "calibration must be 'exact': the textbook rules are for Gaussian noise": (
            calibration != "exact"
        ),
        "sampling_rate must be 1: how sampling amplifies integer noise is not known here": (
            sampling_rate != 1
        ),
        "accountant must be 'auto' or 'rdp': no other prices integer noise": (
            accountant not in ("auto", "rdp")
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"with noise at the parties, {reason}.")


def _require_pure(
    law: str,
    setup: Setup,
    calibration: Calibration,
    shape: Sequence[float] | None,
    accountant: str,
) -> None:
    """Refuse what Laplace noise on gradients cannot be combined with, each with its reason."""
    reasons = {
        "noise_at must be 'server': shares have a law of their own": setup.sharing is not None,
        "calibration must be 'exact': the textbook rules are for Gaussian noise": (
            calibration != "exact"
        ),
        "schedule must be 'uniform': schedules spread a budget that squared noise divides": (
            shape is not None
        ),
        "accountant must be 'auto' or 'basic': at delta = 0 the epsilon of the rounds add up": (
            accountant not in ("auto", "basic")
        ),
        "unit must be 'record': what a person's own samples at several parties amplify is known "
        "here for Gaussian noise": setup.unit is not Unit.RECORD,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"with law = {law}, {reason}.")


def _refuse_study(choice: str, setup: Setup) -> None:
    """Refuse a form that is known to be unsound, unless nothing is really released."""
    if choice.startswith("unsound") and setup.released:
        raise ValueError(
            f"{choice!r} is for study in a simulation: it costs more than it claims. "
            "Choose a sound form to release."
        )
