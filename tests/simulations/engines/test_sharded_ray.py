"""Real workers of Ray: the bits of one process, also if one is killed, and on two nodes.

One start of Ray in the normal suite; ``FEDPRIV_STRESS=1`` has all strategies, numbers of workers,
kills, and a cluster of two nodes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv._toml import to_toml
from tests.simulations.engines.rays import ROOT, needs_ray
from tests.simulations.engines.shards import CASES, study, trained

STRESS = "FEDPRIV_STRESS" in os.environ
stress = pytest.mark.skipif(not STRESS, reason="takes minutes: FEDPRIV_STRESS=1")
pytestmark = needs_ray


def on_workers(*arguments: str) -> dict[str, Any]:
    """What `tests.simulations.engines.on_workers` prints; every process that it started is gone."""
    mark = f"sharded-{os.getpid()}-{time.time_ns()}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulations.engines.on_workers", *arguments],
        cwd=ROOT,
        env={**os.environ, "FEDPRIV_MARK": mark},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert_gone(mark)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def left(mark: str) -> list[str]:
    """The processes whose environment has the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FEDPRIV_MARK={mark}\0".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def assert_gone(mark: str) -> None:
    deadline = time.monotonic() + 30
    while left(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left(mark) == []


def test_two_workers_of_which_one_is_killed_have_the_bits_of_one_process() -> None:
    assert on_workers("--kill", "2", "full batch") == {
        "full batch 2": {"equal": True, "nodes": 1, "lost": 1}
    }


@stress
def test_all_strategies_on_one_two_and_three_workers() -> None:
    results = on_workers("1,2,3", *CASES)
    assert len(results) == 3 * len(CASES)
    assert all(result["equal"] for result in results.values()), results


@stress
def test_all_strategies_after_a_kill() -> None:
    results = on_workers("--kill", "2", *CASES)
    assert all(result["equal"] and result["lost"] for result in results.values()), results


@stress
def test_queries_too_large_to_go_with_a_call_have_the_same_answers() -> None:
    results = on_workers("--kill", "--large", "2", "full batch", "scaffold")
    assert all(result["equal"] and result["lost"] for result in results.values()), results


@stress
@pytest.mark.parametrize("large", [(), ("--large",)], ids=["small", "large"])
def test_two_nodes_of_a_cluster(large: tuple[str, ...]) -> None:
    results = on_workers("--two-nodes", *large, "1,3", *CASES)
    assert all(result["equal"] for result in results.values()), results
    assert {result["nodes"] for name, result in results.items() if name.endswith("3")} == {2}


@stress
def test_ctrl_c_ends_after_a_round_and_the_run_is_taken_up_to_the_bit(tmp_path: Path) -> None:
    """Of the whole process group, as a terminal sends it: workers are deaf to it."""
    tables = study("full batch", engine="sharded", workers=2, checkpoint_seconds=0.0)
    tables["strategy"]["rounds"] = 3000
    (tmp_path / "study.toml").write_text(to_toml(tables))
    program, mark = Path(sys.executable).parent / "fedpriv", f"stop-{time.time_ns()}"
    environment = {**os.environ, "FEDPRIV_MARK": mark}
    running = subprocess.Popen(
        [program, "run", tmp_path / "study.toml", "--out", tmp_path / "run"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    checkpoint = tmp_path / "run" / "private" / "checkpoint.npz"
    deadline = time.monotonic() + 300
    while not checkpoint.exists() and time.monotonic() < deadline:
        assert running.poll() is None, running.communicate()[1]
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate(timeout=120)[1]
    assert running.returncode == 130, said
    assert "Continue with: fedpriv run --resume" in said
    assert_gone(mark)
    assert not (tmp_path / "run" / "result.json").exists()
    subprocess.run([program, "run", "--resume", tmp_path / "run"], env=environment, check=True)
    assert_gone(mark)
    expected = trained({**tables, "run": {"engine": "vectorized"}})
    np.testing.assert_array_equal(np.load(tmp_path / "run" / "model.npz")["theta"], expected)
