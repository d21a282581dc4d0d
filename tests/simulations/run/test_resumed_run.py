"""A run that was stopped, killed or finished: resumed to the bit, or left as it is."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.prepare import prepare
from fedpriv.simulations.run.session import carry_on, reopen, start
from tests.simulations.run.short_study import theta, write_table


@pytest.mark.parametrize("strategy", ["gradient-perturbation", "objective-perturbation"])
@pytest.mark.parametrize("rounds", [1, 2, 7, 11])
def test_a_run_stopped_after_any_round_ends_in_the_same_model(
    short_file: Path, tmp_path: Path, rounds: int, strategy: str
) -> None:
    overrides = [f"strategy.name={strategy}", "run.checkpoint_seconds=0"]
    prepared = prepare(read_experiment(short_file, overrides))
    whole = start(prepared, tmp_path / "whole")
    uninterrupted = carry_on(whole)
    parts = start(prepared, tmp_path / "parts")
    count = iter(range(1, 1000))
    assert carry_on(parts, stop=lambda: next(count) == rounds) is None
    resumed = carry_on(reopen(tmp_path / "parts"))
    assert uninterrupted is not None
    assert resumed is not None
    assert {**resumed, "seconds": 0} == {**uninterrupted, "seconds": 0}
    np.testing.assert_array_equal(theta(tmp_path / "whole"), theta(tmp_path / "parts"))
    timeless = [
        [
            {**row, "seconds": 0}
            for row in json.loads((tmp_path / name / "metrics.json").read_text())
        ]
        for name in ("whole", "parts")
    ]
    assert timeless[0] == timeless[1]


def started(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from fedpriv.simulations.cli import main; main()",
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    for _ in range(6000):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.01)


LONG = ("--set", "strategy.rounds=800", "--set", "run.checkpoint_seconds=0.01")


def test_a_killed_run_is_resumed_to_the_bit(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    process = started("run", short_file, "--out", killed, *LONG)
    wait_for(killed / "private" / "checkpoint.npz", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "result.json").exists()
    resumed = fedpriv("run", "--resume", killed, "--json").json()
    whole = fedpriv("run", short_file, "--out", tmp_path / "whole", *LONG, "--json").json()
    np.testing.assert_array_equal(theta(killed), theta(tmp_path / "whole"))
    assert resumed["accuracy"] == whole["accuracy"]
    assert resumed["rounds"] == whole["rounds"] == 800


@pytest.mark.deep
def test_ctrl_c_leaves_a_run_that_can_be_resumed(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started("run", short_file, "--out", out, *LONG)
    wait_for(out / "private" / "checkpoint.npz", process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert f"fedpriv run --resume {out}" in error
    assert "Traceback" not in error
    assert fedpriv("run", "--resume", out, "--json").json()["rounds"] == 800


def test_a_finished_run_is_not_run_again(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    first = fedpriv("run", short_file, "--out", tmp_path / "out", "--json").json()
    before = (tmp_path / "out" / "model.npz").stat().st_mtime_ns
    assert fedpriv("run", "--resume", tmp_path / "out", "--json").json() == first
    assert fedpriv("run", short_file, "--resume", tmp_path / "out", "--json").json() == first
    unnamed = fedpriv("run", "--set", "privacy.epsilon=9", "--resume", tmp_path / "out")
    assert "a resumed run continues with the experiment that it began with" in unnamed.message
    other = fedpriv("run", short_file, "--set", "run.seed=9", "--resume", tmp_path / "out")
    assert (other.code, "another experiment" in other.message) == (2, True)
    assert (tmp_path / "out" / "model.npz").stat().st_mtime_ns == before


def test_what_changed_since_a_run_started_is_noticed(short_file: Path, tmp_path: Path) -> None:
    table, schema = tmp_path / "own.csv", tmp_path / "own.schema.toml"
    write_table(table, schema)
    text = short_file.read_text().replace(
        'name = "synthetic"', f'path = "{table}"\nschema = "{schema}"'
    )
    short_file.write_text(text)
    start(prepare(read_experiment(short_file)), tmp_path / "out")
    reopen(tmp_path / "out")
    table.write_text(table.read_text().replace("yes", "no", 1))
    with pytest.raises(ValueError, match="were changed since the run"):
        reopen(tmp_path / "out")
    config = tmp_path / "out" / "config.toml"
    config.write_text(config.read_text().replace("epsilon = 1.0", "epsilon = 2.0"))
    with pytest.raises(ValueError, match="was changed since the run started"):
        reopen(tmp_path / "out")
    with pytest.raises(ValueError, match="no run was started there"):
        reopen(tmp_path / "nothing")
