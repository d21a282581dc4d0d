"""`fedpriv run`: what it writes, what it repeats to the bit, and what it refuses."""

import csv
import json
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from math import cbrt, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.accountants import account
from fedpriv.privacy.gaussian import gdp_mu
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment
from fedpriv.simulations.run.metrics.noise import acting_noise
from fedpriv.simulations.run.prepare import build_federation, build_strategy, prepare, train
from fedpriv.simulations.run.session import carry_on, reopen, start
from fedpriv.simulations.run.summary import simulate

EXPERIMENT = """
[data]
name = "synthetic"

[model]
l2 = 0.01

[strategy]
name = "gradient-perturbation"
rounds = 12
optimiser = "adam"
averaging = "tail"
learning_rate = 0.1

[privacy]
epsilon = 1.0
delta = 1e-6
"""

RUN_KEYS = {
    "accuracy", "loss", "epsilon", "delta", "adjacency", "strategy", "rounds", "parties",
    "seconds", "simulated",
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


def theta(directory: Path) -> np.ndarray[Any, Any]:
    with np.load(directory / "model.npz") as arrays:
        return np.array(arrays["theta"])


def test_a_run_leaves_everything_that_a_reader_needs(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    printed = fedpriv("run", file, "--out", out, "--json").json()
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
    ruled = cbrt(strength / (60 * sqrt(result["dimension"]))) / 2  # G is 1
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
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fedpriv("run", file)
    assert done.code == 0
    assert done.err == ""
    assert "epsilon <= 1 at delta = 1e-06   (one record, replace-one)" in done.out
    directory = Path(done.out.split("results: ")[1].strip())
    assert f"page: {directory / 'report.html'}\n" in done.out
    assert directory.parts[:2] == ("results", "study")
    assert (directory / "result.json").exists()


def test_progress_shows_rounds_loss_accuracy_and_spend_on_a_terminal(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    shown = fedpriv("run", file, "--out", tmp_path / "out").err
    for word in ("12/12", "loss", "accuracy", "ε"):
        assert word in shown
    assert fedpriv("run", file, "--out", tmp_path / "quiet", "--json").err == ""


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        fedpriv("run", file, "--out", tmp_path / name, "--set", f"run.seed={seed}", "--json")
    np.testing.assert_array_equal(theta(tmp_path / "a"), theta(tmp_path / "b"))
    assert (theta(tmp_path / "a") != theta(tmp_path / "c")).all()
    first, second = ((tmp_path / n / "statement.json").read_text() for n in ("a", "b"))
    assert first == second


def test_a_strategy_is_built_once_per_run(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpriv import strategies

    built: list[str] = []
    build = strategies.build

    def counted(info: Any, **rest: Any) -> Any:
        built.append(info.name)
        return build(info, **rest)

    monkeypatch.setattr(strategies, "build", counted)
    assert fedpriv("run", file, "--out", tmp_path / "out").code == 0
    real = ("--release", "--ledger", tmp_path / "data.ledger", "--new-ledger")
    assert fedpriv("run", file, *real, "--out", tmp_path / "real").code == 0
    assert built == ["gradient-perturbation"] * 2


def test_the_number_of_threads_does_not_matter(file: Path) -> None:
    found = []
    for workers in (1, 2):
        prepared = prepare(read_experiment(file))
        strategy = build_strategy(prepared, run="same")
        federation = build_federation(prepared, run="same", workers=workers)
        train(strategy, federation, lambda _query, _answer: True)
        found.append(strategy.theta)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("strategy", ["gradient-perturbation", "objective-perturbation"])
@pytest.mark.parametrize("rounds", [1, 2, 7, 11])
def test_a_run_stopped_after_any_round_ends_in_the_same_model(
    file: Path, tmp_path: Path, rounds: int, strategy: str
) -> None:
    overrides = [f"strategy.name={strategy}", "run.checkpoint_seconds=0"]
    prepared = prepare(read_experiment(file, overrides))
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
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    process = started("run", file, "--out", killed, *LONG)
    wait_for(killed / "private" / "checkpoint.npz", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "result.json").exists()
    resumed = fedpriv("run", "--resume", killed, "--json").json()
    whole = fedpriv("run", file, "--out", tmp_path / "whole", *LONG, "--json").json()
    np.testing.assert_array_equal(theta(killed), theta(tmp_path / "whole"))
    assert resumed["accuracy"] == whole["accuracy"]
    assert resumed["rounds"] == whole["rounds"] == 800


@pytest.mark.deep
def test_ctrl_c_leaves_a_run_that_can_be_resumed(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started("run", file, "--out", out, *LONG)
    wait_for(out / "private" / "checkpoint.npz", process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert f"fedpriv run --resume {out}" in error
    assert "Traceback" not in error
    assert fedpriv("run", "--resume", out, "--json").json()["rounds"] == 800


def test_a_finished_run_is_not_run_again(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    first = fedpriv("run", file, "--out", tmp_path / "out", "--json").json()
    before = (tmp_path / "out" / "model.npz").stat().st_mtime_ns
    assert fedpriv("run", "--resume", tmp_path / "out", "--json").json() == first
    assert fedpriv("run", file, "--resume", tmp_path / "out", "--json").json() == first
    unnamed = fedpriv("run", "--set", "privacy.epsilon=9", "--resume", tmp_path / "out")
    assert "a run that is resumed goes on as it began" in unnamed.message
    other = fedpriv("run", file, "--set", "run.seed=9", "--resume", tmp_path / "out")
    assert (other.code, "another experiment" in other.message) == (2, True)
    assert (tmp_path / "out" / "model.npz").stat().st_mtime_ns == before


def test_what_changed_since_a_run_started_is_noticed(file: Path, tmp_path: Path) -> None:
    table, schema = tmp_path / "own.csv", tmp_path / "own.schema.toml"
    write_table(table, schema)
    text = file.read_text().replace('name = "synthetic"', f'path = "{table}"\nschema = "{schema}"')
    file.write_text(text)
    start(prepare(read_experiment(file)), tmp_path / "out")
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


def write_table(table: Path, schema: Path) -> None:
    schema.write_text(
        'label = "ill"\npositive = "yes"\nparty = "clinic"\n[columns.age]\nkind = "number"\n'
        "min = 0\nmax = 100\n"
    )
    rng = np.random.default_rng(0)
    lines = [
        f"{'north' if i % 3 else 'south'},{age},{'yes' if age > 50 else 'no'}"
        for i, age in enumerate(rng.integers(0, 100, 300))
    ]
    table.write_text("\n".join(["clinic,age,ill", *lines]) + "\n")


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
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    chosen = ("--set", "strategy.name=party-alone")
    result = fedpriv("run", file, *chosen, "--out", tmp_path / "out", "--json").json()
    prepared = prepare(read_experiment(file))
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
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, overrides: list[str], message: str
) -> None:
    settings = [word for override in overrides for word in ("--set", override)]
    done = fedpriv("run", file, "--out", tmp_path / "out", *settings)
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
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    """A learning rate that cannot learn loses, whatever the noise."""
    with file.open("a") as text:
        text.write(
            '[tuning]\non = "breast_cancer"\n'
            '[tuning.grid]\n"strategy.learning_rate" = [1e-9, 0.5]\n'
        )
    many = ("--set", "privacy.epsilon=100")
    result = fedpriv("run", file, *many, "--out", tmp_path / "out", "--json").json()
    assert result["options"]["learning_rate"] == 0.5
    assert "public data set 'breast_cancer'" in (tmp_path / "out" / "statement.txt").read_text()


def test_a_split_of_another_size_pools_and_cuts_anew(file: Path) -> None:
    own = prepare(read_experiment(file))
    cut = prepare(read_experiment(file, ["data.test_fraction=0.4"]))
    total = own.task.records + len(own.data.dataset.test)
    assert len(cut.data.dataset.train) + len(cut.data.dataset.test) == total
    assert cut.task.sizes == (150,) * 20  # 250 records each, of which 0.6 are counted on
    assert len(cut.data.dataset.test) == pytest.approx(0.4 * total, abs=200)
    kept = prepare(read_experiment(file, ["data.test_fraction=0.2"]))
    np.testing.assert_array_equal(kept.data.dataset.test.X, own.data.dataset.test.X)
    whole = prepare(read_experiment(file, ["data.test_fraction=0"]))
    assert (len(whole.data.dataset.train), len(whole.data.dataset.test)) == (total, 0)
    assert (whole.task.records, whole.task.headroom) == (total, 1)


def test_a_seed_changes_the_split_and_nothing_else_does(file: Path) -> None:
    def tested(*settings: str) -> set[bytes]:
        data = ("data.name=breast_cancer", "data.partition=hashed", "data.parties=3")
        prepared = prepare(read_experiment(file, [*data, "data.test_fraction=0.4", *settings]))
        return {row.tobytes() for row in prepared.data.dataset.test.X}

    first = tested()
    assert tested("privacy.epsilon=3", "strategy.name=output-perturbation") == first
    other = tested("run.seed=1")
    assert 0.3 < len(first & other) / len(first) < 0.5


def test_some_natural_parties_are_among_more_of_them(file: Path) -> None:
    def names(parties: int) -> set[str]:
        prepared = prepare(read_experiment(file, [f"data.parties={parties}"]))
        assert prepared.task.parties == parties
        return set(prepared.data.dataset.party_names)

    assert names(3) < names(7) < names(20)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["strategy.name=gradient-perturbation"], lambda plan, m, n: plan / (m * n)),
        (["strategy.name=local-gradient-perturbation"], lambda plan, m, n: plan / (m**0.5 * n)),
        (["strategy.name=output-perturbation"], lambda plan, m, n: plan),
        (["strategy.name=local-output-perturbation"], lambda plan, m, n: plan * m**0.5),
        (["strategy.name=objective-perturbation"], lambda plan, m, n: plan / (m * n)),
        (["strategy.name=local-objective-perturbation"], lambda plan, m, n: plan / (m**0.5 * n)),
        (["strategy.name=pathak"], lambda plan, m, n: plan),
    ],
)
def test_noise_is_stated_where_it_acts(
    file: Path, settings: list[str], expected: Callable[[float, int, int], float]
) -> None:
    """At m parties of n records each: on the mean gradient, or on the averaged model."""
    strategy = build_strategy(prepare(read_experiment(file, settings)), run="x")
    query, plan = strategy.ask(), strategy.plan
    assert query is not None
    assert plan is not None
    m, n = strategy.task.parties, strategy.task.smallest
    stated = expected(plan.mechanisms[0].noise_stddev, m, n)
    assert acting_noise(query, plan, strategy.task) == pytest.approx(stated, rel=1e-3)


def test_the_published_noise_of_output_perturbation_is_the_textbook_one(file: Path) -> None:
    """√2 · 2G/(m·n·λ·ε), coordinate by coordinate, at λ = 0.01 and ε = 0.5."""
    overrides = ["strategy.name=output-perturbation", "strategy.law=unsound-laplace"]
    prepared = prepare(read_experiment(file, [*overrides, "privacy.epsilon=0.5"]))
    strategy = build_strategy(prepared, run="x")
    query, plan = strategy.ask(), strategy.plan
    assert query is not None
    assert plan is not None
    textbook = 2**0.5 * 2 / (prepared.task.records * 0.01 * 0.5)
    assert acting_noise(query, plan, prepared.task) == pytest.approx(textbook, rel=0.02)
    assert plan.epsilon == pytest.approx(0.5 * prepared.task.dimension**0.5)


@pytest.mark.parametrize(
    "settings", [[], ["strategy.sampling_rate=0.1", "privacy.adjacency=add-remove"]]
)
def test_spend_on_the_way_is_a_bound_and_ends_at_the_plans(file: Path, settings: list[str]) -> None:
    prepared = prepare(read_experiment(file, ["strategy.rounds=130", *settings]))
    strategy = build_strategy(prepared, run="x")
    plan = strategy.plan
    assert plan is not None
    spent = plan.spending()
    curve = [spent(t) for t in range(131)]
    assert curve[0] == 0
    assert curve == sorted(curve)
    assert curve[-1] == plan.epsilon
    for t in (1, 2, 64, 129):
        events = [(plan.event(0), t)]
        exact = account(events, delta=plan.budget.delta, accountant=plan.accountant).epsilon
        assert exact is not None
        assert exact * (1 - 1e-9) <= curve[t] <= plan.epsilon


def test_all_records_may_be_for_training(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    whole = ("--set", "data.test_fraction=0")
    done = fedpriv("run", file, *whole, "--out", tmp_path / "out")
    assert done.code == 0
    assert "metrics: none" in done.out
    alone = ("--set", "strategy.name=party-alone")
    result = fedpriv("run", file, *whole, *alone, "--out", tmp_path / "alone", "--json").json()
    assert result["accuracy"] is result["loss"] is result["majority_accuracy"] is None
    with pytest.raises(ValueError, match="nothing to compare them by"):
        simulate(read_experiment(file, ["data.test_fraction=0"]))
