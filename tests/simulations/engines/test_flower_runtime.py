"""Flower's own runtime: the app bundle, a run to the same files and model, and its stop."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from fedpriv._toml import to_toml
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.session import carry_on, start
from tests.simulations.engines.experiments import GRADIENT, experiment
from tests.simulations.engines.planting import plant, ran
from tests.simulations.engines.rays import needs_ray, on_ray

ROOT = Path(__file__).parents[3]


def test_the_app_bundle_is_a_reference_without_code_or_data(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("fedpriv", "strategies", "simulations", "tests", "docs"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    (tree / "records.csv").write_text("a,b\n1,2\n")
    subprocess.run(
        [Path(sys.executable).parent / "flwr", "build", "--app", tree],
        cwd=tmp_path,
        env={**os.environ, "FLWR_HOME": str(tmp_path / "home"), "FLWR_DISABLE_UPDATE_CHECK": "1"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    (bundle,) = tmp_path.glob("*.fab")
    names = set(zipfile.ZipFile(bundle).namelist())
    assert "pyproject.toml" in names
    assert not [name for name in names if name.endswith((".py", ".csv"))]


@needs_ray
def test_flowers_simulation_runtime_ends_in_the_same_files_and_model(tmp_path: Path) -> None:
    study = experiment({**GRADIENT, "rounds": 3}, parties=3, secure_aggregation=None)
    file = tmp_path / "study.toml"
    file.write_text(to_toml(study.to_dict()))
    here = tmp_path / "here"
    planted = plant(here)  # Ray would import from where it is started
    process = on_ray(file, tmp_path / "out", folder=here)
    output, errors = process.communicate(timeout=180)
    assert ran(planted) == ""
    assert process.returncode == 0, errors
    assert "round 3 of 3" in errors
    assert "3 parties" in output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["engine"], result["secure_aggregation"]) == ("ray", "semi-honest")
    plain = start(prepare(read_experiment(file)), tmp_path / "plain")
    carry_on(plain)
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {path.name for path in (tmp_path / "plain").iterdir()}
    models = [np.load(tmp_path / name / "model.npz")["theta"] for name in ("out", "plain")]
    assert np.abs(models[0] - models[1]).max() <= 1e-5
    plans = [(tmp_path / name / "plan.json").read_text() for name in ("out", "plain")]
    assert plans[0] == plans[1]


@needs_ray
def test_a_stop_ends_all_processes_of_flower(tmp_path: Path) -> None:
    file, mark = tmp_path / "study.toml", f"mark-{os.getpid()}-{time.time_ns()}"
    file.write_text(to_toml(experiment({**GRADIENT, "rounds": 10_000}).to_dict()))
    process = on_ray(file, tmp_path / "out", mark=mark)
    deadline = time.monotonic() + 90
    # This process, the SuperLink, `flwr run`, and what the SuperLink starts in sessions of its own.
    while len(_marked(mark)) < 4 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    running = _marked(mark)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "--resume" in errors
    assert len(running) >= 4
    assert not _marked(mark)


def _marked(mark: str) -> list[str]:
    """The processes that were started with this mark in their environment."""
    processes = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in environment.read_bytes():
                processes.append(environment.parent.name)
    return processes
