"""`privacy.epsilon = "inf"`: a twin without noise says so everywhere, and is refused for real."""

import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.compare.cells import cells, collect, run_cell
from fedpriv.simulations.compare.comparison import Comparison
from fedpriv.simulations.compare.panels import panel
from fedpriv.simulations.compare.plots import draw, text_plot
from fedpriv.simulations.compare.report import cell_columns
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.figures import new_figure
from fedpriv.simulations.run.files import write_json
from fedpriv.simulations.run.summary import simulate

EXPERIMENT = """
[data]
name = "synthetic"

[model]
l2 = 0.01

[strategy]
name = "gradient-perturbation"
rounds = 6

[privacy]
epsilon = "inf"

[compare]
strategies = ["gradient-perturbation", "output-perturbation"]
epsilons = [0.5, "inf"]
seeds = 2
at = { "inf" = { rounds = 9 } }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


def strictly(path: Path) -> Any:
    """JSON as others read it: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{path.name} holds {constant}.")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_a_twin_says_that_there_is_no_privacy(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = fedpriv("run", file, "--out", out)
    assert done.code == 0, done.err
    assert "no privacy: epsilon = ∞" in done.out
    result = strictly(out / "result.json")
    assert (result["epsilon"], result["delta"], result["adjacency"]) == (None, None, None)
    assert result["epsilon_budget"] == "inf"
    assert result["private"] is False
    assert (result["noise_stddev"], result["rounds"]) == (0.0, 6)
    assert not (out / "plan.json").exists()
    assert "NO GUARANTEE: privacy.epsilon = 'inf'" in (out / "statement.txt").read_text()
    assert strictly(out / "statement.json")["guarantee"] is None
    assert all(row["epsilon"] is None for row in strictly(out / "metrics.json"))
    assert 'epsilon = "inf"' in (out / "config.toml").read_text()


def test_the_infinity_of_toml_and_python_is_the_same(file: Path) -> None:
    stated = read_experiment(file)
    assert read_experiment(file, ["privacy.epsilon=inf"]) == stated
    assert read_experiment(file, ["privacy.epsilon='inf'"]).config_hash == stated.config_hash
    assert stated.replaced(privacy={"epsilon": inf}) == stated
    with pytest.raises(ValueError, match=r"privacy\.epsilon must be .*or 'inf', got 'infinite'"):
        read_experiment(file, ["privacy.epsilon=infinite"])


def test_a_release_a_ledger_and_a_deployment_refuse_a_twin(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    book = tmp_path / "book.ledger"
    for more in (("--release", "--ledger", book, "--new-ledger"), ("--ledger", book)):
        done = fedpriv("run", file, "--out", tmp_path / "out", *more)
        assert done.code == 2
        assert "privacy.epsilon = 'inf' adds no noise" in done.message
        assert "Give privacy.epsilon a number" in done.message
    assert not book.exists()
    assert not (tmp_path / "out").exists()
    deployed = {
        **read_experiment(file).to_dict(),
        "data": {"schema": "s.toml"},
        "run": {"engine": "deployment"},
    }
    with pytest.raises(ValueError, match=r"privacy\.epsilon = 'inf' adds no noise"):
        parse_experiment(deployed)


def test_a_ledger_of_an_infinite_budget_cannot_be_made(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    book = tmp_path / "book.ledger"
    done = fedpriv(
        "ledger", "init", book, "--data-name", "d", "--epsilon", "inf", "--delta", "1e-6"
    )
    assert done.code == 2
    assert "epsilon must be positive and finite" in done.message
    assert not book.exists()


def test_an_existing_ledger_is_left_as_it_is(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    book = tmp_path / "book.ledger"
    assert (
        fedpriv(
            "ledger", "init", book, "--data-name", "d", "--epsilon", "1", "--delta", "1e-6"
        ).code
        == 0
    )
    before = book.read_bytes()
    assert fedpriv("run", file, "--ledger", book, "--out", tmp_path / "out").code == 2
    assert book.read_bytes() == before
    with Ledger.open(book, read_only=True) as ledger:
        assert not list(ledger.runs())


@pytest.mark.parametrize("noise_at", ["server", "parties"])
def test_the_real_protocol_sums_the_same_without_noise(file: Path, noise_at: str) -> None:
    settings = ["data.partition=iid", "data.parties=4", f"privacy.noise_at={noise_at}"]
    ideal = simulate(read_experiment(file, settings))
    real = simulate(read_experiment(file, [*settings, "run.engine=local"]))
    assert real["loss"] == pytest.approx(ideal["loss"], rel=1e-12)
    noisy = simulate(read_experiment(file, [*settings, "privacy.epsilon=0.5"]))
    assert noisy["loss"] != pytest.approx(ideal["loss"], rel=1e-3)


def test_the_seed_of_the_noise_changes_nothing(file: Path) -> None:
    """Seeds decide parties and first models; here there is one party, and the model is linear."""
    settings = ["data.partition=iid", "data.parties=1", "data.test_fraction=0.5"]
    kept = [
        simulate(read_experiment(file, [*settings, f"strategy.accountant={name}"]))["loss"]
        for name in ("auto", "gdp")  # another experiment, hence another seed of the noise
    ]
    assert kept[0] == kept[1]


def test_a_network_runs_without_noise(file: Path) -> None:
    network = ["model.name=mlp", "model.hidden=[4]", "strategy.learning_rate=0.5"]
    result = simulate(read_experiment(file, network))
    assert result["epsilon_budget"] == "inf"
    assert np.isfinite(result["loss"])


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    directory = tmp_path_factory.mktemp("compared")
    path = directory / "study.toml"
    path.write_text(EXPERIMENT)
    study = read_experiment(path)
    todo = cells(study)
    (directory / "cells").mkdir()
    for cell in todo:
        write_json(directory / "cells" / f"{cell.key}.json", run_cell(cell))
    rows = collect(todo, directory)
    return Comparison(experiment=study, directory=directory, rows=tuple(rows), findings=())


def test_a_comparison_has_twins_as_its_last_budget(comparison: Comparison) -> None:
    budgets = [row.epsilon_budget for row in comparison.rows]
    assert budgets == [None, None, None, 0.5, 0.5, inf, inf]  # with the exact joint model
    told = [row.to_dict() for row in comparison.rows]
    json.dumps(told, allow_nan=False)
    assert [row["epsilon_budget"] for row in told][-2:] == ["inf", "inf"]
    assert told[-1]["epsilon"] is None
    rounds = {(row["label"], row["epsilon_budget"]): row["rounds"] for row in told}
    assert rounds["gradient-perturbation", "inf"] == 9  # of the table for this budget
    exact, average = told[-1], told[0]
    assert (exact["label"], average["label"]) == ("output-perturbation", "non-private")
    assert exact["values"] == average["values"]


def test_reports_and_plots_print_infinity(comparison: Comparison) -> None:
    columns = cell_columns(comparison.rows, comparison.experiment)
    assert columns["ε"] == ["–", "–", "–", "0.5", "0.5", "∞", "∞"]
    assert columns["strategy"][-1] == "output-perturbation (no privacy)"
    axis = next(line for line in text_plot(panel(comparison.rows)).splitlines() if "ε " in line)
    assert axis.split() == ["ε", "0.5", "∞"]
    axes = new_figure(width=4, height=3).add_subplot()
    draw(axes, panel(comparison.rows))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.5", "∞"]
    assert comparison.to_frame()["epsilon_budget"].tolist()[3:] == [0.5, 0.5, inf, inf]
