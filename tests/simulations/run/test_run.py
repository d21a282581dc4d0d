"""`fedpriv run`: what it writes, what it repeats to the bit, and what it refuses."""

import csv
import json
import tomllib
from collections.abc import Callable
from math import cbrt, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train
from tests.simulations.run.short_study import theta, write_table

RUN_KEYS = {
    "accuracy", "loss", "epsilon", "delta", "adjacency", "strategy", "rounds", "parties",
    "seconds", "simulated",
}  # fmt: skip


def test_a_run_leaves_everything_that_a_reader_needs(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    printed = fedpriv("run", short_file, "--out", out, "--json").json()
    result = json.loads((out / "result.json").read_text())
    assert {**result, "directory": str(out)} == printed
    assert set(result) >= RUN_KEYS
    assert result["simulated"] is True
    assert 0.9 < result["epsilon"] <= 1
    assert (result["rounds"], result["parties"], result["adjacency"]) == (12, 20, "replace-one")
    assert 0.5 < result["accuracy"] < 1
    assert (out / "statement.txt").read_text().startswith("SIMULATED: no privacy was spent\n")
    assert json.loads((out / "statement.json").read_text())["status"].startswith("SIMULATED")
    assert (out / "statement.yaml").read_text().startswith("# SIMULATED")
    strength = result["records"] * gdp_mu(epsilon=1.0, delta=1e-6) / 2
    ruled = cbrt(strength / (300 * sqrt(result["dimension"])))  # G is 1
    clip_norm = json.loads((out / "plan.json").read_text())["clip_norm"]
    assert clip_norm == pytest.approx(ruled, rel=1e-3)
    rows = json.loads((out / "metrics.json").read_text())
    with (out / "metrics.csv").open() as lines:
        assert [float(row["loss"]) for row in csv.DictReader(lines)] == [r["loss"] for r in rows]
    assert [row["round"] for row in rows] == list(range(1, 13))
    assert rows[-1]["accuracy"] == result["accuracy"]
    spent = [row["epsilon"] for row in rows]
    assert spent == sorted(spent)
    assert spent[-1] == result["epsilon"]
    written = parse_experiment(tomllib.loads((out / "config.toml").read_text()))
    assert written.config_hash == result["config_hash"]
    assert theta(out).shape == (11,)
    assert not (out / "private" / "checkpoint.npz").exists()


def test_text_is_for_people_and_says_where_the_results_are(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fedpriv("run", short_file)
    assert done.code == 0
    assert done.err == ""
    assert "epsilon <= 1 at delta = 1e-06   (one record, replace-one)" in done.out
    directory = Path(done.out.split("results: ")[1].strip())
    assert f"page: {directory / 'report.html'}\n" in done.out
    assert directory.parts[:2] == ("results", "study")
    assert (directory / "result.json").exists()


def test_progress_shows_rounds_loss_accuracy_and_spend_on_a_terminal(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    shown = fedpriv("run", short_file, "--out", tmp_path / "out").err
    for word in ("12/12", "loss", "accuracy", "ε"):
        assert word in shown
    assert fedpriv("run", short_file, "--out", tmp_path / "quiet", "--json").err == ""


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        fedpriv("run", short_file, "--out", tmp_path / name, "--set", f"run.seed={seed}", "--json")
    np.testing.assert_array_equal(theta(tmp_path / "a"), theta(tmp_path / "b"))
    assert (theta(tmp_path / "a") != theta(tmp_path / "c")).all()
    first, second = ((tmp_path / n / "statement.json").read_text() for n in ("a", "b"))
    assert first == second


def test_a_strategy_is_built_once_per_run(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpriv import strategies

    built: list[str] = []
    build = strategies.build

    def counted(info: Any, **rest: Any) -> Any:
        built.append(info.name)
        return build(info, **rest)

    monkeypatch.setattr(strategies, "build", counted)
    assert fedpriv("run", short_file, "--out", tmp_path / "out").code == 0
    real = ("--release", "--ledger", tmp_path / "data.ledger", "--new-ledger")
    assert fedpriv("run", short_file, *real, "--out", tmp_path / "real").code == 0
    assert built == ["gradient-perturbation"] * 2


def test_the_number_of_threads_does_not_matter(short_file: Path) -> None:
    found = []
    for workers in (1, 2):
        prepared = prepare(read_experiment(short_file))
        strategy = build_strategy(prepared, run="same")
        federation = build_federation(prepared, run="same", workers=workers)
        train(strategy, federation, lambda _query, _answer: True)
        found.append(strategy.theta)
    np.testing.assert_array_equal(found[0], found[1])


def test_own_data_run_like_built_in_data(fedpriv: Callable[..., Any], tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv", tmp_path / "mine.toml")
    experiment = tmp_path / "experiment.toml"
    experiment.write_text(
        '[data]\npath = "mine.csv"\nschema = "mine.toml"\ntest_fraction = 0.25\n'
        '[strategy]\nname = "non-private"\n'
    )
    result = fedpriv("run", experiment, "--out", tmp_path / "out", "--json").json()
    assert (result["data"], result["parties"], result["records"]) == ("mine", 2, 225)
    assert 40 < result["test_records"] < 110  # 75 on average: every record decides by itself
    assert result["accuracy"] > 0.9
    assert result["epsilon"] is None
    assert "NO GUARANTEE" in (tmp_path / "out" / "statement.txt").read_text()


def test_training_alone_is_the_mean_over_the_parties(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    chosen = ("--set", "strategy.name=party-alone")
    result = fedpriv("run", short_file, *chosen, "--out", tmp_path / "out", "--json").json()
    prepared = prepare(read_experiment(short_file))
    found = [prepared.evaluator.score(model) for model in theta(tmp_path / "out")]
    scores = [score.accuracy for score in found if score is not None]
    assert len(scores) == 20
    assert result["accuracy"] == pytest.approx(np.mean([s for s in scores if s is not None]))
    assert result["worst_accuracy"] == min(s for s in scores if s is not None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["strategy.name=gradient-pertubation"], "Did you mean 'gradient-perturbation'?"),
        (["privacy.epsilon=0"], "privacy.epsilon must be greater than 0"),
        (["strategy.name=output-perturbation", "model.l2=0"], "regulariser must be positive"),
        (["strategy.name=party-alone", "model.l2=0"], "model.l2 must be positive"),
        (["data.partition=iid", "data.parties=5000"], "parties must be at most"),
        (["data.parties=21"], "data.parties must be at most 20"),
        (["data.name=chem79"], "Did you mean 'chem97'?"),
        (["data.name=mnist", "data.root=/nowhere"], "mnist"),
        (["strategy.name=output-perturbation", "model.name=mlp"], "needs a convex problem"),
        (["model.name=mlp", "strategy.learning_rate=auto"], "learning_rate"),
        (["model.name=softmax"], "Models for it: logistic, huber-svm, mlp"),
        (["strategy.rouns=3"], "Did you mean 'rounds'?"),
        (["strategy.rounds=many"], "strategy.rounds must be"),
        (["data.name=3"], "data.name must be text"),
        (["strategy.sampling_rate=0.1"], "add-remove"),
        (["strategy.name=output-perturbation", "privacy.adjacency=add-remove"], "replace-one"),
        (["privacy.delta=0", "strategy.law=gaussian"], "delta"),
        (["run.engine=cloud"], "run.engine must be"),
        (["tuning.on=synthetic"], "tuning.on must name another, public data set"),
    ],
)
def test_a_bad_experiment_is_one_message_and_exit_status_2(
    fedpriv: Callable[..., Any],
    short_file: Path,
    tmp_path: Path,
    overrides: list[str],
    message: str,
) -> None:
    settings = [word for override in overrides for word in ("--set", override)]
    done = fedpriv("run", short_file, "--out", tmp_path / "out", *settings)
    assert done.code == 2
    assert message in done.message
    assert "Traceback" not in done.err
    assert done.err.count("Error") == 1
    assert done.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name an experiment"),
        (("missing.toml",), "neither a file nor one of"),
        (("--resume", "nowhere"), "no run was started there"),
        (("quickstart", "--resume", "nowhere", "--out", "x"), "give no --out"),
        (("quickstart", "--release"), "needs --ledger PATH"),
        (("quickstart", "--ledger", "nowhere"), "does not exist"),
    ],
)
def test_a_bad_command_is_one_message_and_exit_status_2(
    fedpriv: Callable[..., Any],
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fedpriv("run", *arguments)
    assert done.code == 2
    assert message in done.message
    assert not any(tmp_path.iterdir())


def test_hyper_parameters_are_tuned_on_public_data_and_the_statement_says_so(
    fedpriv: Callable[..., Any], short_file: Path, tmp_path: Path
) -> None:
    """A learning rate that cannot learn loses, whatever the noise."""
    with short_file.open("a") as text:
        text.write(
            '[tuning]\non = "breast_cancer"\n'
            '[tuning.grid]\n"strategy.learning_rate" = [1e-9, 0.5]\n'
        )
    many = ("--set", "privacy.epsilon=100")
    result = fedpriv("run", short_file, *many, "--out", tmp_path / "out", "--json").json()
    assert result["options"]["learning_rate"] == 0.5
    assert "public data set 'breast_cancer'" in (tmp_path / "out" / "statement.txt").read_text()
