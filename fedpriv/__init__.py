"""fedpriv: private multi-party learning on Flower.

    import fedpriv

    result = fedpriv.run("quickstart", privacy={"epsilon": 0.5})   # a simulation; nothing is spent
    result.metrics, result.epsilon                                  # how good, at what price
    fedpriv.fit("study.toml").coefficients                          # intervals you may publish
    result.model.predict(table)                                     # labels for a raw table
    fedpriv.compare("chem97").plot()                                # strategies at equal privacy
    fedpriv.describe("mine.toml")                                   # a table, privately
    fedpriv.calibrate(epsilon=1, delta=1e-6, rounds=100, adjacency="replace-one")

Names are imported on first use: ``import fedpriv`` itself loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedpriv.federation.engines.vectorized import VectorizedFederation
    from fedpriv.federation.federation import Sum
    from fedpriv.federation.queries.kinds import Query
    from fedpriv.federation.strategy.base import SumStrategy
    from fedpriv.federation.task import Task
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.ledger import Ledger
    from fedpriv.privacy.planning.calibration import calibrate
    from fedpriv.privacy.planning.plan import Plan
    from fedpriv.simulations.api.accounting import account, account_all
    from fedpriv.simulations.api.describing import Statistics, describe
    from fedpriv.simulations.api.fitted_model import FittedModel, load_model
    from fedpriv.simulations.api.result import Result
    from fedpriv.simulations.api.running import compare, fit, run
    from fedpriv.simulations.compare.comparison import Comparison

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "Comparison",
    "FittedModel",
    "Ledger",
    "Plan",
    "Query",
    "Result",
    "Statistics",
    "Sum",
    "SumStrategy",
    "Task",
    "VectorizedFederation",
    "__version__",
    "account",
    "account_all",
    "calibrate",
    "compare",
    "describe",
    "fit",
    "load_model",
    "run",
]

# Where each name lives: the same as above, for run time.
_HOMES = {
    "Budget": "privacy.budget",
    "Comparison": "simulations.compare.comparison",
    "FittedModel": "simulations.api.fitted_model",
    "Ledger": "privacy.ledger",
    "Plan": "privacy.planning.plan",
    "Query": "federation.queries.kinds",
    "Result": "simulations.api.result",
    "Statistics": "simulations.api.describing",
    "Sum": "federation.federation",
    "SumStrategy": "federation.strategy.base",
    "Task": "federation.task",
    "VectorizedFederation": "federation.engines.vectorized",
    "account": "simulations.api.accounting",
    "account_all": "simulations.api.accounting",
    "calibrate": "privacy.planning.calibration",
    "compare": "simulations.api.running",
    "fit": "simulations.api.running",
    "describe": "simulations.api.describing",
    "load_model": "simulations.api.fitted_model",
    "run": "simulations.api.running",
}

if not TYPE_CHECKING:  # a type checker needs only the names above

    def __getattr__(name: str) -> object:
        """A public name, imported on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"fedpriv.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
