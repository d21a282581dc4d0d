"""Processes that spend are killed at random moments, and race: the ledger keeps its promises.

Hundreds of kills here; ``FEDPRIV_LEDGER_KILLS=5000`` makes it thousands.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

KILLS = int(os.environ.get("FEDPRIV_LEDGER_KILLS", "300"))
ROOT = Path(__file__).parents[3]
MEMORY = Path("/dev/shm")  # noqa: S108 (its owner is a test)


def worker(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.privacy.ledger.ledger_worker", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + KILLS,
    )


def found_by(*arguments: object) -> Any:
    done = worker(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_no_kill_makes_a_ledger_forget_overspend_or_break(tmp_path: Path, place: str) -> None:
    """On a disk most kills hit an fsync; in memory they hit everything else."""
    if place == "memory" and not MEMORY.is_dir():
        pytest.skip("there is no file system in memory")
    with tempfile.TemporaryDirectory(dir=tmp_path if place == "disk" else MEMORY) as directory:
        found = found_by("kill", directory, KILLS // 2, 1 if place == "disk" else 2, "real")
    assert found["kills"] >= KILLS // 2
    assert found["exhausted"] > 0
    assert 0 < found["published"] <= found["reserved"]


@pytest.mark.parametrize(
    ("build", "promise"),
    [
        ("forgetful", "but published"),
        ("hasty", "was published first"),
        ("redrawing", "two draws were seen|was published first"),
        ("unchecked", "overspent"),
    ],
)
def test_the_checks_find_a_ledger_that_breaks_its_promise(
    tmp_path: Path, build: str, promise: str
) -> None:
    done = worker("kill", tmp_path, 200, 3, build)
    assert done.returncode != 0
    assert re.search(f"AssertionError: .*({promise})", done.stderr), done.stderr


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return found_by("race", tmp_path_factory.mktemp("race"), 6)


def test_exactly_the_affordable_number_succeeds_when_processes_race(raced: Any) -> None:
    assert raced["granted"] == raced["affordable"]
    assert raced["left"] < 1e-9


def test_processes_that_race_for_one_round_all_get_one_release(raced: Any) -> None:
    assert raced["shared_readers"] == 6
    assert raced["shared_releases"] == 1
