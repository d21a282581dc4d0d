"""Settings that need no tuning: what they lose to the best of a grid, and gain over fixed ones.

Run with ``python -m benchmarks.settings [--json] [--fitting] [--svm] [--add-remove | --sampled]
[TABLE …]``, tables in ``FEDPRIV_DATA``. Linear classifiers by gradient perturbation, 100 rounds,
replace-one, δ = 1e-6; ``--svm`` with the Huber hinge, and its loss for the log-loss; ``--sampled``
is add-remove with Poisson samples of a tenth of the records.
The numbers of the rule (`fedpriv.strategies.common.auto`) were chosen on the tables for `FITTING`,
here and in `benchmarks.further`, test records and all. The tables for `JUDGING` judge them; those
of `further` were looked at by nobody before. Records are cut to 500, 2,000 and all. *Fixed* are
100 steps of 1/M, clip norm 1, λ = 0.001: what a run once had that said nothing. The *grid* is the
best of 36 settings, clip norms times travels, the last model or the mean of the last half, by
accuracy on the test records, which no real run can know: the largest of 36 noisy means flatters it.
*Cross* is flattered by those records alone: it is chosen by one half of the seeds, and measured by
the other. Goals, in points of accuracy: at most 0.3 behind the fixed settings anywhere; at most 0.5
behind the grid in the mean over tables where ε ≥ 1, and 1.0 elsewhere; a log-loss that is at most
0.02 above that of the fixed ones.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks import further
from benchmarks.descents import Descent, descend, judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.data import Dataset
    from fedpriv.federation.task import Task
    from fedpriv.learning.losses import Loss

FITTING = ("mnist:3v5", "acs_income", "chem97", "kddcup99")
JUDGING = ("adult", "heart_disease", "breast_cancer", "digits")
RECORDS = (500, 2000, None)  # as many of them, or all
SEEDS, SMALL, SEEDS_OF_SMALL = {500: 20, 2000: 12, None: 6}, 2000, 40
EPSILONS = (0.1, 0.3, 1.0, 3.0)
PARTIES, ROUNDS, FIXED_L2, MOMENTUM = 10, 100, 1e-3, 0.9
SAMPLING_RATE, SMOOTHING = 0.1, 0.5
TWO_CLASSES = {"digits": "digits:3v8"}  # for what needs a loss of one score
AVERAGINGS = ("tail", "last")
CLIPS, SCORE_NOISES = (0.25, 0.5, 1.0), (0.625, 1.25, 2.5, 5.0, 10.0, 20.0)
MOST_BEHIND_FIXED, MOST_BEHIND_GRID = 0.3, {0.1: 1.0, 0.3: 1.0, 1.0: 0.5, 3.0: 0.5}
MOST_LOSS_ABOVE_FIXED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is studied: by default logistic or softmax regression of all records, replace-one."""

    svm: bool = False
    adjacency: str = "replace-one"
    sampling_rate: float = 1.0


LOGISTIC = Kind()


def whole(table: str) -> tuple[Dataset, Loss]:
    """All records of a table, and the loss that suits its classes."""
    from fedpriv.learning.losses import Logistic, Softmax
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.experiment.records.data import party_records

    if table in further.FITTING or table in further.JUDGING:
        return further.further(table), Logistic()
    experiment = read_experiment(
        {
            "data": {"name": table, "partition": "iid", "parties": PARTIES},
            "strategy": {"name": "gradient-perturbation"},
        }
    )
    dataset = party_records(experiment, keep=True).data.dataset
    classes = len(np.unique(dataset.train.y))
    return dataset, Logistic() if classes == 2 else Softmax(classes=classes)


def cut(dataset: Dataset, records: int | None, seed: int) -> Dataset:
    """So many of its training records, drawn by a seed; all its test records."""
    if records is None:
        return dataset
    chosen = np.random.default_rng(seed).permutation(len(dataset.train.y))[:records]
    return replace(dataset, train=dataset.train.take(chosen))


def task_of(dataset: Dataset, loss: Loss, l2: float) -> Task:
    """The public facts of a table."""
    from fedpriv.federation.task import Task
    from fedpriv.learning.models import LinearModel

    count, width = dataset.train.X.shape
    sizes = np.diff(np.linspace(0, count, PARTIES + 1).astype(np.int64)).tolist()
    model = LinearModel(width=width, classes=loss.outputs)
    return Task(model=model, loss=loss, regulariser=l2, feature_bound=1.0, sizes=tuple(sizes))


def settings(dataset: Dataset, loss: Loss, epsilon: float, kind: Kind = LOGISTIC) -> list[Descent]:
    """The fixed settings, those of the rule, and the grid, as the strategy would plan them."""
    from fedpriv.federation.strategy.base import Run
    from fedpriv.privacy.adjacency import Adjacency
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.strategies.common.auto import strength
    from fedpriv.strategies.common.building import LIGHT_L2, Setup
    from fedpriv.strategies.common.plans.plans import plan_gradients
    from fedpriv.strategies.gradient_perturbation import (
        GradientOptions,
        settled_gradients,
        shrink_of,
    )

    fixed, task = (task_of(dataset, loss, l2) for l2 in (FIXED_L2, LIGHT_L2))
    setup = Setup(
        task=task,
        adjacency=Adjacency(kind.adjacency),
        run=Run(name="benchmark", noise=lambda index: RandomStream.seeded(0, "noise", index)),
        allowance=Budget(epsilon=epsilon, delta=1e-6),
    )
    plan = plan_gradients(setup, rounds=ROUNDS, clip_norm=1.0, sampling_rate=kind.sampling_rate)
    noise = plan.mechanisms[0].noise_stddev  # type: ignore[union-attr]
    s = strength(plan, task, clip_norm=1.0)

    def heavy_ball(clip: float, rate: float, averaging: str) -> Descent:
        return Descent(
            clip=clip,
            noise=clip * noise,
            rate=rate,
            momentum=MOMENTUM,
            l2=LIGHT_L2,
            tail=averaging == "tail",
        )

    ruled = settled_gradients(
        setup, GradientOptions(rounds=ROUNDS, sampling_rate=kind.sampling_rate)
    )
    clipped = plan_gradients(
        setup, rounds=ROUNDS, clip_norm=float(ruled.clip), sampling_rate=kind.sampling_rate
    )
    shrink = shrink_of(ruled, clipped, task)
    stable = 0.75 * 2 * (1 + MOMENTUM) / task.smoothness
    return [
        Descent(
            clip=1.0, noise=noise, rate=1 / fixed.smoothness, momentum=0.0, l2=FIXED_L2, tail=False
        ),
        replace(
            heavy_ball(float(ruled.clip), float(ruled.learning_rate), ruled.averaging),
            shrink=1.0 if shrink is None else float(shrink.factors[-1]),
        ),
        *(
            heavy_ball(clip, min(stable, r * s * (1 - MOMENTUM) / (clip * ROUNDS)), averaging)
            for averaging, clip, r in product(
                AVERAGINGS, (share * task.lipschitz for share in CLIPS), SCORE_NOISES
            )
        ),
    ]


def measured(table: str, records: int | None, kind: Kind = LOGISTIC) -> list[dict[str, Any]]:
    """One row per ε: fixed settings, the rule, and the best of the grid, seed by seed."""
    from fedpriv.learning.losses import HuberHinge

    dataset, loss = whole(table)
    if kind.svm:
        loss = HuberHinge(smoothing=SMOOTHING)
    by_budget = {e: settings(cut(dataset, records, 0), loss, e, kind) for e in EPSILONS}
    every = [each for one in by_budget.values() for each in one]
    results = []
    few = records is None and len(dataset.train.y) < SMALL
    for seed in range(SEEDS_OF_SMALL if few else SEEDS[records]):
        data = cut(dataset, records, seed)
        models = descend(
            data, loss, every, rounds=ROUNDS, seed=seed, sampling_rate=kind.sampling_rate
        )
        results.append(judged(data, loss, models))
    accuracy, losses = (np.array([pair[k] for pair in results]) for k in (0, 1))
    each, rows = len(every) // len(EPSILONS), []
    for place, epsilon in enumerate(EPSILONS):
        columns = slice(place * each, (place + 1) * each)
        count = len(cut(dataset, records, 0).train.y)
        head = {"table": table, "records": count, "epsilon": epsilon}
        rows.append({**head, **summary(accuracy[:, columns], losses[:, columns])})
    return rows


def summary(accuracy: np.ndarray, losses: np.ndarray) -> dict[str, Any]:
    """Means over the seeds, and paired differences with half of their 95 % intervals."""
    grid = accuracy[:, 2:]
    best, crossed = int(grid.mean(axis=0).argmax()), cross(grid)
    chosen = {
        "fixed": (accuracy[:, 0], losses[:, 0]),
        "rule": (accuracy[:, 1], losses[:, 1]),
        "grid": (grid[:, best], losses[:, 2 + best]),
    }
    return {
        **{name: (float(a.mean()), float(b.mean())) for name, (a, b) in chosen.items()},
        "cross": float(crossed.mean()),
        "to_fixed": paired(accuracy[:, 1] - accuracy[:, 0]),
        "to_grid": paired(accuracy[:, 1] - grid[:, best]),
        "to_cross": paired(accuracy[:, 1] - crossed),
        "loss_to_fixed": paired(losses[:, 1] - losses[:, 0]),
    }


def cross(grid: np.ndarray) -> np.ndarray:
    """Seed by seed, what the setting has that is best by the other half of the seeds."""
    halves = np.arange(len(grid)) % 2 == 0
    found = np.empty(len(grid))
    for half in (halves, ~halves):
        found[~half] = grid[~half, int(grid[half].mean(axis=0).argmax())]
    return found


def paired(differences: np.ndarray) -> tuple[float, float]:
    """The mean of a difference, and half of its 95 % interval (Student's t)."""
    from fedpriv.simulations.compare.intervals import mean_interval

    interval = mean_interval(tuple(differences.tolist()))
    return interval.mean, interval.half_width or 0.0


def means(rows: Sequence[dict[str, Any]]) -> dict[float, dict[str, tuple[float, float]]]:
    """By ε, the mean over tables and numbers of records of what the rule is ahead."""
    found: dict[float, dict[str, tuple[float, float]]] = {}
    for epsilon in EPSILONS:
        own = [row for row in rows if row["epsilon"] == epsilon]
        found[epsilon] = {
            key: (
                float(np.mean([row[key][0] for row in own])),
                float(np.sqrt(np.sum([row[key][1] ** 2 for row in own])) / len(own)),
            )
            for key in ("to_fixed", "to_grid", "to_cross", "loss_to_fixed")
        }
    return found


def misses(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The goals that were not met."""
    found = []
    for row in rows:
        where = f"{row['table']}, {row['records']} records, epsilon {row['epsilon']:g}"
        (ahead, half), (above, width) = row["to_fixed"], row["loss_to_fixed"]
        if -ahead > MOST_BEHIND_FIXED:
            found.append(f"{where}: {-ahead:.2f} ± {half:.2f} behind the fixed settings")
        if above > MOST_LOSS_ABOVE_FIXED:
            found.append(f"{where}: a log-loss {above:.3f} ± {width:.3f} above the fixed settings'")
    for epsilon, own in means(rows).items():
        behind, half = -own["to_grid"][0], own["to_grid"][1]
        if behind > MOST_BEHIND_GRID[epsilon]:
            most = MOST_BEHIND_GRID[epsilon]
            found.append(
                f"epsilon {epsilon:g}: {behind:.2f} ± {half:.2f} behind the grid, not {most}"
            )
    return found


def line(row: dict[str, Any]) -> str:
    """A row of the table of the documentation."""
    parts = [row["table"], f"{row['records']:,}", f"{row['epsilon']:g}"]
    parts += [f"{row[name][0]:.1f}, {row[name][1]:.3f}" for name in ("fixed", "rule", "grid")]
    parts += [f"{row['cross']:.1f}"]
    parts += ["{:+.1f} ± {:.1f}".format(*row[name]) for name in ("to_fixed", "to_grid", "to_cross")]
    return f"| {' | '.join(parts)} |"


def tables_of(arguments: list[str]) -> tuple[str, ...]:
    """The tables that are named, or those that fit the rule, or those that judge it."""
    named = [argument for argument in arguments if not argument.startswith("--")]
    if "--fitting" in arguments:
        return tuple(named) or (*FITTING, *further.FITTING)
    return tuple(named) or (*JUDGING, *further.JUDGING)


def main(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    sampled = "--sampled" in arguments
    kind = Kind(
        svm="--svm" in arguments,
        adjacency="add-remove" if sampled or "--add-remove" in arguments else "replace-one",
        sampling_rate=SAMPLING_RATE if sampled else 1.0,
    )
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for table, records in product(tables_of(arguments), RECORDS):
        table = TWO_CLASSES.get(table, table) if kind.svm else table  # noqa: PLW2901
        if records is None or records < len(whole(table)[0].train.y):
            rows += measured(table, records, kind)
            for row in [] if as_json else rows[-len(EPSILONS) :]:
                print(line(row), flush=True)
    missed = misses(rows)
    if as_json:
        print(json.dumps({"rows": rows, "means": means(rows), "missed": missed}, indent=2))
        return bool(missed)
    for epsilon, own in means(rows).items():
        told = (f"{key} {mean:+.3f} ± {half:.3f}" for key, (mean, half) in own.items())
        print(f"ε = {epsilon:g}, in the mean:", ", ".join(told))
    print("\n".join(missed))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
