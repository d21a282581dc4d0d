"""Experiments on the `sharded` engine with workers of this process, or of Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run.prepare import build_federation, check, prepare, serving, train

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from fedpriv.federation.federation import Federation, Sum

TRAINING = {"allow_swamped": True, "local_learning_rate": 0.1}
ADD_REMOVE = {
    "adjacency": "add-remove",
    "epsilon": "inf",
}  # noise for samples takes seconds to plan
PARTY = {"unit": "party"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full batch": ({"name": "gradient-perturbation", "rounds": 3}, {}),
    "Poisson": ({"name": "gradient-perturbation", "rounds": 3, "sampling_rate": 0.3}, ADD_REMOVE),
    "output": ({"name": "output-perturbation"}, {}),
    "averaging": (
        {"name": "federated-averaging", "rounds": 3, "party_rate": 0.6, **TRAINING},
        {**ADD_REMOVE, **PARTY},
    ),
    "second order": ({"name": "second-order"}, {}),
    "adaptive clipping": ({"name": "adaptive-clipping", "rounds": 3}, {}),
    "scaffold": ({"name": "scaffold", "rounds": 4, **TRAINING}, PARTY),
    "shares of noise": ({"name": "gradient-perturbation", "rounds": 3}, {"noise_at": "parties"}),
    "objective, alone": ({"name": "local-objective-perturbation"}, {}),
}
"""Strategies and their privacy sections: one of every kind of query and of every kind of draw."""


def study(
    case: str,
    *,
    engine: str,
    model: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    **run: Any,
) -> dict[str, Any]:
    """The tables of an experiment."""
    strategy, privacy = CASES[case]
    return {
        "data": dict(data or {"name": "synthetic", "partition": "sized", "parties": 9}),
        "model": dict(model or {"l2": 0.05}),
        "strategy": dict(strategy),
        "privacy": {"epsilon": 20.0, "delta": 1e-5, **privacy},
        "run": {"engine": engine, **run},
    }


def trained(
    tables: Mapping[str, Any], watch: Callable[[Federation, Sum], None] = lambda _f, _s: None
) -> np.ndarray[Any, Any]:
    """The model of a whole run; ``watch`` is shown every sum."""
    prepared = prepare(parse_experiment(tables), keep=True)
    strategy = check(prepared)
    assert strategy is not None

    def see(_query: object, answer: Sum) -> bool:
        watch(federation, answer)
        return True

    with serving(build_federation(prepared, run=prepared.run, rounds=strategy.rounds)) as sums:
        federation = sums
        assert train(strategy, sums, see)
    return strategy.theta
