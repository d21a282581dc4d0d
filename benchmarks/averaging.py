"""A round of private federated averaging: our engine against one read of the data, and peers.

Run with ``python -m benchmarks.averaging [--quick] [--json]``. The work is the same for all: every
party trains for an epoch in batches of 10 from the common model, its update is clipped, the sum
gets Gaussian noise, and the model moves. Ours is a whole round of the vectorized engine: guard,
fixed point, exact noise, accounting and metrics on a test set are on; what is prepared once, such
as the inner products of the records, is charged to the first round, and printed. Peers run their
own local training and, where they have one, their own mechanism; none does fixed point.

Figures are medians over rounds, ours of that process of several which was disturbed least. Peers
live in an environment of their own, but for Flower. What cannot be installed is skipped, with its
reason.
"""

from __future__ import annotations

import json
import sys
from math import sqrt
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import rounds as plain
from fedpriv.privacy.events import GaussianEvent

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.data import PartitionedDataset
    from fedpriv.federation.task import Task
    from fedpriv.learning.models import Model

SCRIPTS = {
    "Flower Ray": "flower_averaging.py",
    "pfl-research": "pfl_averaging.py",
    "FedJAX": "fedjax_averaging.py",
}
SCALES = {"100x100": (100, 100), "1000x20": (1000, 20)}
WORK = (
    ("logistic", "100x100"),
    ("logistic", "1000x20"),
    ("mlp-20", "100x100"),
    ("mlp-20", "1000x20"),
    ("mlp-128", "100x100"),
    ("mlp-128", "1000x20"),
    ("cnn", "100x100"),
)
# Against whom, and how many times faster we must be; a read counts as a fraction.
GOALS: dict[tuple[str, str], dict[str, float]] = {
    ("logistic", "100x100"): {
        "one read": 1 / 5,
        "FedJAX": 3,
        "pfl-research": 100,
        "Flower Ray": 180,
    },
    ("logistic", "1000x20"): {
        "one read": 1 / 4,
        "FedJAX": 7,
        "pfl-research": 180,
        "Flower Ray": 900,
    },
    ("mlp-20", "100x100"): {"FedJAX": 3, "pfl-research": 20, "Flower Ray": 40},
    ("mlp-20", "1000x20"): {"FedJAX": 7, "pfl-research": 65},
    ("mlp-128", "100x100"): {"FedJAX": 3.5, "pfl-research": 17, "Flower Ray": 22},
    ("mlp-128", "1000x20"): {"FedJAX": 7, "pfl-research": 27},
    ("cnn", "100x100"): {"FedJAX": 3.5, "pfl-research": 5, "Flower Ray": 6},
}
EPOCHS, MOST_FOR_EPOCHS = 5, 2.0  # that many cost at most twice as much as one
EPOCH_WORK = (("logistic", "100x100"), ("mlp-128", "100x100"))
CLASSES, BATCH, LEARNING_RATE, CLIP_NORM = 10, 10, 0.1, 1.0


def model_of(name: str) -> Model:
    """The model that peers call by this name."""
    from fedpriv.learning.models import LinearModel, MlpModel
    from fedpriv.learning.network import small_cnn

    if name == "logistic":
        return LinearModel(width=plain.WIDTH)
    if name == "cnn":
        return small_cnn()
    hidden = int(name.removeprefix("mlp-"))
    return MlpModel(widths=(plain.WIDTH, hidden, CLASSES), activation="relu")


def party_data(name: str, parties: int, size: int) -> PartitionedDataset:
    """The records of `benchmarks.rounds`, with labels that suit the model."""
    from dataclasses import replace

    from fedpriv.data import Records

    data = plain.party_data(parties, size)
    if name == "logistic":
        return data
    dataset, rng = data.dataset, np.random.default_rng(1)
    train, test = (
        Records(X=part.X, y=rng.integers(0, CLASSES, len(part.y)), party=part.party)
        for part in (dataset.train, dataset.test)
    )
    names = tuple(str(digit) for digit in range(CLASSES))
    classes = replace(dataset, task="multiclass", train=train, test=test, classes=names)
    return replace(data, dataset=classes)


def task_of(name: str, parties: int, size: int) -> Task:
    """The public facts of the problem."""
    from fedpriv.federation.task import Task
    from fedpriv.learning.losses import Logistic, Softmax

    return Task(
        model=model_of(name),
        loss=Logistic() if name == "logistic" else Softmax(classes=CLASSES),
        regulariser=0.0,
        feature_bound=1.0,
        sizes=(size,) * parties,
    )


def measure(name: str, parties: int, size: int, epochs: int, rounds: int) -> dict[str, float]:
    """Milliseconds of the first round, of another, and of a read, in this fresh process."""
    from torch.utils.dlpack import from_dlpack

    from fedpriv import strategies
    from fedpriv.federation.engines.vectorized import VectorizedFederation
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.gaussian import gdp_epsilon
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.simulations.run.metrics.evaluation import Evaluator

    data, task = party_data(name, parties, size), task_of(name, parties, size)
    budget = Budget(epsilon=8.0, delta=1e-5)
    strategy = strategies.build(
        "federated-averaging",
        task=task,
        budget=budget,
        adjacency="add-remove",
        unit="party",
        options={
            "rounds": rounds,
            "clip": CLIP_NORM,
            "local_epochs": epochs,
            "batch_size": BATCH,
            "local_learning_rate": LEARNING_RATE,
            "allow_swamped": True,
        },
        noise=lambda index: RandomStream.seeded(0, "noise", index),
        run="benchmark",
    )
    federation = VectorizedFederation(
        data, task=task, sampling=lambda index: RandomStream.seeded(0, "parties", index)
    )
    evaluator = Evaluator.of(task.model, task.loss, data.dataset.test)
    features = from_dlpack(data.dataset.train.X)
    squared_mu, ours, reads, history = 0.0, [], [], []
    for index in range(rounds):
        if index % plain.BETWEEN_READS == 0:
            reads += plain.timed_reads(features)
        start = perf_counter()
        query = strategy.ask()
        if query is None or not isinstance(query.event, GaussianEvent):
            raise RuntimeError("the plan ended early.")
        strategy.learn(federation.sum(query))
        squared_mu += query.event.relative_noise**-2
        spent = gdp_epsilon(mu=sqrt(squared_mu), delta=budget.delta)
        history.append((query.round, spent, evaluator.score(strategy.theta)))
        ours.append(perf_counter() - start)
    return {
        "first": 1e3 * ours[0],
        "round": 1e3 * median(ours[1:]),
        "read": 1e3 * median(wall for wall, _ in reads[1:]),
    }


def ours(work: tuple[str, str], *, epochs: int, processes: int) -> dict[str, float]:
    """The process whose machine was least disturbed."""
    name, scale = work
    parties, size = SCALES[scale]
    rounds = {"logistic": 100, "cnn": 6}.get(name, 30)
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.averaging", "--measure", name]
    numbers = [str(number) for number in (parties, size, epochs, rounds)]
    found = [plain.run_json([*command, *numbers]) for _ in range(processes)]
    return min(found, key=lambda each: each["round"])


def theirs(peer: str, work: tuple[str, str]) -> tuple[float | None, str]:
    """Milliseconds of a peer's round, or the reason why there are none."""
    script = plain.ROOT / "benchmarks" / "peers" / SCRIPTS[peer]
    name, scale = work
    numbers = [str(number) for number in (*SCALES[scale], 1)]
    try:
        return plain.run_json([plain.peer_python(peer), script, name, *numbers])["round"], ""
    except RuntimeError as reason:
        return None, str(reason)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--measure"]:
        print(json.dumps(measure(arguments[1], *map(int, arguments[2:]))))
        return 0
    quick, as_json = "--quick" in arguments, "--json" in arguments
    processes = 1 if quick else 3
    table: dict[str, Any] = {"work": {}, "epochs": {}, "skipped": {}}
    for work in WORK:
        found = ours(work, epochs=1, processes=processes)
        row = {"ours": found["round"], "first round": found["first"], "one read": found["read"]}
        for peer in () if quick else SCRIPTS:
            if peer not in GOALS[work]:
                continue
            milliseconds, reason = theirs(peer, work)
            if milliseconds is None:
                table["skipped"][peer] = reason
            else:
                row[peer] = milliseconds
        table["work"][" ".join(work)] = row
    for work in EPOCH_WORK:
        more = ours(work, epochs=EPOCHS, processes=processes)["round"]
        table["epochs"][" ".join(work)] = more / table["work"][" ".join(work)]["ours"]
    table["missed"] = misses(table)
    if as_json:
        print(json.dumps(table, indent=2))
    else:
        report(table)
    return bool(table["missed"])


def misses(table: dict[str, Any]) -> list[str]:
    """The goals that were not met, of those that could be measured."""
    found = []
    for work, goals in GOALS.items():
        row = table["work"][" ".join(work)]
        for whom, factor in goals.items():
            if whom in row and row[whom] / row["ours"] < factor:
                ratio = row[whom] / row["ours"]
                found.append(f"{' '.join(work)}: {ratio:.3g}x {whom}, not {factor:.3g}x")
    for work, ratio in table["epochs"].items():
        if ratio > MOST_FOR_EPOCHS:
            found.append(f"{work}: {EPOCHS} epochs cost {ratio:.3g} times one, not 2")
    return found


def report(table: dict[str, Any]) -> None:
    for work, row in table["work"].items():
        print(f"{work}: {row['ours']:.2f} ms per round, {row['first round']:.0f} ms the first")
        for whom, milliseconds in row.items():
            if whom not in ("ours", "first round"):
                ratio = milliseconds / row["ours"]
                print(f"  {whom:14} {milliseconds:10.2f} ms   ours is {ratio:.3g}x as fast")
    for work, ratio in table["epochs"].items():
        print(f"{work}: {EPOCHS} epochs cost {ratio:.2f} times one")
    for peer, reason in table["skipped"].items():
        print(f"skipped {peer}: {reason}")
    for line in table["missed"]:
        print(f"missed: {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
