"""Integer noise against numpy's floating-point normals and OpenDP's exact discrete Gaussian.

Run with ``python -m benchmarks.samplers [--json]``. OpenDP lives in a virtual environment of its
own, ``.venv-bench``, made on first use. Times are the best of several, set-up for a new scale
included: a dynamic noise schedule pays it every round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.privacy.randomness import RandomStream
from fedpriv.privacy.samplers import (
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
    RoundedLaplace,
    Skellam,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DRAWS = 1_000_000
STDDEVS = (1.0, 1e3, 1e6, 1e9)
NUMPY_LIMIT = 3.0
OPENDP_FACTOR = 200.0
PEER_VENV = Path(__file__).parent.parent / ".venv-bench"
PEER_PACKAGE = "opendp==0.16.0"
PEER_DRAWS = 20_000
PEER_CODE = """
import json, sys, time
import opendp.prelude as dp

dp.enable_features("contrib")
stddev, draws = float(sys.argv[1]), int(sys.argv[2])
domain = dp.vector_domain(dp.atom_domain(T=int))
gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=stddev)
zeros, best = [0] * draws, float("inf")
for _ in range(3):
    start = time.perf_counter()
    gaussian(zeros)
    best = min(best, time.perf_counter() - start)
print(json.dumps(best / draws))
"""


def best_time(call: Callable[[], object], repeats: int = 15) -> float:
    """The shortest of several runs, in seconds: the one the rest of the machine disturbed least."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def opendp_seconds_per_draw(stddev: float) -> float:
    """One discrete Gaussian draw by OpenDP, in its own virtual environment."""
    python = PEER_VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER_VENV)], check=True)
    probe = subprocess.run([python, "-c", "import opendp"], capture_output=True, check=False)
    if probe.returncode:
        subprocess.run(
            [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                PEER_PACKAGE,
            ],
            check=True,
        )
    done = subprocess.run(
        [python, "-c", PEER_CODE, str(stddev), str(PEER_DRAWS)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(json.loads(done.stdout))


def run() -> dict[str, Any]:
    """Times of a million draws, as JSON-ready values."""
    generator = np.random.default_rng(0)
    stream = RandomStream.from_os()
    normal = best_time(lambda: generator.standard_normal(DRAWS))
    samplers: dict[str, Callable[[float], object]] = {
        "discrete Gaussian": lambda s: DiscreteGaussian(stddev=s).draw(DRAWS, stream),
        "Skellam": lambda s: Skellam(variance=s * s).draw(DRAWS, stream),
        "rounded Gaussian": lambda s: RoundedGaussian(stddev=s).draw(DRAWS, stream),
        "discrete Laplace": lambda s: DiscreteLaplace(scale=s).draw(DRAWS, stream),
        "rounded Laplace": lambda s: RoundedLaplace(scale=s).draw(DRAWS, stream),
    }
    rows = []
    for name, draw in samplers.items():
        for stddev in STDDEVS:
            seconds = best_time(lambda draw=draw, stddev=stddev: draw(stddev))  # type: ignore[misc]
            row = {"sampler": name, "scale": stddev, "milliseconds": 1e3 * seconds}
            row["times_numpy"] = seconds / normal
            if name == "discrete Gaussian":
                row["faster_than_opendp"] = opendp_seconds_per_draw(stddev) * DRAWS / seconds
            rows.append(row)
    return {"draws": DRAWS, "numpy_milliseconds": 1e3 * normal, "rows": rows}


def main() -> None:
    """Print the table, or JSON with ``--json``; exit 1 if a sampler misses its goal."""
    result = run()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result, indent=2))
    else:
        print(f"{DRAWS:,} draws; numpy standard_normal: {result['numpy_milliseconds']:.1f} ms")
        print(f"{'sampler':<18} {'scale':>7} {'ms':>7} {'× numpy':>8} {'OpenDP ÷ ours':>14}")
        for row in result["rows"]:
            peer = f"{row['faster_than_opendp']:.0f}" if "faster_than_opendp" in row else ""
            print(
                f"{row['sampler']:<18} {row['scale']:>7g} {row['milliseconds']:>7.1f} "
                f"{row['times_numpy']:>8.2f} {peer:>14}"
            )
        print(
            f"goals: at most {NUMPY_LIMIT:g} × numpy, at least {OPENDP_FACTOR:g} × OpenDP's speed"
        )
    missed = [
        row
        for row in result["rows"]
        if row["times_numpy"] > NUMPY_LIMIT
        or row.get("faster_than_opendp", OPENDP_FACTOR) < OPENDP_FACTOR
    ]
    if missed:
        names = ", ".join(f"{row['sampler']} at {row['scale']:g}" for row in missed)
        sys.exit(f"goals missed by {names}")


if __name__ == "__main__":
    main()
