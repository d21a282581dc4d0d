"""`[tuning] on = "private"`: charged once, drawn once, silent about how many trials there were."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.privacy.planning.tuning.tuning import TuningPlan
from fedpriv.privacy.trial_count import TrialCount
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run import release_outcome as outcome
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.prepare import build_strategy, prepare
from fedpriv.simulations.run.summary import simulate
from fedpriv.strategies.tuned import Tuned
from tests.simulations.run.paid_trials import kinds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def trials(patch: pytest.MonkeyPatch, number: int) -> None:
    patch.setattr(TrialCount, "draw", lambda _self, _stream: number)


def test_a_release_is_charged_once_and_says_what_was_chosen_by_which_rule(
    fedpriv: Callable[..., Any], trials_file: Path, tmp_path: Path
) -> None:
    out, book = tmp_path / "out", tmp_path / "own.ledger"
    done = fedpriv("run", trials_file, "--release", "--ledger", book, "--new-ledger", "--out", out)
    assert done.code == 0, done.err
    result = json.loads((out / "result.json").read_text())
    assert result["tuned"]["strategy.clip"] in (0.25, 1.0)
    assert result["tuned"]["strategy.rounds"] in (1, 3)
    assert "tuned on the private records, paid for: strategy.clip = " in done.out
    with Ledger.open(book, read_only=True) as ledger:
        charged = [row for row in ledger.rows() if row.amount]
        assert [row.kind for row in charged] == [Kind.DECLARED]
        assert ledger.spent().guarantee.epsilon == pytest.approx(2.0, rel=1e-9)
        assert ledger.verify().rows == 6
    statement = " ".join((out / "statement.txt").read_text().split())
    for told in (
        "on the private records themselves, paid for in the stated epsilon",
        f"strategy.clip = {result['tuned']['strategy.clip']:g}",
        "each with one of 4 settings, declared beforehand and drawn with replacement",
        "truncated negative binomial with eta = 0 and gamma = ",
        "3 in the mean",
        "how long the run took, which tells something of it, is not hidden",
        "profile rule for the best of a random number of trials",
    ):
        assert told in statement, told
    assert {path.name for path in out.iterdir()} == {*outcome.FILES, "private"}
    own = {path.name for path in (out / "private").iterdir()}
    assert own == {"run.json", "costs.json"}  # the secret of its draws is gone


def shape(
    trials_file: Path, patch: pytest.MonkeyPatch, number: int, fedpriv: Any
) -> dict[str, Any]:
    """All that a release with so many trials tells, but for the one setting, model and name."""
    out, book = trials_file.parent / f"out{number}", trials_file.parent / f"{number}.ledger"
    trials(patch, number)
    done = fedpriv("run", trials_file, "--release", "--ledger", book, "--new-ledger", "--out", out)
    assert done.code == 0, done.err
    said = re.sub(r"strategy\.\w+ = [\d.]+|/\S+", "…", done.out + done.err)
    result = json.loads((out / "result.json").read_text())
    statement = json.loads((out / "statement.json").read_text())
    del statement["ledger"]["head"], statement["run"]["run"], statement["run"]["tuning"]
    return {
        "said": said,
        "files": sorted(str(path.relative_to(out)) for path in out.rglob("*")),
        "plan": (out / "plan.json").read_text(),
        "metrics": (out / "metrics.json").read_text(),
        "result": {key: value for key, value in result.items() if key not in ("run", "tuned")},
        "statement": statement,
        "ledger": kinds(book),
        "model": model_shape(out),
        "bytes": json.loads((out / "private" / "costs.json").read_text())["bytes"],
    }


def model_shape(out: Path) -> dict[str, tuple[int, ...]]:
    with np.load(out / "model.npz") as arrays:
        return {key: arrays[key].shape for key in arrays}


def test_nothing_that_is_told_depends_on_the_number_of_trials(
    fedpriv: Callable[..., Any], trials_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (shape(trials_file, monkeypatch, number, fedpriv) for number in (1, 7))
    assert few == many


def test_exchanges_that_are_told_are_caught(
    fedpriv: Callable[..., Any], trials_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tuned, "concealed", False)
    few, many = (shape(trials_file, monkeypatch, number, fedpriv) for number in (1, 7))
    assert few["bytes"] < many["bytes"]
    monkeypatch.undo()
    monkeypatch.setattr(Tuned, "concealed", False)
    rows = [len(_simulated_rows(trials_file, monkeypatch, number)) for number in (1, 7)]
    assert rows[0] < rows[1]


def _simulated_rows(trials_file: Path, patch: pytest.MonkeyPatch, number: int) -> list[Any]:
    trials(patch, number)
    out = trials_file.parent / f"simulated{number}{Tuned.concealed}"
    carry_through(open_session(read_experiment(trials_file), out=out))
    rows: list[Any] = json.loads((out / "metrics.json").read_text())
    return rows


def test_a_simulation_is_as_silent(
    trials_file: Path, monkeypatch: pytest.MonkeyPatch, fedpriv: Callable[..., Any]
) -> None:
    assert [len(_simulated_rows(trials_file, monkeypatch, number)) for number in (1, 7)] == [1, 1]
    result = fedpriv("run", trials_file, "--out", trials_file.parent / "json", "--json").json()
    assert (result["rounds"], result["bytes"], result["noise_stddev"]) == (1, None, None)
    assert result["clip_fraction"] is None


def test_a_simulation_repeats_to_the_bit_and_its_hash_knows_the_grid(trials_file: Path) -> None:
    experiment = read_experiment(trials_file)
    one, two = simulate(experiment), simulate(experiment)
    assert one["tuned"] == two["tuned"]
    assert (one["accuracy"], one["loss"]) == (two["accuracy"], two["loss"])
    other = simulate(read_experiment(trials_file, ["run.seed=1"]))
    assert other["loss"] != one["loss"]
    changed = read_experiment(trials_file, ["tuning.expected_trials=4"])
    assert changed.config_hash != experiment.config_hash
    public = read_experiment(trials_file, ["tuning={on='breast_cancer'}"])
    plain = public.model_copy(update={"tuning": None})
    assert public.config_hash == plain.config_hash


def planned(trials_file: Path, *changes: str) -> TuningPlan:
    strategy = build_strategy(prepare(read_experiment(trials_file, changes)), run="plan")
    assert isinstance(strategy.plan, TuningPlan)
    return strategy.plan


@pytest.mark.parametrize(
    "changes",
    [
        ("privacy.adjacency=add-remove",),
        ("tuning.score=loss", "tuning.clip=0.5", "tuning.score_share=0.3"),
        ("strategy.name=second-order", 'tuning.grid={"strategy.floor"=[0.5, 2.0]}'),
        ("strategy.accountant=rdp", "tuning.eta=1"),
        ('tuning.grid={"strategy.schedule"=["uniform", "dynamic"]}',),
    ],
)
def test_every_setting_is_planned_at_the_same_cost(
    trials_file: Path, changes: tuple[str, ...]
) -> None:
    plan = planned(trials_file, *changes)
    best = plan.best
    assert plan.epsilon <= 2.0
    for trial in plan.trials:
        assert trial.gdp_mu is not None
        whole = (trial.gdp_mu**2 + best.score_mu**2) ** 0.5
        assert best.base_mu * (1 - 1e-8) < whole <= best.base_mu
    simulate(read_experiment(trials_file, changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["tuning.trials=10"], "trials must not be given, got 10: whoever keeps the best of a"),
        (["tuning.expected_trials=1"], "tuning.expected_trials must be greater than 1"),
        (["tuning.expected_trials=1e6"], "expected_trials must be above 1 and at most 1000"),
        (["tuning.eta=-1"], "tuning.eta must be greater than -1"),
        (["tuning.seeds=2"], "seeds must be 1 with on = 'private'"),
        (["tuning={on='private'}"], "grid must offer settings"),
        (["tuning.on=breast_cancer"], "expected_trials is for on = 'private'"),
        (["strategy.name=output-perturbation", "model.l2=0.1"], "needs strategy.name = "),
        (["strategy.name=adaptive-clipping"], "needs strategy.name = 'gradient-perturbation'"),
        (["strategy.name=non-private"], "needs strategy.name = 'gradient-perturbation'"),
        (["privacy.epsilon=inf"], "needs a finite privacy.epsilon"),
        (["privacy.delta=0"], "delta must be positive"),
        (["privacy.noise_at=parties"], "needs privacy.noise_at = 'server'"),
        (["run.engine=local"], "needs run.engine = 'vectorized', got 'local'"),
        (["run.engine=ray"], "needs run.engine = 'vectorized', got 'ray'"),
        (["model.name=mlp", "strategy.learning_rate=0.1"], "needs a convex problem"),
        (["strategy.accountant=pld"], "accountant must be one of auto, basic, rdp"),
        (['tuning.grid={"model.l2"=[0.1]}'], "'model.l2' must be an option of the strategy"),
        (['tuning.grid={"strategy.name"=["second-order"]}'], "must be an option of the strategy"),
        (['tuning.grid={"privacy.unit"=["person"]}'], "must be a key of strategy or model"),
        (['tuning.grid={"strategy.clip"=[]}'], "needs at least one value"),
        (
            ['tuning.grid={"strategy.sampling_rate"=[0.5]}', "privacy.adjacency=add-remove"],
            "strategy.sampling_rate = 0.5 changes the privacy plan",
        ),
        (
            ['tuning.grid={"strategy.calibration"=["unsound-textbook"]}'],
            "'unsound-textbook' changes the privacy plan",
        ),
        (['tuning.grid={"strategy.law"=["l2-laplace"]}'], "strategy.law must be 'gaussian' with"),
        (['tuning.grid={"strategy.clipp"=[1.0]}'], "Did you mean 'clip'?"),
        (["tuning.score=accuracy", "model.name=huber-regression"], "Models for it"),
    ],
)
def test_what_has_no_such_price_is_refused_with_its_reason(
    fedpriv: Callable[..., Any], trials_file: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    settings = [word for change in changes for word in ("--set", change)]
    done = fedpriv("run", trials_file, "--out", tmp_path / "out", *settings)
    assert done.code == 2
    assert message in done.message, done.message
    assert not (tmp_path / "out").exists()


def test_a_deployment_and_a_comparison_refuse_it(
    fedpriv: Callable[..., Any], trials_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"needs run\.engine = 'vectorized', got 'deployment'"):
        read_experiment(trials_file, ["run.engine=deployment", "data={schema='x.toml'}"])
    text = trials_file.read_text() + '\n[compare]\nstrategies = ["gradient-perturbation"]\n'
    trials_file.write_text(text)
    done = fedpriv("compare", trials_file, "--out", tmp_path / "out")
    assert done.code == 2
    assert "tuning.grid is for `fedpriv run`" in done.message


def test_a_ledger_without_a_price_refuses_before_a_directory_is_made(
    fedpriv: Callable[..., Any], trials_file: Path, tmp_path: Path
) -> None:
    book = tmp_path / "gdp.ledger"
    made = fedpriv(
        "ledger", "init", book, "--data-name", "synthetic", "--epsilon", 9, "--delta", 1e-5,
        "--composition", "gdp",
    )  # fmt: skip
    assert made.code == 0, made.err
    before = kinds(book)
    done = fedpriv("run", trials_file, "--release", "--ledger", book, "--out", tmp_path / "out")
    assert done.code == 2
    assert "gdp composition cannot price tuning releases" in done.message
    assert kinds(book) == before
    assert not (tmp_path / "out").exists()
