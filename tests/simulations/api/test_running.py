"""`fedpriv.run` and `fedpriv.compare`: what the commands do, for a notebook."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv import Comparison, Ledger, Result, compare, run
from fedpriv.privacy.budget import BudgetExceeded
from fedpriv.simulations.run import session
from tests.simulations.api.tables import clinic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STUDY = {"data": {"name": "synthetic"}, "strategy": {"name": "gradient-perturbation", "rounds": 4}}
FILE = """
[data]
name = "synthetic"
[strategy]
name = "gradient-perturbation"
rounds = 4
"""
KEPT = {
    "config.toml", "metrics.csv", "metrics.json", "model.npz", "plan.json", "result.json",
    "statement.json", "statement.txt", "statement.yaml", "report.html", "report.json",
}  # fmt: skip


def theta(directory: Path) -> Any:
    with np.load(directory / "model.npz") as arrays:
        return arrays["theta"]


def test_a_file_a_dict_and_the_command_are_one_run(
    fedpriv: Callable[..., Any], tmp_path: Path
) -> None:
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text(FILE)
    changes = ("--set", "privacy.epsilon=0.5", "--set", "run.seed=7")
    assert fedpriv("run", file, "--out", out, *changes).code == 0
    for source in (STUDY, file, str(file)):
        result = run(source, privacy={"epsilon": 0.5}, run={"seed": 7})
        np.testing.assert_array_equal(theta(result.directory), theta(out))
        assert result.summary["config_hash"] == Result.load(out).summary["config_hash"]


def test_another_strategy_leaves_the_options_of_the_old_one_behind() -> None:
    result = run(STUDY, strategy={"name": "output-perturbation"})
    assert (result.summary["strategy"], result.summary["rounds"]) == ("output-perturbation", 1)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"epsilon": 0.5}, r'privacy.epsilon=…, or in Python privacy=\{"epsilon": …\}'),
        ({"privacy": {"epsilonn": 0.5}}, "Did you mean 'epsilon'"),
        ({"privacy": {"epsilon": -1}}, "privacy.epsilon must be greater than 0"),
        ({"privacy": {"epsilon": None}}, "privacy.epsilon must be text"),
        ({"strategy": {"name": "magic"}}, "strategy.name must be one of"),
        ({"release": True}, "out must be given"),
        ({"release": True, "out": "new"}, "needs --ledger PATH"),
        ({"release": True, "out": "new", "ledger": "no"}, "'no' does not exist"),
        ({"new_ledger": True, "ledger": "no"}, "--new-ledger is for the first --release"),
    ],
)
def test_what_is_wrong_is_said_as_the_command_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        run(STUDY, **tables)
    assert not list(tmp_path.iterdir())


def test_records_in_memory_are_no_experiment_and_where_they_go_is_said() -> None:
    with pytest.raises(ValueError, match=r"got ndarray\. Records go into a file of their own"):
        run(np.zeros((3, 2)))  # type: ignore[arg-type]


def test_a_temporary_directory_goes_with_its_result_and_a_copy_stays(tmp_path: Path) -> None:
    result = run(STUDY)
    directory = result.directory
    saved = result.save(tmp_path / "saved")
    assert {path.name for path in saved.iterdir()} == KEPT | {"machine.json"}
    with pytest.raises(ValueError, match="not an empty directory"):
        result.save(saved)
    again = Result.load(saved)
    assert (again.summary, again.history) == (result.summary, result.history)
    del result
    gc.collect()
    assert saved.exists()
    assert not directory.exists()


def test_a_result_shows_what_there_is_to_see() -> None:
    result = run(STUDY, privacy={"epsilon": 3.0})
    assert result.epsilon is not None
    assert result.epsilon <= 3.0
    assert (result.delta, result.adjacency) == (1e-6, "replace-one")
    assert result.statement.startswith("SIMULATED: no privacy was spent")
    frame = result.to_frame()
    assert list(frame["round"]) == [1, 2, 3, 4]
    assert frame["epsilon"].is_monotonic_increasing
    assert "epsilon <= 3 at delta = 1e-06" in repr(result)
    assert "epsilon &lt;= 3" in result._repr_html_()
    assert len(result.plot().axes) == 2
    assert result.plot()._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_strategy_that_promises_nothing_shows_no_epsilon() -> None:
    result = run(STUDY, strategy={"name": "non-private"})
    assert (result.epsilon, result.delta, result.adjacency) == (None, None, None)
    assert len(result.plot().axes) == 1
    assert "no privacy is promised" in result._repr_html_()


def test_names_are_not_markup(tmp_path: Path) -> None:
    result = run(STUDY, strategy={"label": "<script>"}, out=tmp_path / "out")
    assert "<script>" not in result._repr_html_()


@pytest.mark.parametrize(("method", "extra"), [("to_frame", "frame"), ("plot", "report")])
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, method: str, extra: str
) -> None:
    result = run(STUDY)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=rf"pip install 'fedpriv\[{extra}\]'"):
        getattr(result, method)()


def test_a_release_is_paid_for_once_and_refused_when_the_budget_is_gone(tmp_path: Path) -> None:
    study, ledger = clinic(tmp_path), tmp_path / "clinic.ledger"
    study["strategy"]["clip"] = 1.0
    paid: dict[str, Any] = {"release": True, "ledger": ledger}
    result = run(study, out=tmp_path / "one", new_ledger=True, **paid)
    assert result.summary["simulated"] is False
    assert "SIMULATED" not in result.statement
    assert "accuracy" in result.metrics
    assert set(result.model.predict(tmp_path / "clinic.csv")) <= {"well", "ill"}
    assert {path.name for path in result.save(tmp_path / "copy").iterdir()} == KEPT
    with Ledger.open(ledger) as book:
        spent = book.spent().guarantee.epsilon
    assert spent == pytest.approx(20.0)
    with pytest.raises(BudgetExceeded):
        run(study, out=tmp_path / "two", **paid)
    assert not (tmp_path / "two" / "model.npz").exists()


def test_a_run_in_a_thread_is_the_same_run() -> None:
    found: list[Result] = []
    worker = threading.Thread(target=lambda: found.append(run(STUDY)))
    worker.start()
    worker.join()
    here = run(STUDY)
    np.testing.assert_array_equal(theta(found[0].directory), theta(here.directory))


def test_a_stopped_run_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_on = session.carry_on

    def stopped(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return carry_on(*arguments, **options)

    monkeypatch.setattr(session, "carry_on", stopped)
    with pytest.raises(KeyboardInterrupt, match="fedpriv run --resume"):
        run(STUDY, out=tmp_path / "out")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        run(STUDY)
    assert set(tmp_path.iterdir()) == before


def test_a_comparison_shows_what_there_is_to_see(tmp_path: Path) -> None:
    axes = {"epsilons": [0.5, 5.0], "seeds": 1}
    comparison = compare(STUDY, strategy={"name": "output-perturbation"}, compare=axes, workers=1)
    assert isinstance(comparison, Comparison)
    assert [row.epsilon_budget for row in comparison.rows] == [None, None, 0.5, 5.0]
    frame = comparison.to_frame()
    assert list(frame["label"]) == [row.label for row in comparison.rows]
    assert "One seed" in comparison.findings[0]
    html = comparison._repr_html_()
    assert html.count("<tr>") == 5
    assert html.count("<li>") == len(comparison.findings)
    assert len(comparison.plot().axes) == 1
    saved, directory = comparison.save(tmp_path / "saved"), comparison.directory
    assert (saved / "report.md").read_text() == comparison.report.read_text()
    del comparison
    gc.collect()
    assert not directory.exists()


SCRIPT = """
import fedpriv
print("began")
study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
print(len(fedpriv.compare(study, compare={"seeds": 1}, workers=2).rows))
"""


@pytest.mark.deep
def test_a_script_needs_no_guard_and_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["began", "3"]
