"""`fedpriv run --release`: every round is paid for once, and noised once, whatever happens."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpriv.privacy.ledger import Kind, Ledger
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.run import release_outcome as outcome
from fedpriv.simulations.run.ledgers import make_ledger, open_ledger
from fedpriv.simulations.run.prepare import build_federation, build_strategy, check, prepare
from fedpriv.simulations.run.session import carry_on, reopen, start
from fedpriv.strategies import STRATEGIES, StrategyInfo
from fedpriv.strategies.common.building import Options

ROUNDS = 8
EXPERIMENT = f"""
[data]
name = "synthetic"

[strategy]
name = "gradient-perturbation"
rounds = {ROUNDS}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(EXPERIMENT)
    return path


def new(book: Path) -> tuple[str | Path, ...]:
    """For real, on a ledger that is made for it."""
    return "--release", "--ledger", book, "--new-ledger"


def rows(path: Path, kind: Kind) -> Counter[int]:
    with Ledger.open(path, read_only=True) as ledger:
        return Counter(row.round for row in ledger.rows() if row.kind == kind)


def committed(path: Path) -> dict[int, bytes | None]:
    with Ledger.open(path, read_only=True) as ledger:
        return {row.round: row.release_hash for row in ledger.rows() if row.kind == Kind.COMMITTED}


def test_a_release_pays_for_every_round_and_draws_its_noise_from_the_system(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    books, out = [tmp_path / "a.ledger", tmp_path / "b.ledger"], [tmp_path / "a", tmp_path / "b"]
    results = [
        fedpriv("run", file, *new(book), "--out", o, "--json").json()
        for book, o in zip(books, out, strict=True)
    ]
    assert results[0]["simulated"] is False
    assert "seed" not in results[0]
    assert results[0]["run"] != results[1]["run"]
    models = [np.load(o / "model.npz")["theta"] for o in out]
    assert (models[0] != models[1]).all()
    for kind in (Kind.RESERVED, Kind.COMMITTED):
        assert rows(books[0], kind) == Counter(range(ROUNDS))
    with Ledger.open(books[0]) as ledger:
        assert ledger.verify().rows > 0
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    statement = (out[0] / "statement.txt").read_text()
    assert "SIMULATED" not in statement
    assert "AES-256-CTR keyed by the operating system; no seed" in statement
    assert "ledger:" in statement
    assert "one process held all records" in statement


def test_no_stream_of_a_release_has_a_seed(file: Path) -> None:
    prepared = prepare(read_experiment(file))
    for release in (True, False):
        strategy = build_strategy(prepared, run="x", release=release)
        federation = build_federation(prepared, run="x", release=release)
        streams = strategy._run.noise(0), federation._sampling(0)  # type: ignore[attr-defined]
        assert all(stream.secure is release for stream in streams)


def test_a_budget_is_spent_once(fedpriv: Callable[..., Any], file: Path, tmp_path: Path) -> None:
    book = tmp_path / "data.ledger"
    real = ("--release", "--ledger", book)
    assert fedpriv("run", file, *new(book), "--out", tmp_path / "a", "--json").code == 0
    before = rows(book, Kind.RESERVED)
    done = fedpriv("run", file, *real, "--out", tmp_path / "b", "--json")
    assert done.code == 2
    assert "Nothing was spent" in done.message
    assert "Traceback" not in done.err
    assert rows(book, Kind.RESERVED) == before
    assert not (tmp_path / "b").exists()


def test_nothing_about_the_records_is_written_beside_the_release(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    real = (*new(tmp_path / "l.ledger"), "--out", tmp_path / "out")
    done = fedpriv("run", file, *real)
    assert "metrics: none" in done.out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result.keys() <= outcome.RESULT.keys()
    assert result["accuracy"] is result["loss"] is result["test_records"] is None
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert len(metrics) == ROUNDS
    assert all(row.keys() == outcome.ROUND.keys() for row in metrics)
    assert all(row[key] is None for row in metrics for key in ("accuracy", "loss"))
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert found == {*outcome.FILES, "private"}
    own = tmp_path / "out" / "private"
    assert {path.name for path in own.iterdir()} == {"run.json", "costs.json"}
    assert own.stat().st_mode & 0o077 == 0
    assert json.loads((own / "run.json").read_text())["data"] is None
    assert json.loads((own / "costs.json").read_text())["seconds"] > 0
    assert (
        "no metric on party data was published" in (tmp_path / "out" / "statement.txt").read_text()
    )


def test_a_field_that_is_not_stated_is_not_published() -> None:
    """A new field must say where it comes from before a release may contain it."""
    with pytest.raises(RuntimeError, match="train_records must be stated in"):
        outcome.sift({"epsilon": 1.0, "train_records": 41}, outcome.RESULT)
    assert outcome.sift({"epsilon": 1.0, "seconds": None}, outcome.RESULT) == {"epsilon": 1.0}


@pytest.mark.parametrize("partition", ["iid", "sized", "dirichlet"])
def test_parties_that_are_dealt_out_are_not_released(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, partition: str
) -> None:
    dealt = ("--set", f"data.partition={partition}", "--set", "data.parties=4")
    done = fedpriv("run", file, *new(tmp_path / "l.ledger"), *dealt, "--out", tmp_path / "out")
    assert done.code == 2
    assert "needs data.partition = 'natural' or 'hashed'" in done.message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["privacy.adjacency=add-remove"], "needs data.records"),
        (["privacy.unit=party"], "needs data.records"),
        (["privacy.unit=person"], "needs data.records"),
        (
            ["privacy.unit=party", "data.records=4000"],
            "unit must be 'record' or 'person' for gradient",
        ),
        (["data.min_records=2"], "needs no data.min_records"),
        (["data.records=4000"], "must not be given under replace-one"),
        (["data.partition=hashed", "data.parties=4"], "needs one party under replace-one"),
        (["data.public_test=true", "data.test_fraction=0.3"], "set apart"),
    ],
)
def test_what_only_the_records_could_decide_is_refused_before_they_are_read(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path, settings: list[str], message: str
) -> None:
    chosen = [argument for setting in settings for argument in ("--set", setting)]
    done = fedpriv("run", file, *new(tmp_path / "l.ledger"), *chosen, "--out", tmp_path / "out")
    assert done.code == 2
    assert message in done.message


def test_noise_of_the_parties_own_is_not_released_whatever_the_strategy_is_called(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    for info in STRATEGIES.values():
        own = info.noise_by == "parties"
        assert own == (info.name.startswith("local-"))
        if own:
            done = fedpriv(
                "run", file, *new(tmp_path / "l.ledger"), "--set", f"strategy.name={info.name}",
                "--out", tmp_path / info.name,
            )  # fmt: skip
            assert done.code == 2
            assert "needs noise that the server adds" in done.message


def test_a_strategy_must_say_who_draws_its_noise() -> None:
    with pytest.raises(TypeError, match="noise_by"):
        StrategyInfo(name="x", summary="", convex_only=False, options=Options)  # type: ignore[call-arg]


def test_public_test_records_may_be_scored(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    real = (*new(tmp_path / "l.ledger"), "--out", tmp_path / "out")
    result = fedpriv("run", file, *real, "--set", "data.public_test=true", "--json").json()
    assert 0 <= result["accuracy"] <= 1
    text = " ".join((tmp_path / "out" / "statement.txt").read_text().split())
    assert "metrics are exact, on test records that were declared to be public" in text


@pytest.mark.parametrize("moment", ["reserve", "commit", "after"])
def test_a_crash_at_any_moment_of_a_round_spends_and_draws_nothing_twice(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Crash in round 4: before it is paid, before its release is stored, or right after."""
    book, out = tmp_path / "data.ledger", tmp_path / "out"
    prepared = prepare(read_experiment(file))
    strategy = check(prepared, release=True)
    assert strategy is not None
    make_ledger(book, prepared.experiment, strategy.plan).close()
    start(prepared, out, release=True, ledger=book)

    def crash(*_: object, **__: object) -> None:
        raise ConnectionError("power cut")

    calls = 0
    name = {"reserve": "reserve", "commit": "commit", "after": "commit"}[moment]
    real = getattr(Ledger, name)

    def sometimes(self: Ledger, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4 and moment != "after":
            crash()
        done = real(self, *arguments, **named)
        if calls == 4:
            crash()
        return done

    monkeypatch.setattr(Ledger, name, sometimes)
    with open_ledger(reopen(out)) as ledger, pytest.raises(ConnectionError):
        carry_on(reopen(out), ledger=ledger)
    monkeypatch.undo()
    before = committed(book)
    with open_ledger(reopen(out)) as ledger:
        result = carry_on(reopen(out), ledger=ledger)
    assert result is not None
    assert result["rounds"] == ROUNDS
    for kind in (Kind.RESERVED, Kind.COMMITTED):
        assert rows(book, kind) == Counter(range(ROUNDS))
    after = committed(book)
    assert {t: after[t] for t in before} == before
    assert len(before) == (4 if moment == "after" else 3)
    with Ledger.open(book) as ledger:
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_killed_release_is_resumed_without_double_spending(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    book, out = tmp_path / "data.ledger", tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", "from fedpriv.simulations.cli import main; main()", "run", file,
         *new(book), "--out", out, "--set", "strategy.rounds=300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    for _ in range(6000):
        if (out / "private" / "checkpoint.npz").exists() or process.poll() is not None:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    before = committed(book)
    assert before
    result = fedpriv("run", "--resume", out, "--json").json()
    assert result["rounds"] == 300
    assert rows(book, Kind.RESERVED) == rows(book, Kind.COMMITTED) == Counter(range(300))
    after = committed(book)
    assert {t: after[t] for t in before} == before


def test_the_released_model_follows_from_the_ledger_alone(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    """Replaying the stored releases, without a federation, ends in the published model."""
    book, out = tmp_path / "data.ledger", tmp_path / "out"
    run = fedpriv("run", file, *new(book), "--out", out, "--json").json()["run"]
    with Ledger.open(book) as ledger:
        prepared = prepare(read_experiment(file))
        strategy = build_strategy(prepared, run=run, release=True, ledger=ledger)
        assert strategy.ask() is None
    np.testing.assert_array_equal(strategy.theta, np.load(out / "model.npz")["theta"])


def test_another_data_set_is_refused_by_the_ledger(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    real = ("--release", "--ledger", tmp_path / "data.ledger")
    half = ("--set", "privacy.epsilon=0.5")
    book = ("--data-name", "data", "--epsilon", 2, "--delta", 1e-6)
    assert fedpriv("ledger", "init", tmp_path / "data.ledger", *book).code == 0
    first = fedpriv("run", file, *real, *half, "--out", tmp_path / "a", "--json")
    assert first.code == 0
    other = ("--set", "data.name=breast_cancer", "--set", "data.partition=hashed",
             "--set", "data.parties=1")  # fmt: skip
    done = fedpriv("run", file, *real, *half, *other, "--out", tmp_path / "b", "--json")
    assert done.code == 2
    assert "not the records of" in done.message


def test_what_has_no_guarantee_is_not_released(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    for name in ("non-private", "pooled", "party-alone"):
        done = fedpriv(
            "run", file, *new(tmp_path / "l.ledger"), "--set",
            f"strategy.name={name}", "--out", tmp_path / name,
        )  # fmt: skip
        assert done.code == 2
        assert "needs a strategy with a guarantee" in done.message
    assert not (tmp_path / "l.ledger").exists()


def test_a_simulation_leaves_one_uncharged_row(
    fedpriv: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    book = tmp_path / "data.ledger"
    assert fedpriv("run", file, *new(book), "--out", tmp_path / "r", "--set",
                   "privacy.epsilon=0.5").code == 0  # fmt: skip
    with Ledger.open(book) as ledger:
        spent = ledger.spent().total
    for name in ("a", "b"):  # the same simulation again is the same row
        assert fedpriv("run", file, "--ledger", book, "--out", tmp_path / name, "--json").code == 0
    assert sum(rows(book, Kind.SIMULATED).values()) == 1
    with Ledger.open(book) as ledger:
        assert ledger.spent().total == spent
