"""Scale: private rounds of up to a million parties, mapped from a store, in threads or in workers.

Run with ``python -m benchmarks.scale [--quick] [--largest] [--peers] [--only-peers] [--folder DIR]
[--json]``. The work: a logistic model of 100 coordinates, 20 records per party, gradient
perturbation on all records, every gradient clipped and every party rounded to the grid; whole
rounds with guard, exact noise, accounting and metrics on 1000 test records. A store is made for
every size and removed after it; the largest, a million parties, needs 9 GB of disk, and is made
with ``--largest`` alone.

Figures are medians over rounds after the first, which opens the records, in fresh processes, and
those of the first round beside them. Memory is that of all processes together, mapped pages counted
once (PSS); what is beside the mapped records is told apart. Time of all processors is printed too:
on a busy machine it says more. At a gigabyte the model of one, two and three workers, of two of
which one is killed, and of two threads must be the same to the bit.

With ``--peers``: 1000 parties of 20 records and 784 coordinates, beside Flower on Ray and
pfl-research, as in `benchmarks.rounds`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.rounds import theirs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SIZE, WIDTH, TESTED, BLOCK = 20, 100, 1000, 1 << 15
GROWTH = (100, 1000, 10_000, 100_000)
LARGEST = 1_000_000
GIGABYTE = 125_000  # parties of 20 × 100 float32
MOST_SECONDS, MOST_GIGABYTES = 6.0, 12.0  # of a round of a million parties
LEAST_SPEED_UP, MOST_BEHIND = 1.6, 1.15  # two workers against one, and against two threads
MOST_GROWTH = 1.5  # of the time for a record, from 10,000 parties on
PEERS, PEER_PARTIES, PEER_WIDTH = ("Flower Ray", "pfl-research"), 1000, 784
MOST_BEHIND_PEERS = 2.0  # ratios to peers, of `vectorized` against `sharded`
KILLED_IN = 3  # the round after which a worker is killed


def records(width: int) -> NDArray[np.float32]:
    """A block of features of norm below 1; a store repeats it."""
    X = np.random.default_rng(0).standard_normal((BLOCK, width), np.float32)
    X /= 1.0001 * np.linalg.norm(X, axis=1, keepdims=True)
    return X


def make_store(folder: Path, parties: int, width: int = WIDTH) -> None:
    """A store of so many parties, as `fedpriv data shard` writes them."""
    from fedpriv.data.store.writer import StoreWriter

    count, block = parties * SIZE, records(width)

    def rows() -> Iterator[NDArray[np.float32]]:
        for first in range(0, count, BLOCK):
            yield np.roll(block, first // BLOCK, axis=0)[: count - first]

    labels = np.random.default_rng(1).choice(np.array([-1, 1], np.float32), count)
    data = {
        "name": "synthetic",
        "partition": "iid",
        "parties": parties,
        "feature_norm": 1.0,
        "intercept": 1.0,
        "scaling": "clip",
    }
    with StoreWriter(folder) as writer:
        writer.array("train_X", np.float32, (count, width), rows())
        writer.array("train_y", np.float32, (count,), [labels])
        party = np.repeat(np.arange(parties, dtype=np.int32), SIZE)
        writer.array("train_party", np.int32, (count,), [party])
        writer.array("test_X", np.float32, (TESTED, width), [block[:TESTED]])
        writer.array("test_y", np.float32, (TESTED,), [np.resize(labels, TESTED)])
        writer.array("offsets", np.int64, (parties + 1,), [np.arange(parties + 1) * SIZE])
        writer.array("order", np.int64, (count,), [np.arange(count)])
        writer.array("sizes", np.int64, (parties,), [np.full(parties, SIZE)])
        names = [f"x{i}" for i in range(width - 1)]
        writer.finish(
            dataset={
                "name": "benchmark",
                "task": "binary",
                "feature_names": [*names, "intercept"],
                "max_norm": 1.0,
                "classes": ["no", "yes"],
                "image_shape": None,
                "schema": None,
                "preprocessing": None,
            },
            partition="iid",
            parties=parties,
            facts={
                "fedpriv": "benchmark",
                "data": data,
                "seed": 0,
                "person_parties": None,
                "describe": None,
                "headroom": 1.0,
                "in_place": True,
                "own_test": True,
            },
        )


def measure(folder: str, engine: str, workers: int, rounds: int, kill: int = 0) -> dict[str, float]:
    """Seconds of rounds, and memory, in this fresh process; a worker is killed on the way."""
    from fedpriv.federation.engines.sharded import ShardedFederation
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.history import Record
    from fedpriv.simulations.run.prepare import (
        build_federation,
        build_strategy,
        prepare,
        serving,
        train,
    )

    start = perf_counter()
    experiment = read_experiment(
        {
            "data": {"path": folder},
            "model": {"l2": 0.001},
            "strategy": {"name": "gradient-perturbation", "rounds": rounds, "clip": 0.3},
            "run": {"engine": engine, "workers": workers},
        }
    )
    prepared = prepare(experiment)
    strategy = build_strategy(prepared, run=prepared.run)
    federation = build_federation(prepared, run=prepared.run, rounds=rounds)
    record = Record(prepared=prepared, strategy=strategy)
    processes = [os.getpid()]
    if isinstance(federation, ShardedFederation):
        import ray

        processes += [ray.get(shard.ready.remote())[1] for shard in federation._shards]  # noqa: SLF001
    times, work, began = [], [0.0], perf_counter()
    opened = began - start

    def watch(query: Any, answer: Any) -> bool:
        nonlocal began
        record.add(query, answer)
        times.append(perf_counter() - began)
        if kill and len(times) == KILLED_IN:
            os.kill(processes.pop(), signal.SIGKILL)
        work.append(worked(processes))
        began = perf_counter()
        return True

    with serving(federation):
        train(strategy, federation, watch)
        memory = held(processes)
    return {
        "opening": opened,
        "first": times[0],
        "round": median(times[1:]),
        "processors": (work[-1] - work[1]) / (len(times) - 1),
        "gigabytes": memory[0],
        "beside": memory[1],
        "digest": float(int(sha256(strategy.theta.tobytes()).hexdigest()[:13], 16)),
    }


def worked(processes: list[int]) -> float:
    """Seconds of all processors that some processes have had."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def held(processes: list[int]) -> tuple[float, float]:
    """Gigabytes of memory of some processes, pages that they share counted once; and unmapped."""
    whole, own = 0, 0
    for process in processes:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        values = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
        whole += values["Pss:"]
        own += values["Pss_Anon:"]
    return whole / 1e6, own / 1e6


def fresh(
    folder: Path, engine: str, workers: int, rounds: int, *, kill: bool = False
) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", "--measure"]
    done = subprocess.run(
        [*command, str(folder), engine, str(workers), str(rounds), str(int(kill))],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--measure"]:
        folder, which, *numbers = arguments[1:]
        print(json.dumps(measure(folder, which, *map(int, numbers))))
        return 0
    quick = "--quick" in arguments
    parties = [*GROWTH[: 2 if quick else None], *([LARGEST] if "--largest" in arguments else [])]
    where = arguments[arguments.index("--folder") + 1] if "--folder" in arguments else None
    table: dict[str, Any] = {"growth": {}, "gigabyte": {}, "peers": {}, "skipped": {}}
    if only_peers := "--only-peers" in arguments:
        parties = []
    home = Path(mkdtemp(prefix="fedpriv-scale-", dir=where))
    try:
        for count in parties:
            rounds = 6 if count >= GROWTH[-1] else 20
            store = home / f"store-{count}"
            make_store(store, count)
            table["growth"][count] = {
                engine: fresh(store, engine, 2, rounds) for engine in ("vectorized", "sharded")
            }
            shutil.rmtree(store)
        if not quick and not only_peers:
            make_store(home / "gigabyte", GIGABYTE)
            for name, engine, workers in (
                ("one worker", "sharded", 1),
                ("two workers", "sharded", 2),
                ("two threads", "vectorized", 2),
                ("three workers", "sharded", 3),
                ("one of two killed", "sharded", 2),
            ):
                table["gigabyte"][name] = fresh(
                    home / "gigabyte", engine, workers, 12, kill="killed" in name
                )
            shutil.rmtree(home / "gigabyte")
        if only_peers or "--peers" in arguments:
            table["peers"], table["skipped"] = beside_peers(home / "peers", quick=quick)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    table["missed"] = misses(table)
    if "--json" in arguments:
        print(json.dumps(table, indent=2))
    else:
        report(table)
    return bool(table["missed"])


def beside_peers(store: Path, *, quick: bool) -> tuple[dict[str, float], dict[str, str]]:
    """Milliseconds of a round, ours and theirs, and who could not be measured."""
    make_store(store, PEER_PARTIES, PEER_WIDTH)
    rounds = 6 if quick else 60
    times = {
        engine: 1e3 * fresh(store, engine, 2, rounds)["round"]
        for engine in ("vectorized", "sharded")
    }
    skipped = {}
    for peer in () if quick else PEERS:
        milliseconds, reason = theirs(peer, PEER_PARTIES, SIZE)
        if milliseconds is None:
            skipped[peer] = reason
        else:
            times[peer] = milliseconds
    return times, skipped


def per_record(count: int, row: dict[str, float]) -> float:
    """Microseconds of a round for each record."""
    return 1e6 * row["round"] / (count * SIZE)


def misses(table: dict[str, Any]) -> list[str]:
    """The goals that were not met, of those that were measured."""
    found = []
    for engine, row in table["growth"].get(LARGEST, {}).items():
        if row["round"] > MOST_SECONDS or row["gigabytes"] > MOST_GIGABYTES:
            found.append(
                f"{LARGEST} parties, {engine}: {row['round']:.2f} s and {row['gigabytes']:.1f} GB, "
                f"not {MOST_SECONDS} s and {MOST_GIGABYTES} GB"
            )
    models = [{row["digest"] for row in rows.values()} for rows in table["growth"].values()]
    models.append({row["digest"] for row in table["gigabyte"].values()})
    if max(map(len, models), default=0) > 1:
        found.append("the models differ")
    for engine in ("vectorized", "sharded"):
        flat = [per_record(n, row[engine]) for n, row in table["growth"].items() if n >= GROWTH[2]]
        if flat and max(flat) > MOST_GROWTH * flat[0]:
            found.append(f"{engine}: time for a record grows from {flat[0]:.3f} to {max(flat):.3f}")
    if times := table["peers"]:
        behind = times["sharded"] / times["vectorized"]
        if behind > MOST_BEHIND_PEERS:
            found.append(
                f"beside peers 'sharded' is {behind:.2f} times 'vectorized', not "
                f"{MOST_BEHIND_PEERS}"
            )
    if rows := table["gigabyte"]:
        one, two, threads = (
            rows[name]["round"] for name in ("one worker", "two workers", "two threads")
        )
        if one / two < LEAST_SPEED_UP:
            found.append(f"two workers are {one / two:.2f} times one, not {LEAST_SPEED_UP}")
        if two / threads > MOST_BEHIND:
            found.append(
                f"two workers take {two / threads:.2f} times two threads, not {MOST_BEHIND}"
            )
    return found


def report(table: dict[str, Any]) -> None:
    rows = [
        (f"{count} parties, {e}", count, row)
        for count, r in table["growth"].items()
        for e, row in r.items()
    ]
    rows += [(f"1 GB, {name}", GIGABYTE, row) for name, row in table["gigabyte"].items()]
    for name, count, row in rows:
        print(
            f"{name:>28}: {1e3 * row['round']:9.1f} ms per round, "
            f"{per_record(count, row):.3f} us per record, of processors "
            f"{1e3 * row['processors']:9.1f}, first {row['first']:7.2f} s, "
            f"opened in {row['opening']:6.1f} s, {row['gigabytes']:5.2f} GB, "
            f"{row['beside']:.2f} unmapped"
        )
    for whom, milliseconds in table["peers"].items():
        print(f"{whom:>28}: {milliseconds:9.1f} ms per round of {PEER_PARTIES} parties", end="")
        ratios = [milliseconds / table["peers"][engine] for engine in ("vectorized", "sharded")]
        print(f", {ratios[0]:.3g} times vectorized, {ratios[1]:.3g} times sharded")
    for peer, reason in table["skipped"].items():
        print(f"skipped {peer}: {reason}")
    for line in table["missed"]:
        print(f"missed: {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
