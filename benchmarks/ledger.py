"""The ledger against bare SQLite inserts, and its cost as it grows.

Run with ``python -m benchmarks.ledger [--json] [--directory DIR]``. Durable writes are dominated by
fsync, whose time wanders with whatever else the disk does: bare inserts and the ledger's
transactions take turns, so that both meet the same disk, and the median of several repeats counts.
The cost at growing sizes is measured without fsync, which would hide it.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.budget import Budget
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedpriv.privacy.ledger import Reservation

ROUNDS = 1000
REPEATS = 5
SIZES = (1_000, 10_000, 100_000)
LIMIT = 2.0
RELEASE = bytes(256)
EVENT = GaussianEvent(relative_noise=1e6, adjacency="add-remove")  # type: ignore[arg-type]


def fresh_ledger(directory: Path) -> Ledger:
    return Ledger.create(
        directory / "benchmark.ledger",
        data_name="benchmark",
        budget=Budget(epsilon=1.0, delta=1e-6),
        adjacency="add-remove",
    )


def reserve(ledger: Ledger, number: int) -> Reservation:
    return ledger.reserve(EVENT, run=f"run {number % 50}", round=number)


def bare_insert(directory: Path) -> Callable[[], None]:
    """One durable insert of about as many bytes, with the same settings, and nothing else."""
    connection = sqlite3.connect(directory / "bare.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, payload BLOB)")
    payload = bytes(512)

    def insert() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows (payload) VALUES (?)", (payload,))
        connection.execute("COMMIT")

    return insert


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    result = call()
    return perf_counter() - start, result


def durable_times(root: Path) -> dict[str, list[float]]:
    """Seconds of every bare insert, reserve and commit, taken in turns."""
    times: dict[str, list[float]] = {"bare insert": [], "reserve": [], "commit": []}
    with tempfile.TemporaryDirectory(dir=root) as name, fresh_ledger(Path(name)) as ledger:
        insert = bare_insert(Path(name))
        for number in range(ROUNDS):
            times["bare insert"].append(timed(insert)[0])
            seconds, reservation = timed(partial(reserve, ledger, number))
            times["reserve"].append(seconds)
            times["commit"].append(timed(partial(ledger.commit, reservation, RELEASE))[0])
    return times


def compare_with_bare(root: Path) -> list[dict[str, Any]]:
    """p50 and p99 in milliseconds and as multiples of the bare; medians over the repeats."""
    repeats = [durable_times(root) for _ in range(REPEATS)]
    rows = []
    for name in repeats[0]:
        row: dict[str, Any] = {"operation": name}
        for percent in (50, 99):
            own = [np.percentile(times[name], percent) for times in repeats]
            bare = [np.percentile(times["bare insert"], percent) for times in repeats]
            row[f"p{percent}_milliseconds"] = 1e3 * float(np.median(own))
            row[f"p{percent}_times_bare"] = float(np.median(np.divide(own, bare)))
        rows.append(row)
    return rows


def growth(root: Path) -> list[dict[str, Any]]:
    """Median cost of a reserve without fsync when the ledger has so many rows, and of a look."""
    rows = []
    with tempfile.TemporaryDirectory(dir=root) as name, fresh_ledger(Path(name)) as ledger:
        ledger._store._connection.execute("PRAGMA synchronous = OFF")  # noqa: SLF001
        made = 0
        for size in SIZES:
            times = []
            while made < size + ROUNDS // 2:
                times.append(timed(partial(reserve, ledger, made))[0])
                made += 1
            rows.append(
                {
                    "rows": size,
                    "reserve_microseconds": 1e6 * float(np.median(times[-ROUNDS:])),
                    "left_microseconds": 1e6 * timed(ledger.left)[0],
                    "runs_milliseconds": 1e3 * timed(ledger.runs)[0],
                    "verify_seconds": timed(ledger.verify)[0],
                }
            )
    return rows


def run(root: Path) -> dict[str, Any]:
    """Everything that is measured."""
    return {"durable": compare_with_bare(root), "growth": growth(root)}


def missed_goals(result: dict[str, Any]) -> list[str]:
    missed = [
        f"{row['operation']} takes {row[key]:.2f} × a bare insert ({key[:3]})"
        for row in result["durable"]
        for key in ("p50_times_bare", "p99_times_bare")
        if row[key] > LIMIT
    ]
    costs = [row["reserve_microseconds"] for row in result["growth"]]
    if max(costs) > LIMIT * costs[0]:
        missed.append(f"a reserve costs {max(costs) / costs[0]:.2f} × as much in a large ledger")
    return missed


def main() -> None:
    """Print two tables, or JSON with ``--json``; exit 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk to measure")
    arguments = parser.parse_args()
    result = run(arguments.directory)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print(
            f"{'operation':<12} {'p50 ms':>8} {'p99 ms':>8} {'× bare p50':>11} {'× bare p99':>11}"
        )
        for row in result["durable"]:
            print(
                f"{row['operation']:<12} {row['p50_milliseconds']:>8.3f} "
                f"{row['p99_milliseconds']:>8.3f} {row['p50_times_bare']:>11.2f} "
                f"{row['p99_times_bare']:>11.2f}"
            )
        print(f"{'rows':>8} {'reserve µs':>11} {'left µs':>8} {'runs ms':>8} {'verify s':>9}")
        for row in result["growth"]:
            print(
                f"{row['rows']:>8,} {row['reserve_microseconds']:>11.0f} "
                f"{row['left_microseconds']:>8.0f} {row['runs_milliseconds']:>8.1f} "
                f"{row['verify_seconds']:>9.2f}"
            )
        print(f"goals: at most {LIMIT:g} × a bare insert; flat within {LIMIT:g} × as it grows")
    if missed := missed_goals(result):
        sys.exit("goals missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
