"""Client-level privacy: the accuracy of federated averaging here, in Flower and in pfl-research.

Run with ``python -m benchmarks.client_level [--quick] [--json]``; it needs the digits of MNIST, in
the folder that FEDPRIV_DATA names. The experiment is the same for all: 1000 parties of 20 digits, a
linear classifier, an epoch of SGD at every party in every round, all parties in every round, fixed
or adaptive clipping, and (ε, δ) for a party that joins or leaves. Everybody accounts for themselves
where they can, and the table says how: what differs is the noise that each thinks necessary.
Accuracies are means over seeds with 95 % intervals; the goal is not to be below a peer by more than
both intervals allow.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy.stats import t as student

from benchmarks import rounds as plain

SCRIPTS = {"Flower": "flower_client_level.py", "pfl-research": "pfl_client_level.py"}
ACCOUNTING = {
    "fedpriv": "Gaussian DP, exact; the count of adaptive clipping is paid for in the same vector",
    "Flower": "fixed: Rényi; adaptive: none of its own, and its noise follows the next clip norm",
    "pfl-research": "privacy-loss distributions",
}
SETTINGS: dict[str, Any] = {
    "parties": 1000,
    "rounds": 30,
    "epsilon": 4.0,
    "delta": 1e-5,
    "clip": 0.5,
    "batch_size": 10,
    "local_learning_rate": 0.5,
}
RECORDS, SEEDS = 20, 5


def digits(path: Path) -> None:
    """MNIST with pixels in the unit ball, in an order of its own, cut into equal parties."""
    held = np.load(Path(os.environ["FEDPRIV_DATA"]) / "mnist.npz")
    order = np.random.default_rng(0).permutation(len(held["y_train"]))
    order = order[: SETTINGS["parties"] * RECORDS]

    def scaled(pixels: Any) -> Any:
        values = pixels.astype(np.float32)
        return values / np.linalg.norm(values, axis=1, keepdims=True).clip(min=1e-6) * 0.999

    np.savez(
        path,
        x=scaled(held["X_train"])[order],
        y=held["y_train"].astype(np.int64)[order],
        test_x=scaled(held["X_test"]),
        test_y=held["y_test"].astype(np.int64),
    )


def ours(path: str, settings: dict[str, Any]) -> dict[str, float]:
    """Accuracy of the last model, and the noise multiplier."""
    from fedpriv import strategies
    from fedpriv.data import Dataset, PartitionedDataset, Records
    from fedpriv.federation.engines.vectorized import VectorizedFederation
    from fedpriv.federation.task import Task
    from fedpriv.learning.losses import Softmax
    from fedpriv.learning.models import LinearModel
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.simulations.run.metrics.evaluation import Evaluator

    held, parties, seed = np.load(path), settings["parties"], settings["seed"]
    size = len(held["y"]) // parties
    dataset = Dataset(
        name="digits",
        task="multiclass",
        train=Records(X=held["x"], y=held["y"], party=np.repeat(np.arange(parties), size)),
        test=Records(X=held["test_x"], y=held["test_y"]),
        feature_names=tuple(f"pixel {i}" for i in range(held["x"].shape[1])),
        max_norm=1.0,
        party_names=tuple(f"party-{j}" for j in range(parties)),
        classes=tuple(str(digit) for digit in range(10)),
    )
    data = PartitionedDataset(
        dataset=dataset,
        kind="iid",
        offsets=np.arange(0, parties * size + 1, size),
        order=np.arange(parties * size),
    )
    task = Task(
        model=LinearModel(width=held["x"].shape[1], classes=10),
        loss=Softmax(classes=10),
        regulariser=0.0,
        feature_bound=1.0,
        sizes=(size,) * parties,
    )
    strategy = strategies.build(
        "federated-averaging",
        task=task,
        budget=Budget(epsilon=settings["epsilon"], delta=settings["delta"]),
        adjacency="add-remove",
        unit="party",
        options={
            "rounds": settings["rounds"],
            "clip": settings["clip"],
            "clip_quantile": 0.5 if settings["adaptive"] else 0.0,
            "batch_size": settings["batch_size"],
            "local_learning_rate": settings["local_learning_rate"],
            "seed": seed,
        },
        noise=lambda index: RandomStream.seeded(seed, "noise", index),
        run="benchmark",
    )
    federation = VectorizedFederation(
        data, task=task, sampling=lambda index: RandomStream.seeded(seed, "parties", index)
    )
    while (query := strategy.ask()) is not None:
        strategy.learn(federation.sum(query))
    score = Evaluator.of(task.model, task.loss, dataset.test).score(strategy.theta)
    if score is None or score.accuracy is None or strategy.plan is None:
        raise RuntimeError("the run has no accuracy.")
    event: Any = strategy.plan.event(0)
    return {"accuracy": score.accuracy, "noise multiplier": event.relative_noise}


def theirs(peer: str, path: str, settings: dict[str, Any]) -> dict[str, float]:
    """The same from a peer, in its own environment."""
    script = plain.ROOT / "benchmarks" / "peers" / SCRIPTS[peer]
    return plain.run_json([plain.peer_python(peer), script, path, json.dumps(settings)])


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Mean accuracy with the half-width of its interval, in percent, and the noise multiplier."""
    found = [100 * run["accuracy"] for run in runs]
    half = 0.0
    if len(found) > 1:
        half = float(student.ppf(0.975, len(found) - 1)) * stdev(found) / sqrt(len(found))
    noise = runs[0]["noise multiplier"]
    return {"accuracy": fmean(found), "half width": half, "noise multiplier": noise}


def main(arguments: list[str]) -> int:
    if "FEDPRIV_DATA" not in os.environ:
        print("skipped: FEDPRIV_DATA names no folder of data, and MNIST is needed.")
        return 0
    seeds = range(1 if "--quick" in arguments else SEEDS)
    table: dict[str, Any] = {"accounting": ACCOUNTING, "clipping": {}, "skipped": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.npz"
        digits(path)
        for clipping in ("fixed", "adaptive"):
            chosen = SETTINGS | {"adaptive": clipping == "adaptive"}
            runs = [ours(str(path), chosen | {"seed": seed}) for seed in seeds]
            rows = {"fedpriv": summary(runs)}
            for peer in SCRIPTS:
                try:
                    found = [theirs(peer, str(path), chosen | {"seed": seed}) for seed in seeds]
                    rows[peer] = summary(found)
                except RuntimeError as reason:
                    table["skipped"][peer] = str(reason)
            table["clipping"][clipping] = rows
    table["missed"] = misses(table)
    if "--json" in arguments:
        print(json.dumps(table, indent=2))
    else:
        report(table)
    return bool(table["missed"])


def misses(table: dict[str, Any]) -> list[str]:
    """Where a peer is better by more than both intervals allow."""
    found = []
    for clipping, rows in table["clipping"].items():
        own = rows["fedpriv"]
        for peer, row in rows.items():
            if row["accuracy"] - row["half width"] > own["accuracy"] + own["half width"]:
                found.append(f"{clipping} clipping: {peer} is more accurate")
    return found


def report(table: dict[str, Any]) -> None:
    budget = f"epsilon = {SETTINGS['epsilon']:g}, delta = {SETTINGS['delta']:g}"
    for clipping, rows in table["clipping"].items():
        print(f"{clipping} clipping, {budget} for a party:")
        for name, row in rows.items():
            print(
                f"  {name:14} {row['accuracy']:.2f} ± {row['half width']:.2f} %, noise multiplier "
                f"{row['noise multiplier']:.3f} ({table['accounting'][name]})"
            )
    for peer, reason in table["skipped"].items():
        print(f"skipped {peer}: {reason}")
    for line in table["missed"]:
        print(f"missed: {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
