"""docs/inference.md: its files are made, and its commands print what it shows."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.run import release_outcome as outcome

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

TEXT = (Path(__file__).parents[3] / "docs" / "inference.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def clinics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of the page."""
    folder = tmp_path_factory.mktemp("clinics")
    for code, name in re.findall(r"```(?:python|toml)\n(# (\S+)\n.*?)```", TEXT, re.DOTALL):
        (folder / name).write_text(code, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path("make_table.py")
    return folder


def from_the_table_on(said: str) -> list[str]:
    """The coefficients, without times and places."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("coefficients:"))
    return [line for line in lines[start:] if not line.startswith("results:")]


CONSOLE = re.findall(r"```text\n\$ (.*?)\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_a_command_prints_what_the_page_shows(
    command: str, shown: str, fedpriv: Command, clinics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clinics)
    done = fedpriv(*shlex.split(command)[1:])
    assert from_the_table_on(done.out) == from_the_table_on(shown)
    assert done.code == ("no intervals" in shown)


@pytest.mark.parametrize("schema", ["pressure.toml", "relapse.toml"])
def test_a_release_carries_its_table(
    schema: str, fedpriv: Command, clinics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clinics)
    book, out = tmp_path / "clinics.ledger", tmp_path / "table"
    real = ("--release", "--ledger", book, "--new-ledger", "--out", out)
    told = fedpriv("fit", "study.toml", "--set", f"data.schema={schema}", *real, "--json").json()
    result = json.loads((out / "result.json").read_text())
    assert told["coefficients"] == result["coefficients"]
    assert outcome.RESULT["coefficients"] is outcome.Origin.NOISY
    assert {path.name for path in out.iterdir()} == {*outcome.FILES, "private"}
    assert [row["name"] for row in result["coefficients"]["rows"]][-1] == "(intercept)"
    statement = json.loads((out / "statement.json").read_text())
    assert "coefficients" not in statement["run"]  # parties sign it, and could not check them
    text = (out / "statement.txt").read_text()
    assert "8. Coefficients" in text
    assert "ward: compared with day" in text
    with Ledger.open(book, read_only=True) as ledger:
        assert ledger.spent().guarantee.epsilon == pytest.approx(1.0)


def test_what_has_no_interval_is_refused(
    fedpriv: Command, clinics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clinics)
    real = ("--release", "--ledger", tmp_path / "l", "--new-ledger", "--out", tmp_path / "o")
    clipped = fedpriv("fit", "study.toml", "--set", "data.scaling=clip", *real)
    assert clipped.code == 2
    assert not (tmp_path / "l").exists()
    assert "needs data.scaling = 'divide'" in clipped.message
    several = fedpriv("fit", "study.toml", "--set", "model.name=huber-regression")
    assert several.code == 2
    assert "inference needs the squared or the logistic loss" in several.message
