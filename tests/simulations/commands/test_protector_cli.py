"""`fedpriv protector`, and learned protection as an experiment runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fedpriv.learning.protector import load
from fedpriv.simulations.public import protector_training
from fedpriv.simulations.public.protector_training import Order, train_protector
from fedpriv.strategies.learned_protection import protector_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedpriv.learning.protector import Recipe

    Command = Callable[..., Any]

ORDER = Order(on=("synthetic",), epsilons=(0.5, 2.0), delta=1e-5, clip=0.5, epochs=3, seed=4)
ARGUMENTS = (
    "protector", "train", "--on", "synthetic", "--epsilon", 2.0, "--epsilon", 0.5,
    "--delta", 1e-5, "--clip", 0.5, "--epochs", 3, "--seed", 4,
)  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same training with fewer and shorter unrolls."""
    whole = Order.recipe

    def recipe(order: Order, records: int) -> Recipe:
        return replace(whole(order, records), horizons=(4, 6), batches=4, steps=3, records=50)

    monkeypatch.setattr(Order, "recipe", recipe)
    monkeypatch.setattr(protector_training, "_RECORDS", 100)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    path = tmp_path / "whole.json"
    assert train_protector(ORDER, path) is not None
    return path


def test_the_same_command_writes_the_same_bytes(
    fedpriv: Command, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "again.json"
    printed = fedpriv(*ARGUMENTS, "--out", out, "--json").json()
    assert out.read_bytes() == trained.read_bytes()
    assert printed["sha256"] == load(out).sha256
    assert printed["trained_on"] == "synthetic"
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("epochs", [1, 2])
def test_an_interrupted_training_is_resumed_to_the_same_bytes(
    fedpriv: Command, trained: Path, tmp_path: Path, epochs: int
) -> None:
    out = tmp_path / "broken.json"
    seen: list[object] = []
    stopped = train_protector(ORDER, out, on_epoch=seen.append, stop=lambda: len(seen) == epochs)
    assert stopped is None
    assert not out.exists()
    assert fedpriv(*ARGUMENTS, "--out", out, "--resume").code == 0
    assert out.read_bytes() == trained.read_bytes()


def test_a_training_does_not_overwrite_what_is_there(
    fedpriv: Command, trained: Path, tmp_path: Path
) -> None:
    done = fedpriv(*ARGUMENTS, "--out", trained)
    assert done.code == 2
    assert "exists: choose another name" in done.message
    other = tmp_path / "other.json"
    assert "start it without --resume" in fedpriv(*ARGUMENTS, "--out", other, "--resume").message
    train_protector(ORDER, other, stop=lambda: True)
    assert "continue it with --resume" in fedpriv(*ARGUMENTS, "--out", other).message


def test_a_state_of_another_training_is_not_taken_up(fedpriv: Command, tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    train_protector(ORDER, out, stop=lambda: True)
    done = fedpriv(*ARGUMENTS[:-1], 5, "--out", out, "--resume")
    assert done.code == 2
    assert "another training" in done.message
    partial = tmp_path / "x.json.partial"
    values = json.loads(partial.read_text())
    values["tensors"]["projector.readout.bias"]["float32"] = "AAAA"
    partial.write_text(json.dumps(values))
    assert "changed or damaged" in fedpriv(*ARGUMENTS, "--out", out, "--resume").message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("--on", "digits"), "two classes"),
        (("--on", "synthetik"), "synthetic"),
        (("--epsilon", -1.0), "epsilon"),
        (("--delta", 0.0), "delta"),
        (("--clip", 0.0), "clip"),
        (("--adjacency", "add-one"), "adjacency"),
        (("--model", "forest"), "huber-svm"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(
    fedpriv: Command, tmp_path: Path, change: tuple[str, Any], reason: str
) -> None:
    done = fedpriv(*ARGUMENTS, *change, "--out", tmp_path / "x.json")
    assert done.code == 2
    assert reason in done.message
    assert not list(tmp_path.iterdir())


def test_show_prints_the_card_and_its_hash(fedpriv: Command, trained: Path) -> None:
    text = fedpriv("protector", "show", trained).out
    assert load(trained).sha256 in text
    assert "synthetic, 4000 public records" in text
    assert "3 epochs, seed 4" in text
    card = fedpriv("protector", "show", trained, "--json").json()
    assert card["settings"]["order"]["epsilons"] == [0.5, 2.0]
    assert [known["rounds"] in (4, 6) for known in card["horizons"]] == [True, True]


def test_tasks_are_all_data_sets_with_all_models(fedpriv: Command, tmp_path: Path) -> None:
    out = tmp_path / "many.json"
    card = fedpriv(
        *ARGUMENTS, "--model", "huber-svm", "--model", "mlp", "--hidden", 2, "--minibatch", 20,
        "--gated", "--out", out, "--json",
    ).json()  # fmt: skip
    order, recipe = card["settings"]["order"], card["settings"]["recipe"]
    assert (order["on"], order["models"]) == (["synthetic"], ["huber-svm", "mlp"])
    assert recipe["minibatch"] == 20
    assert load(out).protector.gated
    assert "huber-svm, mlp" in fedpriv("protector", "show", out).out


def test_show_refuses_a_file_that_was_changed(fedpriv: Command, trained: Path) -> None:
    trained.write_text(trained.read_text().replace('"clip_norm": 0.5', '"clip_norm": 0.4'))
    done = fedpriv("protector", "show", trained)
    assert done.code == 2
    assert "changed or damaged" in done.message


def test_the_protector_that_comes_with_fedpriv_says_where_it_comes_from(fedpriv: Command) -> None:
    path = protector_path("mnist-4v6")
    assert path.stat().st_size < 100_000
    card = fedpriv("protector", "show", "mnist-4v6", "--json").json()
    assert card["trained_on"] == "mnist:4v6"
    assert card["settings"]["order"]["epsilons"] == list(protector_training.EPSILONS)
    assert card["settings"]["records"] == 11_760


# As an experiment

EXPERIMENT = """
[data]
name = "synthetic"

[strategy]
name = "learned-protection"
protector = "{protector}"

[privacy]
epsilon = 2.0
delta = 1e-5
adjacency = "add-remove"
"""


@pytest.fixture
def experiment(trained: Path, tmp_path: Path) -> Path:
    path = tmp_path / "learned.toml"
    path.write_text(EXPERIMENT.format(protector=trained))
    return path


def test_a_run_leaves_the_plan_as_found_and_a_statement_of_its_budget(
    fedpriv: Command, experiment: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = fedpriv("run", experiment, "--out", out, "--json").json()
    assert result["epsilon"] == 2.0
    assert result["rounds"] >= 4
    assert "budget is spent" in result["stopped"]
    assert result["noise_stddev"] > 0
    plan = json.loads((out / "plan.json").read_text())
    assert plan["accountant"] == "gdp-filter"
    assert plan["releases"] == {"norm": result["rounds"], "main": result["rounds"]}
    assert plan["spent"] <= plan["limit"] * (1 + 1e-10)
    statement = " ".join((out / "statement.txt").read_text().split())
    assert "(epsilon, delta) = (2, 1e-05)" in statement
    assert "gdp-filter" in statement
    metrics = json.loads((out / "metrics.json").read_text())
    spent = [entry["epsilon"] for entry in metrics]
    assert spent == sorted(spent)
    assert spent[-1] <= 2.0


def test_a_release_charges_the_ledger_for_both_releases_of_every_round(
    fedpriv: Command, experiment: Path, tmp_path: Path
) -> None:
    ledger, out = tmp_path / "l.ledger", tmp_path / "run"
    result = fedpriv(
        "run",
        experiment,
        "--out",
        out,
        "--release",
        "--ledger",
        ledger,
        "--new-ledger",
        "--json",
        "--set",
        "data.records=4000",
    ).json()
    shown = fedpriv("ledger", "export", ledger, "--json").json()
    runs = [row["run"] for row in shown["rows"] if row["kind"] == "committed"]
    assert runs.count(result["run"]) == runs.count(f"{result['run']}/norm") == result["rounds"]
    statement = json.loads((out / "statement.json").read_text())
    assert statement["ledger"]["spent_before_epsilon"] == 0
    assert fedpriv("ledger", "verify", ledger).code == 0


def test_a_run_goes_on_with_the_protector_that_it_began_with(
    experiment: Path, trained: Path, tmp_path: Path
) -> None:
    """Another one under the same name was taken unseen, and made plan and statement anew."""
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.prepare import check, prepare

    mine = tmp_path / "mine.json"
    mine.write_bytes(trained.read_bytes())
    named = [f"strategy.protector={mine}"]
    before, moved = (read_experiment(experiment, some) for some in (named, []))
    assert before.strategy.options["protector_sha256"] == load(trained).sha256
    assert moved.strategy.options["protector_sha256"] == load(trained).sha256
    prepared = prepare(before)
    assert check(prepared) is not None
    mine.write_bytes(protector_path("mnist-4v6").read_bytes())
    assert read_experiment(experiment, named).config_hash != before.config_hash
    with pytest.raises(ValueError, match="is not the one that the experiment states"):
        check(prepared)


def test_a_study_runs_it_like_any_other_and_repeats_it_by_its_seed(experiment: Path) -> None:
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.run.summary import simulate

    study = read_experiment(experiment)
    one, again, other = (
        simulate(study.replaced(run={"seed": seed}), workers=1) for seed in (0, 0, 1)
    )
    assert one["loss"] == again["loss"] != other["loss"]
    assert one["epsilon"] == 2.0
