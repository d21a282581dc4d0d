"""Plans of the strategies: the planners of `fedpriv.privacy`, given the task's own numbers."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import TYPE_CHECKING, Literal

from fedpriv._validate import require_choice
from fedpriv.federation.queries.bounds import (
    finest_grid,
    gradient_sensitivity,
)
from fedpriv.learning.clipping.norms import require_clip
from fedpriv.privacy.accountants import account
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.planning.gradient import gradient_plan, laplace_gradient_plan
from fedpriv.privacy.planning.noise_free import NoiseFree
from fedpriv.privacy.unit import Unit, sizes_are_public
from fedpriv.secagg import FixedPoint
from fedpriv.strategies.common.plans.sharing import with_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.federation.task import Weights
    from fedpriv.privacy.planning.fixed_plan import FixedPlan
    from fedpriv.strategies.common.building import Setup

Calibration = Literal["exact", "textbook", "unsound-textbook"]
CALIBRATIONS: tuple[Calibration, ...] = ("exact", "textbook", "unsound-textbook")

# Why some sums need replace-one adjacency, under which the numbers of records are public.
UNCERTIFIED = (
    "with a declared number of records n_j a minimiser would move by G/(n_jλ), but whether it is "
    "certified to its tolerance is proved for at most n_j of them, and the true number is private"
)
_UNEQUAL = "they weight parties by their true numbers of records, which are private"


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
    clip_in: Literal["l2", "l1"] = "l2",
) -> FixedPlan | NoiseFree:
    """T noisy sums of clipped gradients; in a noise-free set-up, T exact sums.

    Sensitivity. One record moves the sum by at most 2C (replace-one) or C (add-remove), plus what
    float32 rounding can add, plus √d·step for the grid; one person by p times that (see
    `gradient_sensitivity`).

    Calibration. "exact": the least noise that the tightest accountant proves. "textbook": the
    relative noise √(2T·ln(1/δ))/ε, which is σ² = 8G²T·ln(1/δ)/(m²n₍₁₎²ε²) on the mean (Jayaraman
    et al. 2018, Thm. 3), accounted for like any other; it adds more noise than needed.
    "unsound-textbook": the noise printed with that paper's experiments, which lacks a factor
    √(4·ln(1/δ)). For study: the plan states the ε that it really costs.

    Law. The Laplace laws are for δ = 0, where the ε of the rounds add up: `laplace_gradient_plan`.
    Clipping in L1 is for "l1-laplace".
    """
    require_choice(CALIBRATIONS, calibration=calibration)
    refuse_study(calibration, setup)
    if weights == "equal":
        require_replace_one(setup, "equal weights", because=_UNEQUAL)
    if setup.noise_free:
        return noise_free_gradients(setup, rates=(sampling_rate,) * rounds, clip_norm=clip_norm)
    task, budget = setup.task, setup.budget
    step, moved = gradient_grid(setup, clip_norm=clip_norm, wide=clip_in == "l1")
    if setup.sharing is not None:
        require_shareable(setup, calibration, sampling_rate, accountant)
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
            clip_in=clip_in,
            sampling_rate=sampling_rate,
            unit=setup.unit,
        )
    if clip_in == "l1":
        raise ValueError(
            "clip_in must be 'l2' with Gaussian noise, got 'l1': clipping in L1 leaves shorter "
            "gradients under the same noise. Use law = 'l1-laplace' and delta = 0."
        )
    relative = None
    if calibration != "exact":
        if sampling_rate != 1 or shape is not None or budget.delta == 0:
            raise ValueError(
                f"calibration must be 'exact' with sampling, a schedule or delta = 0, got "
                f"{calibration!r}: the textbook rule is for full batches, equal noise, delta > 0."
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


def gradient_grid(setup: Setup, *, clip_norm: float, wide: bool = False) -> tuple[float, float]:
    """The grid step of a sum of clipped gradients, and how far one unit moves the sum before it.

    The grid adds √d·step to that; in L1, for gradients clipped in L1 (``wide``), d·step.

    Raises:
        ValueError: Clipping to C cannot be computed precisely enough. Nothing was paid.
    """
    require_clip(clip_norm)
    task, adjacency = setup.task, setup.adjacency
    step = FixedPoint.for_sum(
        bound=task.records * clip_norm,
        sensitivity=adjacency.sum_sensitivity * clip_norm,
        dimension=task.dimension**2 if wide else task.dimension,
        noise_stddev=0.0,
        parties=task.parties,
    ).step
    moved = gradient_sensitivity(
        task, clip_norm=clip_norm, adjacency=adjacency, step=step, wide=wide
    )
    return step, moved


def require_sampleable(setup: Setup, sampling_rate: float, *, coins: str) -> None:
    """Refuse sampling where its amplification is not proved.

    Args:
        setup: What a strategy is built from.
        sampling_rate: Poisson rate of the records of a sum.
        coins: What is released of a sum that does not add up over parties.
    """
    if sampling_rate == 1:
        return
    persons = setup.task.persons
    if persons is not None and persons.parties > 1:
        raise ValueError(
            f"sampling_rate must be 1 for persons at several parties, got {sampling_rate:g}: each "
            f"party draws its own sample, and {coins} is not a sum of one release per party."
        )
    if setup.adjacency is not Adjacency.ADD_REMOVE:
        raise ValueError(
            f"adjacency must be 'add-remove' with sampling_rate = {sampling_rate:g}, got "
            f"{setup.adjacency.value!r}: on a Poisson sample, replacing a record is two steps."
        )


def require_replace_one(setup: Setup, what: str, *, because: str) -> None:
    """Refuse neighbours of different sizes where an answer depends on its number of records."""
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


def require_shareable(
    setup: Setup,
    calibration: Calibration = "exact",
    sampling_rate: float = 1.0,
    accountant: str = "auto",
) -> None:
    """Refuse what shares of noise on gradients do not support, with the reason."""
    reasons = {
        "delta must be positive: pure shares are for a single release": setup.budget.delta == 0,
        "share_law must not be 'polya': pure shares are for a single release": (
            setup.sharing is not None and setup.sharing.law == "polya"
        ),
        "calibration must be 'exact': the textbook rules are for Gaussian noise": (
            calibration != "exact"
        ),
        "share_law must be 'auto' or 'skellam' with sampling: its amplification is proved": (
            sampling_rate != 1
            and setup.sharing is not None
            and setup.sharing.law not in ("auto", "skellam")
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
    """Refuse what Laplace noise on gradients does not support, with the reason."""
    reasons = {
        "noise_at must be 'server': shares have their own distribution": setup.sharing is not None,
        "calibration must be 'exact': the textbook rules are for Gaussian noise": (
            calibration != "exact"
        ),
        "schedule must be 'uniform': schedules divide a budget for Gaussian noise": (
            shape is not None
        ),
        "accountant must be 'auto' or 'basic': at delta = 0 the epsilon of the rounds add up": (
            accountant not in ("auto", "basic")
        ),
        "unit must be 'record': amplification by a person's own samples at several parties is "
        "known here for Gaussian noise": setup.unit is not Unit.RECORD,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"with law = {law}, {reason}.")


def refuse_study(choice: str, setup: Setup) -> None:
    """Refuse a known unsound form, except in a simulation."""
    if choice.startswith("unsound") and setup.released:
        raise ValueError(
            f"{choice!r} is for study in a simulation: it costs more than it claims. "
            "Choose a sound form for a release."
        )
