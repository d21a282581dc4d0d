"""Server strategies, one a file: each reads like the algorithm that it implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv._validate import require_choice
from fedpriv.federation.strategy import Run
from fedpriv.privacy.adjacency import Adjacency
from strategies import (
    gradient_perturbation,
    local_gradient_perturbation,
    local_objective_perturbation,
    local_output_perturbation,
    non_private,
    objective_perturbation,
    output_perturbation,
    pathak,
    pooled,
)
from strategies.building import Setup, StrategyInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedpriv.federation.strategy import SumStrategy
    from fedpriv.federation.task import Task
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.randomness import RandomStream

__all__ = ["STRATEGIES", "StrategyInfo", "build"]

_MODULES = (
    output_perturbation,
    gradient_perturbation,
    objective_perturbation,
    local_output_perturbation,
    local_gradient_perturbation,
    local_objective_perturbation,
    pathak,
    non_private,
    pooled,
)
_BUILDERS: dict[str, Callable[[Setup, Any], SumStrategy]] = {
    module.INFO.name: module.build for module in _MODULES
}

STRATEGIES: dict[str, StrategyInfo] = {module.INFO.name: module.INFO for module in _MODULES}


def build(
    name: str,
    *,
    task: Task,
    budget: Budget | None,
    adjacency: Adjacency | str,
    options: Mapping[str, Any],
    noise: Callable[[int], RandomStream],
    run: str,
    ledger: Ledger | None = None,
) -> SumStrategy:
    """The strategy ``name``, planned within its budget and ready to ask.

    Args:
        name: One of `STRATEGIES`.
        task: The public facts of the problem.
        budget: (ε, δ) of the run; needed by private strategies, refused by the others.
        adjacency: Which data sets the guarantee compares.
        options: Of the strategy; unknown ones are refused.
        noise: The stream of each round: seeded in a simulation, from the system in a release.
        run: The name of the run.
        ledger: Where a release is reserved and committed; None in a simulation.

    Raises:
        BudgetExceeded: The strategy's plan does not fit its budget. Nothing was asked.
    """
    require_choice(STRATEGIES, strategy=name)
    info = STRATEGIES[name]
    if info.private != (budget is not None):
        rule = "must be given" if info.private else "must be None"
        raise ValueError(f"budget {rule} for {name}, got {budget!r}.")
    if info.convex_only:
        task.require_convex(name)
    setup = Setup(
        task=task,
        adjacency=Adjacency(adjacency),
        run=Run(name=run, noise=noise, ledger=ledger),
        allowance=budget,
    )
    return _BUILDERS[name](setup, info.options.model_validate(dict(options)))
