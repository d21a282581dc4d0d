"""A sequence of private tasks, each from the model of the one before: is learned protection ahead?

    FEDPRIV_DATA=… python -m benchmarks task_sequence

MNIST 3 against 5 in four parts that share no record, as if they came one after the other: each is
a private run of its own, with the whole budget, because it is about other records (parallel
composition). It begins at the model that the run before released, or, for comparison, at zero.
Settings of plain descent, and horizons, are those that were chosen on 4 and 6 for a quarter of the
budget: a quarter of the records hides a record in four times as much noise.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from os import environ
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as student

import fedpriv
from fedpriv.data import load

if TYPE_CHECKING:
    from fedpriv.data import Dataset

SEEDS, PARTS = 5, ("first", "second", "third", "fourth")
STEPS: dict[float, dict[str, Any]] = {
    0.05: {"rounds": 4, "clip": 0.25, "learning_rate": 32.0},
    0.1: {"rounds": 15, "clip": 0.05, "learning_rate": 160.0},
    0.4: {"rounds": 60, "clip": 0.05, "learning_rate": 160.0},
}
HORIZON = {0.05: 30, 0.1: 100, 0.4: 100}


def _part(number: int) -> Dataset:
    whole = load("mnist:3v5")
    rows = np.random.default_rng(0).permutation(len(whole.train))
    return replace(whole, train=whole.train.take(np.sort(rows[number :: len(PARTS)])))


def first() -> Dataset:
    """The records of the first task."""
    return _part(0)


def second() -> Dataset:
    """The records of the second task."""
    return _part(1)


def third() -> Dataset:
    """The records of the third task."""
    return _part(2)


def fourth() -> Dataset:
    """The records of the last task."""
    return _part(3)


def accuracies(strategy: dict[str, Any], *, epsilon: float, seed: int, warm: bool) -> list[float]:
    """In percent, after each task."""
    found: list[fedpriv.Result] = []
    for part in PARTS:
        model: dict[str, Any] = {"name": "logistic", "l2": 1e-4}
        if warm and found:
            model["start"] = str(found[-1].directory / "model.npz")
        study = {
            "data": {"name": f"{__file__}:{part}", "partition": "iid", "parties": 10},
            "model": model,
            "strategy": strategy,
            "privacy": {"epsilon": epsilon, "delta": 1e-8, "adjacency": "add-remove"},
            "run": {"seed": seed, "evaluate_every": 1000},
        }
        found.append(fedpriv.run(study))
    return [100 * each.summary["accuracy"] for each in found]


def main() -> None:
    if "FEDPRIV_DATA" not in environ:
        print("skipped: it needs mnist.npz in the folder that FEDPRIV_DATA names")
        return
    print("accuracy in %, after each of four tasks; ± half of a 95 % interval over the seeds")
    for epsilon, steps in STEPS.items():
        plain: dict[str, Any] = {"name": "gradient-perturbation", **steps}
        learned: dict[str, Any] = {"name": "learned-protection", "horizon": HORIZON[epsilon]}
        last: dict[tuple[str, bool], np.ndarray] = {}
        for strategy in (learned, plain):
            for warm in (True, False):
                values = np.array(
                    [
                        accuracies(strategy, epsilon=epsilon, seed=seed, warm=warm)
                        for seed in range(SEEDS)
                    ]
                )
                last[strategy["name"], warm] = values[:, -1]
                told = "  ".join(_told(column) for column in values.T)
                begins = "the model before" if warm else "zero"
                print(f"{epsilon:<6g} {strategy['name']:<22} from {begins:<17} {told}", flush=True)
        for warm in (True, False):
            gap = last["learned-protection", warm] - last["gradient-perturbation", warm]
            print(f"{epsilon:<6g} learned minus plain, last task, warm={warm}: {_told(gap)}")


def _told(values: np.ndarray) -> str:
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / sqrt(len(values))
    return f"{values.mean():5.1f} ± {half:4.1f}"


if __name__ == "__main__":
    main()
