"""Results to report on: a small comparison by hand, and the files of real small runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.statement.signed import PartySignature
from fedpriv.simulations.compare.comparison import Comparison
from fedpriv.simulations.compare.findings import findings
from fedpriv.simulations.compare.rows import Row
from fedpriv.simulations.experiment.file import parse_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.report.results import RunFiles

HOSTILE = "<script>window.hacked = 1</script>"
ATTRIBUTE = '"><img src=x onerror="window.hacked = 2">'
SIZES = [8, 40, 52]

STUDY = {
    "name": "study",
    "data": {"name": "synthetic"},
    "strategy": {"name": "output-perturbation"},
    "compare": {"strategies": ["output-perturbation"], "epsilons": [0.5, 2.0], "seeds": 3},
}


def row(
    label: str, accuracies: list[float], *, strategy: str, epsilon: float | None, **other: Any
) -> Row:
    """A row of a comparison, with all that a result of a simulation holds."""
    common = {
        "run": "r", "experiment": "study", "fedpriv": "0.1.0", "simulated": True, "label": label,
        "strategy": strategy, "options": {}, "private": epsilon is not None, "data": "synthetic",
        "model": "logistic", "engine": "vectorized", "secure_aggregation": "ideal", "parties": 3,
        "records": sum(SIZES), "smallest_party": min(SIZES), "delta": 1e-6,
        "adjacency": "replace-one", "unit": "record", "epsilon": epsilon,
        "epsilon_budget": epsilon, "rounds": 1, "loss": 0.5, "noise_stddev": 0.25,
        "clip_fraction": None, "seconds": 0.5, "bytes": 1600, "majority_accuracy": 0.55,
        "worst_party": 0.6, "fairness_gap": 0.1, "party_sizes": SIZES,
        "per_party": {"metric": "accuracy", "on": "test", "values": [None, 0.6, 0.7]},
        **other,
    }  # fmt: skip
    results = [
        {**common, "seed": seed, "accuracy": value, "auc": value}
        for seed, value in enumerate(accuracies)
    ]
    return Row.of(results)


def comparison(directory: Path, *, name: str = "gradient") -> Comparison:
    """Three strategies at two budgets, three seeds; ``name`` is what one of them is called."""
    traffic = {"answer": {"exchanges": 3, "seconds": 0.25, "sent": 300, "received": 1200}}
    exchanges = {"sums": 3, "traffic": traffic, "rejected": {}, "refusals": {}}
    rows = (
        row("non-private", [0.8, 0.81, 0.8], strategy="non-private", epsilon=None),
        row(name, [0.6, 0.65, 0.7], strategy="output-perturbation", epsilon=0.5),
        row("local", [0.5, 0.52, 0.51], strategy="local-output-perturbation", epsilon=0.5),
        row(name, [0.79, 0.8, 0.795], strategy="output-perturbation", epsilon=2.0),
        row(
            "local",
            [0.6, 0.62, 0.61],
            strategy="local-output-perturbation",
            epsilon=2.0,
            exchanges=exchanges,
        ),
    )
    return Comparison(
        experiment=parse_experiment(STUDY | {"name": name}),
        directory=directory,
        rows=rows,
        findings=tuple(findings(rows)),
    )


def signed(run: RunFiles, *names: str) -> RunFiles:
    """A run with signatures of parties of these names beside its statement."""
    signatures = tuple(
        PartySignature(
            number=number, name=name, head="ab" * 32, rows=7, releases=5, signature=bytes(64)
        )
        for number, name in enumerate(names)
    )
    return replace(run, signatures=signatures)
