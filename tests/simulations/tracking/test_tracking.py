"""Trackers hear what the files of a run hold, and of a release nothing before they are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import fedpriv
from fedpriv.simulations.experiment.file import parse_experiment
from fedpriv.simulations.run import session
from fedpriv.simulations.run.launch import carry_through, open_session
from fedpriv.simulations.run.release_outcome import RESULT, ROUND
from fedpriv.simulations.tracking.named import named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.simulations.conftest import Command

STUDY: dict[str, Any] = {
    "data": {"name": "synthetic"},
    "strategy": {"name": "gradient-perturbation", "rounds": 5},
}


class Listening:
    """Keeps what it hears, and whether the result was there by then."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings: Mapping[str, str] = {}
        self.rounds: dict[int, Mapping[str, float]] = {}
        self.result: Mapping[str, float] = {}
        self.early: list[int] = []
        self.begun: bool | None = None
        self.closed = 0

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        assert name
        self.begun = (self.directory / "result.json").exists()
        self.settings = settings

    def follow(self, number: int, values: Mapping[str, float]) -> None:
        self.rounds[number] = values
        if not (self.directory / "result.json").exists():
            self.early.append(number)

    def end(self, values: Mapping[str, float]) -> None:
        self.result = values

    def close(self) -> None:
        self.closed += 1


class Failing(Listening):
    def follow(self, number: int, values: Mapping[str, float]) -> None:
        raise OSError("the server is gone")


def rows(directory: Path) -> dict[int, dict[str, float]]:
    found = json.loads((directory / "metrics.json").read_text())
    return {row.pop("round"): row for row in found}


def test_a_simulation_is_followed_round_by_round(tmp_path: Path) -> None:
    out = tmp_path / "run"
    heard = Listening(out)
    result = fedpriv.run(STUDY, out=out, trackers=[heard])
    assert heard.early == [1, 2, 3, 4, 5]
    assert heard.begun is False
    written = rows(out)
    assert heard.rounds.keys() == written.keys()
    for number, values in heard.rounds.items():
        assert values.items() <= written[number].items()
    assert heard.settings["strategy.rounds"] == "5"
    assert heard.result["accuracy"] == result.summary["accuracy"]
    assert heard.closed == 1


@pytest.mark.parametrize("strategy", ["gradient-perturbation", "objective-perturbation"])
def test_of_a_release_nothing_is_told_but_its_outcome(strategy: str, tmp_path: Path) -> None:
    """Neither when a round ended nor how many exchanges a joint fit took."""
    out = tmp_path / "run"
    heard = Listening(out)
    study = {**STUDY, "strategy": {"name": strategy}}
    study["data"] = {"name": "synthetic", "public_test": True}
    fedpriv.run(
        study, out=out, release=True, ledger=tmp_path / "ledger", new_ledger=True, trackers=[heard]
    )
    assert heard.early == []
    assert heard.begun is True  # by then its result was there
    assert heard.rounds.keys() == rows(out).keys()
    assert {name for values in heard.rounds.values() for name in values} <= ROUND.keys()
    assert heard.result.keys() <= RESULT.keys()
    assert heard.result["epsilon"] <= 1.0


def test_of_a_release_that_did_not_end_nothing_is_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    heard = Listening(out)
    begun = open_session(
        parse_experiment(STUDY),
        out=out,
        release=True,
        ledger=tmp_path / "ledger",
        new_ledger=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "train", lambda *_: False)  # as Ctrl-C would
        assert carry_through(begun, trackers=[heard]) is None
    assert (heard.begun, heard.closed) == (None, 0)


def test_a_release_is_made_whether_or_not_a_tracker_can_be_reached(tmp_path: Path) -> None:
    class Away(Listening):
        def begin(self, name: str, settings: Mapping[str, str]) -> None:
            raise OSError("no server")

    out = tmp_path / "run"
    away = Away(out)
    with pytest.warns(UserWarning, match="Away is left out: no server"):
        fedpriv.run(
            STUDY, out=out, release=True, ledger=tmp_path / "l", new_ledger=True, trackers=[away]
        )
    assert (out / "result.json").exists()
    assert (away.rounds, away.closed) == ({}, 0)


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    failing, heard = Failing(out), Listening(out)
    with pytest.warns(UserWarning, match="Failing is left out: the server is gone"):
        result = fedpriv.run(STUDY, out=out, trackers=[failing, heard])
    assert len(heard.rounds) == 5
    again = {**fedpriv.run(STUDY).summary, "seconds": result.summary["seconds"]}
    assert result.summary == again


def test_tensorboard_shows_the_curves_of_the_files(fedpriv: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra 'tracking'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out, board = tmp_path / "run", tmp_path / "board"
    study = tmp_path / "study.toml"
    study.write_text('[data]\nname = "synthetic"\n[strategy]\nname = "gradient-perturbation"\n')
    done = fedpriv(
        *("run", study, "--set", "strategy.rounds=5", "--out", out),
        *("--track", f"tensorboard:{board}"),
    )
    assert done.code == 0, done.err
    (folder,) = board.iterdir()
    events = EventAccumulator(str(folder)).Reload()
    for name in ("accuracy", "loss", "epsilon"):
        drawn = {event.step: event.value for event in events.Scalars(name)}
        assert drawn == pytest.approx({n: row[name] for n, row in rows(out).items()}, rel=1e-6)
    assert events.Scalars("result/accuracy")[0].value == pytest.approx(
        json.loads((out / "result.json").read_text())["accuracy"], rel=1e-6
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own database code
def test_mlflow_has_settings_curves_and_how_a_run_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs the extra 'tracking'")
    monkeypatch.chdir(tmp_path)
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    fedpriv.run(STUDY, out=tmp_path / "run", trackers=named([f"mlflow:{address}"]))
    begun = open_session(parse_experiment(STUDY), out=tmp_path / "stopped")
    with monkeypatch.context() as patch:
        patch.setattr(session, "train", lambda *_: False)  # as Ctrl-C would
        assert carry_through(begun, trackers=named([f"mlflow:{address}"])) is None
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=address)
    home = client.get_experiment_by_name("fedpriv")
    assert home is not None
    stopped, finished = client.search_runs([home.experiment_id])
    assert (finished.info.status, stopped.info.status) == ("FINISHED", "KILLED")
    assert finished.data.params["strategy.name"] == "gradient-perturbation"
    for name in ("accuracy", "loss", "epsilon"):
        history = client.get_metric_history(finished.info.run_id, name)
        drawn = {step.step: step.value for step in history}
        assert drawn == {n: row[name] for n, row in rows(tmp_path / "run").items()}


def test_a_tracker_that_nobody_knows_is_refused(fedpriv: Command) -> None:
    message = fedpriv("run", "quickstart", "--track", "tensorbord:here").message
    assert "track must be one of tensorboard, mlflow" in message
    assert "Did you mean 'tensorboard'?" in message
