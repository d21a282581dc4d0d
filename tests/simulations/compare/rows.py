"""Rows of a comparison: strategies that do well, badly, alone, and without noise."""

from typing import Any

from fedpriv.simulations.compare.rows import Row


def row(
    strategy: str,
    values: list[float],
    *,
    epsilon: float | None = None,
    label: str | None = None,
    **other: Any,
) -> Row:
    common = {
        "strategy": strategy,
        "label": label or strategy,
        "options": {},
        "private": epsilon is not None,
        "epsilon_budget": epsilon,
        "epsilon": epsilon,
        "delta": 1e-6,
        "adjacency": "replace-one",
        "unit": "record",
        "rounds": 1,
        "parties": 131,
        "records": 24866,
        "smallest_party": 8,
        "data": "chem97",
        "model": "logistic",
        "simulated": True,
        "loss": 0.5,
        "noise_stddev": 1.0,
        "clip_fraction": 0.0,
        "seconds": 0.1,
        "bytes": 16,
        "majority_accuracy": 0.56,
        **other,
    }
    return Row.of(
        [{**common, "seed": seed, "accuracy": value} for seed, value in enumerate(values)]
    )


EXACT = row("non-private", [0.776] * 5)
ALONE = row("party-alone", [0.729] * 5)
GOOD = [0.774, 0.775, 0.773, 0.776, 0.774]
NOISY = [0.60, 0.75, 0.66, 0.71, 0.69]
