"""`fedpriv compare`: the same numbers whoever computes them, and a report that holds them."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedpriv.simulations.compare.cells import cells, check_cell, collect, run_cell
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from tests.simulations.engines.planting import plant, ran

EXPERIMENT = """
[data]
name = "synthetic"

[model]
l2 = 0.01

[strategy]
name = "gradient-perturbation"
rounds = 5
clip = 1.0

[privacy]
delta = 1e-6

[compare]
strategies = [
    "gradient-perturbation",
    "output-perturbation",
    { name = "output-perturbation", weights = "equal", label = "equal" },
]
epsilons = [0.5, 2]
seeds = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_every_combination_is_one_cell_and_the_frame_is_always_there(file: Path) -> None:
    todo = cells(read_experiment(file, ["compare.parties=[5, 10]"]))
    settings = {
        (c.experiment.strategy.title, c.experiment.privacy.epsilon, c.experiment.data.parties)
        for c in todo
    }
    noisy = {label for label, _, _ in settings} - {"non-private", "party-alone"}
    assert noisy == {"gradient-perturbation", "output-perturbation", "equal"}
    assert len(settings) == 3 * 2 * 2 + 2 * 2  # without noise, ε does not matter
    assert len(todo) == 2 * len(settings)
    assert len({c.key for c in todo}) == len(todo)


def test_seeds_count_from_that_of_the_run(file: Path) -> None:
    todo = cells(read_experiment(file, ["run.seed=7", "compare.seeds=3"]))
    assert {c.experiment.run.seed for c in todo} == {7, 8, 9}


def test_settings_of_one_strategy_need_labels(file: Path) -> None:
    study = read_experiment(file, ['compare.strategies=["pathak", "pathak"]'])
    with pytest.raises(ValueError, match="give each entry a label"):
        cells(study)


def test_without_a_regulariser_there_is_no_frame_and_gradients_still_run(file: Path) -> None:
    only = ['compare.strategies=["gradient-perturbation"]', "model.l2=0"]
    assert len(cells(read_experiment(file, only))) == 4


def test_a_network_has_no_convex_frame(file: Path) -> None:
    study = read_experiment(
        file,
        [
            'compare.strategies=["gradient-perturbation"]',
            "model.name=mlp",
            "strategy.learning_rate=0.1",
        ],
    )
    assert {c.experiment.strategy.name for c in cells(study)} == {"gradient-perturbation"}
    accuracies = {run_cell(cell)["accuracy"] for cell in cells(study)[:2]}
    assert len(accuracies) == 2  # another seed: another first model, and other noise


def test_a_cell_is_the_run_that_it_describes(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    cell = next(c for c in cells(read_experiment(file)) if c.experiment.run.seed == 1)
    ours = run_cell(cell)
    theirs = fedpriv(
        "run", file, "--set", f"strategy.name={cell.experiment.strategy.name}", "--set",
        "run.seed=1", "--set", "privacy.epsilon=0.5", "--out", tmp_path / "out", "--json",
    ).json()  # fmt: skip
    del theirs["directory"]
    assert timeless([theirs]) == timeless([ours])


def test_numbers_depend_neither_on_workers_nor_on_an_interruption(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    longer = ("--set", "strategy.rounds=100")
    whole = fedpriv(
        "compare", file, *longer, "--workers", 1, "--out", tmp_path / "one", "--json"
    ).json()
    out = tmp_path / "two"
    process = subprocess.Popen(
        [sys.executable, "-c", "from fedpriv.simulations.cli import main; main()", "compare", file,
         *longer, "--out", out, "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    for _ in range(12000):
        if list(out.glob("cells/*.json")) or process.poll() is not None:
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to the workers as well
    _, error = process.communicate()
    assert process.returncode == 130
    assert f"fedpriv compare --resume {out}" in error
    assert "Traceback" not in error
    kept = {path: path.stat().st_mtime_ns for path in out.glob("cells/*.json")}
    assert 0 < len(kept) < 16
    resumed = fedpriv("compare", "--resume", out, "--workers", 1, "--json").json()
    assert timeless(resumed) == timeless(whole)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(list(out.glob("cells/*.json"))) == 16
    check_rows(whole)
    check_report(fedpriv("compare", "--resume", out).out, resumed)


def check_rows(printed: list[dict[str, Any]]) -> None:
    rows = {(row["label"], row["epsilon_budget"]): row for row in printed}
    assert len(rows) == len(printed) == 8
    exact = rows["non-private", None]
    assert exact["confidence_interval"] == [exact["mean"]] * 2
    noisy = rows["output-perturbation", 0.5]
    assert noisy["seeds"] == [0, 1]
    assert noisy["mean"] == pytest.approx(sum(noisy["values"]) / 2)
    assert noisy["delta"] == 1e-6
    assert noisy["noise_stddev"] > rows["output-perturbation", 2.0]["noise_stddev"]
    assert rows["gradient-perturbation", 0.5]["clip_fraction"] == 0
    assert rows["gradient-perturbation", 0.5]["bytes"] == 100 * 11 * 4


def check_report(shown: str, rows: list[dict[str, Any]]) -> None:
    assert "at equal (ε, δ = 1e-06), one record, replace-one" in shown
    assert "Findings" in shown
    report = Path(shown.split("report: ")[1].strip())
    text = report.read_text()
    assert text.startswith("# study\n\nSIMULATED")
    assert "| ε | strategy | accuracy % |" in text
    assert json.loads((report.parent / "rows.json").read_text()) == rows
    with (report.parent / "rows.csv").open() as lines:
        table = list(csv.DictReader(lines))
    assert [float(row["mean"]) for row in table] == [row["mean"] for row in rows]
    for suffix in (".png", ".svg"):
        assert (report.parent / f"accuracy-20-parties{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.l2=0"], "regulariser must be positive"),
        (["compare.epsilons=[0]"], "compare.epsilons.0 must be greater than 0"),
        (['compare.strategies=["patak"]'], "Did you mean 'pathak'?"),
        (['compare.strategies=[{name="pathak", wieghts="equal"}]'], "wieghts is not a known key"),
        (["compare.parties=[5, 500]"], "data.parties must be at most 20"),
        (["tuning.on=digits", 'tuning.grid={"strategy.rounds"=[1]}'], "tuning.grid is for"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_runs(
    file: Path, overrides: list[str], message: str
) -> None:
    def check_all() -> None:
        for cell in cells(read_experiment(file, overrides)):
            check_cell(cell)

    with pytest.raises(ValueError, match=re.escape(message)):
        check_all()


def test_a_refused_setting_stops_a_comparison_with_exit_status_2(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    done = fedpriv(
        "compare", file, "--workers", 1, "--out", tmp_path / "out", "--set", "model.l2=0"
    )
    assert done.code == 2
    assert "positive" in done.message
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("out/cells/*.json"))
    missing = fedpriv("compare", "quickstart", "--out", tmp_path / "none")
    assert (missing.code, "compare is missing" in missing.message) == (2, True)


def test_regressions_are_compared_by_their_loss(tmp_path: Path) -> None:
    study = parse_experiment(
        {
            "data": {"name": "synthetic:squared"},
            "model": {"name": "huber-regression", "l2": 0.01},
            "strategy": {"name": "output-perturbation"},
            "compare": {"seeds": 2},
        }
    )
    todo = cells(study)
    (tmp_path / "cells").mkdir()
    for cell in todo:
        (tmp_path / "cells" / f"{cell.key}.json").write_text(json.dumps(run_cell(cell)))
    rows = collect(todo, tmp_path)
    assert {row.metric for row in rows} == {"loss"}
    assert all(row.to_dict()["accuracy"] is None for row in rows)


@pytest.mark.deep
def test_no_worker_imports_what_lies_where_the_command_runs(file: Path, tmp_path: Path) -> None:
    """A spawned Python looks into the working directory before it knows better."""
    here = tmp_path / "here"
    planted = plant(here)
    study = file.read_text().replace("seeds = 2", "seeds = 1").replace("[0.5, 2]", "[2]")
    file.write_text(study)
    done = subprocess.run(
        [
            Path(sys.executable).parent / "fedpriv",
            *("compare", file, "--workers", "2", "--out", tmp_path / "out"),
        ],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran(planted) == ""
    assert done.returncode == 0, done.stderr
