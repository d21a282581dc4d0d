"""Server strategies, one per file: each reads like the algorithm that it implements.

Imported as `fedpriv.strategies`. To add one, write a file with an INFO and a `build`, and name it
in _MODULES below; `common` has what several of them share. Strategies see only sums: they may not
import modules that can hold a single party's answer. Start with `output_perturbation`. A strategy
of your own, in a file outside fedpriv, derives from `NoisyGradients`: docs/own-strategy.md. Two
modules are not in the catalogue: `accuracy` evaluates a deployed model privately, `description`
describes a table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fedpriv._collusion import DEFAULT_COLLUDING
from fedpriv._validate import require_choice
from fedpriv.federation.strategy.base import Run, SumStrategy
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.planning.plan import NOISE_PLACES
from fedpriv.privacy.planning.shares import Sharing
from fedpriv.privacy.unit import DEFAULT_UNIT, Unit
from fedpriv.strategies import (
    adaptive_clipping,
    adaptive_gradient,
    description,
    federated_averaging,
    gradient_perturbation,
    inference,
    learned_protection,
    local_gradient_perturbation,
    local_objective_perturbation,
    local_output_perturbation,
    non_private,
    objective_perturbation,
    output_perturbation,
    pathak,
    pooled,
    scaffold,
    second_order,
)
from fedpriv.strategies.common.building import Count, Positive, Rate, Setup, StrategyInfo
from fedpriv.strategies.common.noisy_gradients import NoisyGradients, NoisyOptions
from fedpriv.strategies.common.plans.plans import plan_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedpriv.federation.task import Task
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.mechanisms.shares import ShareLaw
    from fedpriv.privacy.planning.plan import NoisePlace
    from fedpriv.privacy.randomness import RandomStream

__all__ = [
    "ALGORITHMS",
    "STRATEGIES",
    "Count",
    "NoisyGradients",
    "NoisyOptions",
    "Positive",
    "Rate",
    "Setup",
    "StrategyInfo",
    "build",
    "plan_gradients",
]

_MODULES = (
    output_perturbation,
    gradient_perturbation,
    objective_perturbation,
    inference,
    second_order,
    adaptive_clipping,
    adaptive_gradient,
    learned_protection,
    federated_averaging,
    scaffold,
    local_output_perturbation,
    local_gradient_perturbation,
    local_objective_perturbation,
    pathak,
    non_private,
    pooled,
)
_BUILDERS: dict[str, Callable[[Setup, Any], SumStrategy]] = {
    module.INFO.name: module.build for module in (*_MODULES, description)
}

STRATEGIES: dict[str, StrategyInfo] = {module.INFO.name: module.INFO for module in _MODULES}

ALGORITHMS: dict[str, str] = {module.INFO.name: module.__doc__ or "" for module in _MODULES}
"""Each strategy as its file explains it: the algorithm, its source and its assumptions."""


def build(
    name: str | StrategyInfo,
    *,
    task: Task,
    budget: Budget | None,
    adjacency: Adjacency | str,
    options: Mapping[str, Any],
    noise: Callable[[int], RandomStream],
    run: str,
    ledger: Ledger | None = None,
    release: bool = False,
    noise_free: bool = False,
    twin_of: Budget | None = None,
    noise_at: NoisePlace = "server",
    dropout: float = 0.0,
    colluding: float = DEFAULT_COLLUDING,
    share_law: ShareLaw | Literal["auto"] = "auto",
    unit: Unit | str = DEFAULT_UNIT,
) -> SumStrategy:
    """Build the strategy ``name``: planned within its budget and ready to run.

    Args:
        name: One of `STRATEGIES`, or a strategy of the user's own.
        task: The public facts of the problem.
        budget: (ε, δ) of the run; needed by private strategies, refused by the others.
        adjacency: Which data sets the guarantee compares.
        options: The strategy's options; unknown ones are refused.
        noise: The random stream of each round: seeded in a simulation, from the operating system
            in a release.
        run: The name of the run.
        ledger: Where a release is reserved and committed; None in a simulation.
        release: Whether this is a release whose ledger is attached later.
        noise_free: Whether a private strategy adds no noise, for study: without a budget, and
            never in a release.
        twin_of: Without noise: the budget from which the run takes the settings that depend on
            one; None for the settings that suit no noise at all.
        noise_at: Who adds the noise; "parties": in shares, so that nobody sees an exact sum.
        dropout: With noise at the parties, the largest fraction of them missing from a sum.
        colluding: With noise at the parties, the largest fraction that reveal their shares.
        share_law: Distribution of the shares; "auto" is Skellam if δ > 0, else Pólya.
        unit: Whose privacy the guarantee protects: "record", "person" or "party".

    Raises:
        BudgetExceeded: The strategy's plan does not fit its budget. Nothing was released.
    """
    if isinstance(name, str):
        require_choice(STRATEGIES, strategy=name)
    info = STRATEGIES[name] if isinstance(name, str) else name
    name = info.name
    if noise_free and (release or ledger is not None):
        raise ValueError(
            f"a release of {name} must have noise, got epsilon = 'inf': without it the model may "
            "reveal any record. Simulate it, or give privacy.epsilon a number."
        )
    promised = info.private and not noise_free
    if promised != (budget is not None):
        rule = "must be given" if promised else "must be None"
        raise ValueError(f"budget {rule} for {name}, got {budget!r}.")
    if twin_of is not None and not (noise_free and info.private):
        raise ValueError(f"twin_of is for a run of {name} without its noise, got {twin_of!r}.")
    if info.convex_only:
        task.require_convex(name)
    require_choice(NOISE_PLACES, noise_at=noise_at)
    if noise_at == "parties" and not info.shares:
        known = " and ".join(title for title, each in STRATEGIES.items() if each.shares)
        raise ValueError(
            f"noise_at must be 'server' for {name}, got 'parties': only {known} calibrate their "
            "noise to a sum of the parties' answers, so that the parties can add it in shares."
        )
    whose = Unit(unit)
    planned = promised or twin_of is not None  # any other twin without noise protects nobody
    if planned and whose not in info.units:
        raise ValueError(_unsupported_unit(info, whose))
    if planned and (whose is Unit.PERSON) != (task.persons is not None):
        raise ValueError(
            f"task.persons must be given for unit = 'person', and only then, got {task.persons} "
            f"for {whose.value!r}."
        )
    private = Setup(
        task=task,
        unit=whose,
        adjacency=Adjacency(adjacency),
        run=Run(name=run, noise=noise, ledger=ledger, release=release),
        allowance=twin_of or budget,
        sharing=(
            Sharing(parties=task.parties, dropout=dropout, colluding=colluding, law=share_law)
            if noise_at == "parties" and info.private
            else None
        ),
        signature=name if info.guest else "",
    )
    setup = private
    if info.private and noise_free:
        sibling = None if twin_of is None else private
        setup = replace(private, allowance=None, noise_free=True, sharing=None, sibling=sibling)
    chosen = info.options.model_validate(dict(options))
    built = (
        _BUILDERS[name](setup, chosen)
        if info.guest is None
        else _require_planned(info.guest(setup, chosen), info, promised=promised)
    )
    if built.plan is not None and built.plan.unit is not whose:
        raise ValueError(
            f"{name}: its plan is for unit {built.plan.unit.value!r} and must be for "
            f"{whose.value!r}; pass on the setup."
        )
    return built


def _unsupported_unit(info: StrategyInfo, unit: Unit) -> str:
    """Why a strategy does not support a unit of privacy, and which strategies do."""
    if info.guest is not None and unit is Unit.PERSON:
        return (
            f"unit must be declared by a strategy of your own, got {unit.value!r}, and INFO of "
            f"{info.name} declares {', '.join(each.value for each in info.units)}. Clipping and "
            "noise of NoisyGradients also protect persons: if nothing in the strategy depends on "
            'single records, add units=("record", "person") to INFO.'
        )
    has = " or ".join(repr(each.value) for each in info.units)
    able = [name for name, each in STRATEGIES.items() if each.private and unit in each.units]
    instead = f"Use {', '.join(able)}" if able else "No strategy protects it yet"
    return (
        f"unit must be {has} for {info.name}, got {unit.value!r}: {info.why_not(unit)}. {instead}."
    )


def _require_planned(strategy: object, info: StrategyInfo, *, promised: bool) -> SumStrategy:
    """Refuse a user's strategy unless the base class adds its noise, by a plan in its name."""
    if not isinstance(strategy, SumStrategy):
        raise ValueError(f"{info.name}: build must return a strategy, got {strategy!r}.")
    if not info.private:
        if strategy.plan is not None:
            raise ValueError(f"{info.name}: a strategy with noise_by = 'nobody' has no plan.")
        return strategy
    if not isinstance(strategy, NoisyGradients) or (strategy.plan is None) is promised:
        raise ValueError(
            f"{info.name}: a strategy with noise must derive from NoisyGradients, which adds the "
            f"noise of its plan, got {type(strategy).__name__}."
        )
    if strategy.plan is not None and strategy.plan.strategy != info.name:
        raise ValueError(f"{info.name}: its plan must be in its own name; pass on the setup.")
    return strategy
