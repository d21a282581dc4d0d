"""Small experiments to audit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.file import Experiment, read_experiment

if TYPE_CHECKING:
    from collections.abc import Mapping

STRESS = bool(os.environ.get("FEDPRIV_STRESS"))

BASE: dict[str, dict[str, Any]] = {
    "data": {"name": "synthetic", "partition": "iid", "parties": 4},
    "model": {"name": "logistic"},
    "strategy": {"name": "gradient-perturbation", "rounds": 2, "clip": 0.1},
    "privacy": {"epsilon": 8.0, "delta": 1e-5, "adjacency": "replace-one"},
}
ADD_REMOVE: dict[str, dict[str, Any]] = {
    "privacy": {"adjacency": "add-remove"},
    "data": {"records": 4000},
}
OUTPUT: dict[str, dict[str, Any]] = {
    "strategy": {"name": "output-perturbation"},
    "model": {"l2": 0.001},
}
OBJECTIVE: dict[str, dict[str, Any]] = {
    "strategy": {"name": "objective-perturbation"},
    "model": {"l2": 0.01},
}


def study(*changes: Mapping[str, Any]) -> Experiment:
    """The base with some keys replaced; another strategy has none of its options."""
    tables = {name: dict(keys) for name, keys in BASE.items()}
    for change in changes:
        for name, keys in change.items():
            if name == "strategy" and "name" in keys:
                tables[name] = {}
            tables.setdefault(name, {}).update(keys)
    return read_experiment(tables)
