"""Errors of federated statistics: `describe` of three parties against central mechanisms.

Run with ``python -m benchmarks.statistics_errors [--quick] [--json]``. Counts of a category, a mean
and the quartiles of 10,000 records, each with the whole budget of (1, 10⁻⁶) under replace-one
adjacency: from released numbers of `fedpriv.describe`; from textbook mechanisms that have all
records in one place (Gaussian noise, calibrated exactly; for quartiles a tree of counts, made
consistent by least squares); and from OpenDP. Root mean squared errors over many releases, and ours
as a multiple of each. The goal is the textbook's, and OpenDP's where it adds noise to a sum: a
noisy maximum over candidates needs all records in one place, and is printed for comparison.
"""

from __future__ import annotations

import json
import sys
import tempfile
from math import exp, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from benchmarks import rounds as plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORDS, REPEATS, LIMIT, BINS = 10_000, 400, 1.10, 128
BOUNDS = (0.0, 120.0)
QUANTILES = (0.25, 0.5, 0.75)
EPSILON, DELTA = 1.0, 1e-6
SCHEMA = """\
label = "smoker"
positive = "yes"
party = "clinic"
[columns]
clinic = { kind = "category", values = ["a", "b", "c"] }
age = { kind = "number", min = 0, max = 120 }
smoker = { kind = "category", values = ["no", "yes"] }
"""
STATISTICS: dict[str, dict[str, Any]] = {
    "counts": {"columns": ["smoker"]},
    "mean": {"columns": ["age"], "quantiles": []},
    "ranks": {"columns": ["age"], "moments": False, "quantiles": list(QUANTILES), "bins": BINS},
}


def records() -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Ages to a tenth of a year, and who smokes."""
    rng = np.random.default_rng(0)
    ages = rng.normal(55, 14, RECORDS).clip(18, 99).round(1)
    return ages, rng.random(RECORDS) < 0.25


def rank_errors(told: Any, ages: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many records too far a value for each quantile is."""
    ranks = np.interp(told, np.sort(ages), np.arange(RECORDS))
    errors: NDArray[np.float64] = ranks - np.array(QUANTILES) * RECORDS
    return errors


def ours(folder: Path, ages: Any, smokes: Any, repeats: int) -> dict[str, float]:
    """From what `fedpriv.describe` tells, a seed at a time."""
    import fedpriv

    clinics = np.random.default_rng(1).choice(["a", "b", "c"], RECORDS)
    rows = zip(clinics, ages, np.where(smokes, "yes", "no"), strict=True)
    lines = ["clinic,age,smoker", *(",".join(map(str, row)) for row in rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    study = {
        "data": {"path": str(folder / "table.csv"), "schema": str(folder / "schema.toml")},
        "privacy": {"epsilon": EPSILON, "delta": DELTA, "adjacency": "replace-one"},
    }
    errors: dict[str, list[Any]] = {name: [] for name in STATISTICS}
    for seed in range(repeats):
        for name, wanted in STATISTICS.items():
            columns = fedpriv.describe({**study, "describe": wanted}, run={"seed": seed}).columns
            if name == "counts":
                truth = [(~smokes).sum(), smokes.sum()]
                errors[name].append(np.array(columns["smoker"]["noisy"][:2]) - truth)
            elif name == "mean":
                errors[name].append(columns["age"]["mean"] - ages.mean())
            else:
                told = [each["value"] for each in columns["age"]["quantiles"]]
                errors[name].append(rank_errors(told, ages))
    return {name: rms(found) for name, found in errors.items()}


def textbook(ages: Any, smokes: Any, repeats: int) -> dict[str, float]:
    """The Gaussian mechanism with all records in one place, by nobody's library."""
    mu = float(brentq(lambda mu: _delta(mu) - DELTA, 1e-3, 5.0))
    rng = np.random.default_rng(2)
    low, high = BOUNDS
    truth = np.array([(~smokes).sum(), smokes.sum()])
    levels = int(np.log2(BINS))
    nodes = np.concatenate(
        [np.kron(np.eye(1 << k), np.ones(BINS >> k)) for k in range(1, levels + 1)]
    )
    histogram = np.histogram(ages, BINS, BOUNDS)[0]
    # Leaves that add up to the public number of records, and are nearest to the noisy nodes.
    system = np.block([[nodes.T @ nodes, np.ones((BINS, 1))], [np.ones((1, BINS)), 0.0]])
    edges = np.linspace(low, high, BINS + 1)
    errors: dict[str, list[Any]] = {name: [] for name in STATISTICS}
    for _ in range(repeats):
        errors["counts"].append(rng.normal(truth, sqrt(2) / mu) - truth)
        errors["mean"].append(rng.normal(0, (high - low) / (mu * RECORDS)))
        noisy = rng.normal(nodes @ histogram, sqrt(2 * levels) / mu)
        leaves = np.linalg.solve(system, np.append(nodes.T @ noisy, RECORDS))[:BINS]
        below = np.maximum.accumulate(np.append(0.0, leaves.cumsum())).clip(0, RECORDS)
        told = np.interp(np.array(QUANTILES) * RECORDS, below, edges)
        errors["ranks"].append(rank_errors(told, ages))
    return {name: rms(found) for name, found in errors.items()}


def _delta(mu: float) -> float:
    """δ of a μ-GDP mechanism at ε (Dong, Roth and Su, 2022, Corollary 2.13)."""
    return float(ndtr(-EPSILON / mu + mu / 2) - exp(EPSILON) * ndtr(-EPSILON / mu - mu / 2))


def rms(errors: list[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def opendp(folder: Path, ages: Any, smokes: Any, repeats: int) -> dict[str, float]:
    """The same from OpenDP, in its own environment."""
    path = folder / "table.npz"
    np.savez(path, values=ages, flags=smokes)
    script = plain.ROOT / "benchmarks" / "peers" / "opendp_statistics.py"
    settings = {
        "bounds": BOUNDS,
        "quantiles": QUANTILES,
        "epsilon": EPSILON,
        "delta": DELTA,
        "repeats": repeats,
    }
    return plain.run_json([plain.peer_python("OpenDP"), script, str(path), json.dumps(settings)])


def main(arguments: list[str]) -> int:
    repeats = 20 if "--quick" in arguments else REPEATS
    ages, smokes = records()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = {
            "fedpriv": ours(folder, ages, smokes, repeats),
            "textbook": textbook(ages, smokes, repeats),
        }
        try:
            table["OpenDP"] = opendp(folder, ages, smokes, repeats)
        except RuntimeError as reason:
            print(f"skipped OpenDP: {reason}", file=sys.stderr)
    # A root mean square of so many errors is itself off by 1/√(2 repeats), on both sides.
    slack = 1 + 3 / sqrt(repeats)
    missed = [
        f"{name} against {peer}"
        for peer, row in table.items()
        for name, error in row.items()
        if (peer, name) != ("OpenDP", "ranks") and table["fedpriv"][name] > LIMIT * slack * error
    ]
    if "--json" in arguments:
        print(json.dumps({"errors": table, "limit": LIMIT, "missed": missed}, indent=2))
    else:
        for name in STATISTICS:
            own = table["fedpriv"][name]
            others = ", ".join(
                f"{peer} {row[name]:.4g} ({own / row[name]:.2f})"
                for peer, row in table.items()
                if peer != "fedpriv"
            )
            print(f"{name:7} fedpriv {own:.4g}; ours as a multiple of: {others}")
        for line in missed:
            print(f"missed: {line}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
