"""A round of private federated learning: our engine against one read of the data, and peers.

Run with ``python -m benchmarks.rounds [--quick] [--json]``. The work is the same for all: a
logistic model of 784 coordinates, every record's gradient clipped, a sum for every party, their
total with Gaussian noise, one step. Ours is a whole round: guard, fixed point, exact noise,
accounting, metrics on a test set and the share of clipped gradients are on. One read is the sum of
all features by all processors, taken in pauses between rounds: the threads that read spin for a
while afterwards, on processors that a round needs. Peers do no fixed point; Flower runs on Ray, in
this environment, and the others live in one of their own, made on the first run.

Figures are medians over rounds; ours are of that process of several which was disturbed least. Time
of all processors is printed too: on a busy machine its ratio says more. What cannot be installed is
skipped, with its reason.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import venv
from math import sqrt
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.events import GaussianEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedpriv.data import PartitionedDataset

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-bench-rounds"
# Of each peer, what to install, in order; torch first, because another one is gigabytes larger.
PACKAGES = {
    "pfl-research": ("torch==2.13.0", "pfl==0.6.*"),
    "FedJAX": ("fedjax==0.0.17",),
    "OpenDP": ("numpy", "opendp==0.16.*"),
}
SCRIPTS = {
    "Flower Ray": "flower_rounds.py",
    "pfl-research": "pfl_rounds.py",
    "FedJAX": "fedjax_rounds.py",
}
WIDTH, CLIP_NORM = 784, 0.3
SCALES = ((100, 100), (1000, 20))
GROWTH = ((100, 20), (1000, 20), (10_000, 20))
LARGE = (250, 1280)  # a gigabyte of records
# Parties, against whom, and how many times faster we must be; a read counts as a fraction.
GOALS = (
    (100, "one read", 1 / 4),
    (1000, "one read", 1 / 5),
    (100, "Flower Ray", 200.0),
    (1000, "Flower Ray", 800.0),
    (100, "pfl-research", 15.0),
    (1000, "pfl-research", 30.0),
    (100, "FedJAX", 4.0),
    (1000, "FedJAX", 10.0),
)
BETWEEN_READS, READS, REST_SECONDS = 5, 3, 0.02
MOST_MEMORY = 400.0  # MiB beyond the data
MOST_GROWTH = 1.5  # of the time for a record, from 100 to 10,000 parties


def records(parties: int, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features of norm below 1, and labels, from one seed; made a block at a time."""
    rng = np.random.default_rng(0)
    X = np.empty((parties * size, WIDTH), np.float32)
    for rows in np.array_split(X, max(1, len(X) // 4096)):
        rng.standard_normal(out=rows, dtype=np.float32)
        np.divide(rows, 1.0001 * np.linalg.norm(rows, axis=1, keepdims=True), out=rows)
    y = rng.choice(np.array([-1, 1], np.float32), len(X))
    return X, y


def party_data(parties: int, size: int) -> PartitionedDataset:
    from fedpriv.data import Dataset, PartitionedDataset, Records

    X, y = records(parties, size)
    dataset = Dataset(
        name="benchmark",
        task="binary",
        train=Records(X=X, y=y, party=np.repeat(np.arange(parties), size)),
        test=Records(X=X[:1000].copy(), y=y[:1000].copy()),
        feature_names=tuple(f"x{i}" for i in range(WIDTH)),
        max_norm=1.0,
        party_names=tuple(f"party-{j}" for j in range(parties)),
        classes=("no", "yes"),
    )
    return PartitionedDataset(
        dataset=dataset,
        kind="iid",
        offsets=np.arange(0, len(X) + 1, size),
        order=np.arange(len(X)),
    )


def measure(parties: int, size: int, rounds: int) -> dict[str, float]:
    """Milliseconds of a round and of a read, and MiB beyond the data, in this fresh process."""
    from torch.utils.dlpack import from_dlpack

    from fedpriv import strategies
    from fedpriv.federation.engines.vectorized import VectorizedFederation
    from fedpriv.federation.task import Task
    from fedpriv.learning.losses import Logistic
    from fedpriv.learning.models import LinearModel
    from fedpriv.privacy.budget import Budget
    from fedpriv.privacy.gaussian import gdp_epsilon
    from fedpriv.privacy.randomness import RandomStream
    from fedpriv.simulations.run.metrics.evaluation import Evaluator

    data = party_data(parties, size)
    features = from_dlpack(data.dataset.train.X)
    task = Task(
        model=LinearModel(width=WIDTH),
        loss=Logistic(),
        regulariser=1e-3,
        feature_bound=1.0,
        sizes=(size,) * parties,
    )
    budget = Budget(epsilon=1.0, delta=1e-6)
    strategy = strategies.build(
        "gradient-perturbation",
        task=task,
        budget=budget,
        adjacency="replace-one",
        options={"rounds": rounds, "clip": CLIP_NORM},
        noise=lambda index: RandomStream.seeded(0, "noise", index),
        run="benchmark",
    )
    federation = VectorizedFederation(
        data, task=task, sampling=lambda index: RandomStream.seeded(0, "parties", index)
    )
    evaluator = Evaluator.of(task.model, task.loss, data.dataset.test)
    squared_mu, ours, reads, history = 0.0, [], [], []
    for index in range(rounds):
        if index % BETWEEN_READS == 0:
            reads += timed_reads(features)
        start, worked = perf_counter(), process_time()
        query = strategy.ask()
        if query is None or not isinstance(query.event, GaussianEvent):
            raise RuntimeError("the plan ended early.")
        answer = federation.sum(query)
        strategy.learn(answer)
        squared_mu += query.event.relative_noise**-2
        spent = gdp_epsilon(mu=sqrt(squared_mu), delta=budget.delta)
        score = evaluator.score(strategy.theta)
        history.append((query.round, spent, score, answer.diagnostics["clipped"]))
        ours.append((perf_counter() - start, process_time() - worked))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (round_, round_work), (read, read_work) = (
        (1e3 * median(column) for column in zip(*times[1:], strict=True)) for times in (ours, reads)
    )
    return {
        "round": round_,
        "read": read,
        "round, processors": round_work,
        "read, processors": read_work,
        "memory": peak - data.dataset.train.X.nbytes / 2**20,
    }


def timed_reads(features: Tensor) -> list[tuple[float, float]]:
    """Seconds of some reads, and of all processors; before and after them everything rests."""
    found = []
    sleep(REST_SECONDS)
    for _ in range(READS):
        start, worked = perf_counter(), process_time()
        features.sum()
        found.append((perf_counter() - start, process_time() - worked))
    sleep(REST_SECONDS)
    return found


def run_json(command: list[str | Path]) -> dict[str, float]:
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env=os.environ | quiet
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(lines[-1])
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def ours(parties: int, size: int, *, rounds: int, processes: int) -> dict[str, float]:
    """The process whose machine was least disturbed."""
    command: list[str | Path] = [sys.executable, "-m", "benchmarks.rounds", "--measure"]
    found = [run_json([*command, str(parties), str(size), str(rounds)]) for _ in range(processes)]
    return min(found, key=lambda each: each["round"] / each["read"])


def peer_python(peer: str) -> Path | str:
    """The interpreter that a peer runs in; its packages are installed if they are not there."""
    if peer not in PACKAGES:
        return sys.executable
    python, stamp = PEERS / "bin" / "python", PEERS / f".{peer}"
    if not stamp.exists():
        print(f"installing {', '.join(PACKAGES[peer])} into {PEERS.name}", file=sys.stderr)
        if not python.exists():
            venv.create(PEERS, with_pip=True)
        for package in PACKAGES[peer]:
            done = subprocess.run(
                [python, "-m", "pip", "install", "--quiet", package],
                check=False,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                reason = [line for line in done.stderr.splitlines() if "ERROR" in line]
                raise RuntimeError(f"{package} cannot be installed: {(reason or ['?'])[-1]}")
        stamp.touch()
    return python


def theirs(peer: str, parties: int, size: int) -> tuple[float | None, str]:
    """Milliseconds of a peer's round, or the reason why there are none."""
    script = ROOT / "benchmarks" / "peers" / SCRIPTS[peer]
    try:
        python = peer_python(peer)
        return run_json([python, script, str(parties), str(size)])["round"], ""
    except RuntimeError as reason:
        return None, str(reason)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--measure"]:
        parties, size, rounds = map(int, arguments[1:])
        print(json.dumps(measure(parties, size, rounds)))
        return 0
    quick, as_json = "--quick" in arguments, "--json" in arguments
    table: dict[str, Any] = {"scales": {}, "work": {}, "growth": {}, "skipped": {}}
    for parties, size in SCALES:
        found = ours(parties, size, rounds=50 if quick else 300, processes=1 if quick else 3)
        times = {"ours": found["round"], "one read": found["read"]}
        table["work"][parties] = found["round, processors"] / found["read, processors"]
        for peer in () if quick else SCRIPTS:
            milliseconds, reason = theirs(peer, parties, size)
            if milliseconds is None:
                table["skipped"][peer] = reason
            else:
                times[peer] = milliseconds
        table["scales"][parties] = times
    for parties, size in GROWTH[:2] if quick else (*GROWTH, LARGE):
        found = ours(parties, size, rounds=12, processes=1)
        table["growth"][f"{parties} x {size}"] = found | {
            "microseconds per record": 1e3 * found["round"] / (parties * size)
        }
    missed = misses(table)
    table["missed"] = missed
    if as_json:
        print(json.dumps(table, indent=2))
    else:
        report(table)
    return bool(missed)


def misses(table: dict[str, Any]) -> list[str]:
    """The goals that were not met, of those that could be measured."""
    found = []
    for parties, whom, factor in GOALS:
        times = table["scales"][parties]
        if whom in times and times[whom] / times["ours"] < factor:
            found.append(
                f"{parties} parties: {times[whom] / times['ours']:.3g}x {whom}, not {factor:.3g}x"
            )
    growth = table["growth"]
    for name, row in growth.items():
        if row["memory"] > MOST_MEMORY:
            found.append(f"{name}: {row['memory']:.0f} MiB beyond the data, not {MOST_MEMORY:.0f}")
    each = [row["microseconds per record"] for row in growth.values()]
    if max(each[1:]) > MOST_GROWTH * each[0]:
        found.append(f"time for a record grows from {each[0]:.3g} to {max(each[1:]):.3g} us")
    return found


def report(table: dict[str, Any]) -> None:
    for parties, times in table["scales"].items():
        work = table["work"][parties]
        print(f"{parties} parties: {times['ours']:.2f} ms per round, {work:.2f} reads of work")
        for whom, milliseconds in times.items():
            if whom != "ours":
                ratio = milliseconds / times["ours"]
                print(f"  {whom:14} {milliseconds:10.2f} ms   ours is {ratio:.3g}x as fast")
    for peer, reason in table["skipped"].items():
        print(f"skipped {peer}: {reason}")
    for name, row in table["growth"].items():
        print(
            f"{name:>14}: {row['round']:8.2f} ms per round, "
            f"{row['microseconds per record']:.3f} us per record, "
            f"{row['memory']:.0f} MiB beyond the data"
        )
    for line in table["missed"]:
        print(f"missed: {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
