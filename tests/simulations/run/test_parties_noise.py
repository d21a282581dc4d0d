"""`privacy.noise_at = "parties"` in an experiment: from the file to the statement."""

import json
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from fedpriv.privacy.mechanisms.shares import SharedNoise
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run.metrics.noise import acting_noise
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train

EXPERIMENT = """
[data]
name = "synthetic"

[model]
l2 = 0.01

[strategy]
name = "gradient-perturbation"
rounds = 12

[privacy]
epsilon = 4.0
noise_at = "parties"
colluding = 0.1

[run]
dropout = 0.1
"""
BOTH = ("gradient-perturbation", "output-perturbation")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.mark.parametrize("name", BOTH)
def test_a_run_ends_in_a_model_and_a_statement_about_shares(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, name: str
) -> None:
    accuracy = {}
    for place in ("server", "parties"):
        out = tmp_path / place
        settings = ("--set", f"strategy.name={name}", "--set", f"privacy.noise_at={place}")
        result = fedpriv("run", file, *settings, "--out", out, "--json").json()
        accuracy[place] = result["accuracy"]
        assert result["epsilon"] <= 4.0
    assert abs(accuracy["parties"] - accuracy["server"]) < 0.05
    text = " ".join((tmp_path / "parties" / "statement.txt").read_text().split())
    assert "nobody sees a sum without noise" in text
    assert "every sum of at least 18 of the 20 parties, even if 2 of them" in text
    plan = json.loads((tmp_path / "parties" / "plan.json").read_text())
    assert plan["noise_at"] == "parties"
    assert {m["share"]["law"] for m in plan["mechanisms"]} == {"skellam"}


@pytest.mark.parametrize("name", BOTH)
def test_the_same_experiment_gives_the_same_model_to_the_bit(file: Path, name: str) -> None:
    models = []
    for _ in range(2):
        prepared = prepare(read_experiment(file, [f"strategy.name={name}"]))
        strategy = build_strategy(prepared, run="x")
        train(strategy, build_federation(prepared, run="x"), lambda *_: True)
        models.append(strategy.theta.copy())
    assert (models[0] == models[1]).all()


@pytest.mark.parametrize("engine", ["vectorized", "local"])
@pytest.mark.parametrize(("colluding", "honest"), [(0.0, 17), (0.1, 16), (0.2, 14)])
def test_simulated_parties_fear_as_many_colluders_as_the_experiment_says(
    file: Path, engine: str, colluding: float, honest: int
) -> None:
    """One share is known to its own party, also where nobody colludes."""
    overrides = [f"privacy.colluding={colluding}", f"run.engine={engine}", "strategy.rounds=1"]
    prepared = prepare(read_experiment(file, overrides))
    strategy = build_strategy(prepared, run="x")
    assert strategy.plan is not None
    mechanism = strategy.plan.mechanisms[0]
    assert isinstance(mechanism, SharedNoise)
    assert mechanism.share.honest == honest
    assert train(strategy, build_federation(prepared, run="x"), lambda *_: True)


@pytest.mark.parametrize(("name", "mean"), [(BOTH[0], True), (BOTH[1], False)])
def test_the_noise_that_is_stated_is_that_of_all_parties(file: Path, name: str, mean: bool) -> None:
    strategy = build_strategy(prepare(read_experiment(file, [f"strategy.name={name}"])), run="x")
    query, plan = strategy.ask(), strategy.plan
    assert query is not None
    assert plan is not None
    mechanism = plan.mechanisms[0]
    assert isinstance(mechanism, SharedNoise)
    assert mechanism.share.honest == 16
    expected = sqrt(20 / 16) * mechanism.noise_stddev / (plan.records if mean else 1)
    assert acting_noise(query, plan, strategy.task) == pytest.approx(expected)


def test_a_strategy_without_noise_is_not_asked_for_shares(file: Path) -> None:
    prepared = prepare(read_experiment(file, ["strategy.name=non-private"]))
    query = build_strategy(prepared, run="x").ask()
    assert query is not None
    assert query.share is None


def test_a_pure_budget_gets_polya_shares(file: Path) -> None:
    overrides = ["strategy.name=output-perturbation", "privacy.delta=0"]
    query = build_strategy(prepare(read_experiment(file, overrides)), run="x").ask()
    assert query is not None
    assert query.share is not None
    assert query.share.law == "polya"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["strategy.name=pathak"], "only output-perturbation and gradient-perturbation"),
        (["strategy.name=output-perturbation", "strategy.fit=joint"], "exact sums"),
        (["privacy.colluding=0.95"], "at least one honest party"),
        (["privacy.noise_at=nowhere"], "noise_at"),
        (["privacy.colluding=1.0"], "colluding"),
        (["privacy.share_law=loud"], "share_law"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    fedpriv: Callable[..., Any], file: Path, settings: list[str], reason: str
) -> None:
    done = fedpriv("run", file, *(part for key in settings for part in ("--set", key)))
    assert done.code == 2
    assert reason in done.message


def test_one_process_with_all_records_releases_with_noise_of_its_own(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    done = fedpriv(
        "run",
        file,
        "--set",
        "run.dropout=0",
        "--release",
        "--ledger",
        tmp_path / "l",
        "--new-ledger",
    )
    assert done.code == 2
    assert "noise_at = 'server'" in done.message
