"""A small experiment for every engine, and what it trains."""

from __future__ import annotations

from typing import Any

from fedpriv.simulations.experiment.file import parse_experiment

GRADIENT: dict[str, Any] = {"name": "gradient-perturbation", "rounds": 5}


def experiment(
    strategy: dict[str, Any],
    *,
    parties: int = 8,
    adjacency: str = "replace-one",
    noise_at: str = "server",
    **run: Any,
) -> Any:
    return parse_experiment(
        {
            "name": "engines",
            "data": {"name": "synthetic", "partition": "sized", "parties": parties},
            "model": {"l2": 0.01},
            "strategy": strategy,
            "privacy": {"adjacency": adjacency, "noise_at": noise_at},
            "run": run,
        }
    )
