"""Minutes that strategies take on deployed parties, from submission to result.

Run with ``python -m benchmarks.deployed_minutes [--rounds N] [--json]``, `acs_income` in
``FEDPRIV_DATA``; skipped without it. Five parties with a fifth of its training records each, real
processes on one machine as in `benchmarks.deployment`, ε = 1, δ = 1e-6, replace-one, settings by
rule. `second-order` has 12 rounds, gradient perturbation 100, and objective perturbation as many as
its joint fit takes; ``--rounds`` cuts both numbers, for a try. Each has a federation of its own.
An exchange is a message to every party and back; secure aggregation takes several for one sum.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.deployment import PARTIES, finished, founded_with, processes
from fedpriv._toml import to_toml
from fedpriv.data import DataError, load
from fedpriv.simulations.experiment.file import read_experiment

if TYPE_CHECKING:
    from fedpriv.data import Dataset

TABLE = "acs_income"
ROUNDS = {"second-order": 12, "gradient-perturbation": 100, "objective-perturbation": None}
_POLICY = {
    "strategies": [*ROUNDS],
    "queries": ["gradient", "moments", "risk-gradient"],
    "max_clip": 1.0,
}


def measured(name: str, rounds: int | None, dataset: Dataset) -> dict[str, Any]:
    """One run on a federation of its own."""
    whose = np.random.default_rng(0).permutation(len(dataset.train.y)) % PARTIES
    tables = [
        (dataset.train.X[whose == j], dataset.train.y[whose == j] > 0) for j in range(PARTIES)
    ]
    # A minimiser is one release with an ε and a δ, which only such ledgers add up.
    composition = "basic" if rounds is None else "rdp"
    with TemporaryDirectory(prefix="fedpriv-benchmark-") as folder:
        root = Path(folder)
        founded = founded_with(
            root,
            dataset.feature_names,
            tables,
            budget={"epsilon": 2.0, "delta": 1e-5, "composition": composition},
            policy=_POLICY,
        )
        values = {
            "data": {"schema": "schema.toml"},
            "strategy": {"name": name, **({} if rounds is None else {"rounds": rounds})},
            "privacy": {"epsilon": 1.0, "delta": 1e-6},
            "run": {"engine": "deployment", "secure_aggregation": "active"},
        }
        (root / "experiment.toml").write_text(to_toml(values))
        wanted = read_experiment(root / "experiment.toml")
        with processes(founded):
            began = time.perf_counter()
            result = finished(founded, wanted)
            seconds = time.perf_counter() - began
    traffic = result["exchanges"]["traffic"].values()
    exchanges = sum(step["exchanges"] for step in traffic)
    return {
        "strategy": name,
        "rounds": rounds,
        "minutes": seconds / 60,
        "exchanges": exchanges,
        "seconds_an_exchange": sum(step["seconds"] for step in traffic) / exchanges,
    }


def main(arguments: list[str]) -> int:
    most = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else 100
    try:
        dataset = load(TABLE)
    except DataError as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    rows = []
    for name, rounds in ROUNDS.items():
        row = measured(name, None if rounds is None else min(rounds, most), dataset)
        rows.append(row)
        if "--json" not in arguments:
            print(
                f"{name:24} {row['minutes']:6.2f} minutes, {row['exchanges']:5} exchanges of "
                f"{row['seconds_an_exchange']:.3f} s",
                flush=True,
            )
    if "--json" in arguments:
        print(json.dumps({"table": TABLE, "parties": PARTIES, "runs": rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
