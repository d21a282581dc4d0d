"""The pages about one's own strategy, model, loss and data, followed to the letter."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

DOCS = Path(__file__).parents[3] / "docs"
MAIN = "from fedpriv.simulations.cli import main; main()"
PAGES = ("own-strategy.md", "own-model.md")


def files(page: str) -> dict[str, str]:
    """The complete files of a page: code that begins with its own name."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:python|toml)\n(# (\S+)\n.*?)```", text, re.DOTALL)
    return {name: code for code, name in blocks}


def commands(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


CASES = [(page, command) for page in PAGES for command in commands(page)]
LONG = ("fedpriv run signs.toml --engine local", "fedpriv compare nets.toml")


@pytest.mark.parametrize(
    ("page", "command"),
    [
        pytest.param(page, command, id=command, marks=[pytest.mark.deep] * (command in LONG))
        for page, command in CASES
    ],
)
def test_a_command_of_the_page_works_with_the_files_of_the_page(
    page: str,
    command: str,
    fedpriv: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "nets" in command:
        pytest.importorskip("sklearn", reason="the digits come with the extra 'data'")
    for name, code in files(page).items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "fedpriv"
    few = ["--set", "compare.seeds=1", "--workers", "1"] if "compare" in arguments else []
    done = fedpriv(*arguments, *few)
    assert done.code == 0, done.err


def test_the_pages_have_files_and_commands() -> None:
    assert set(files("own-strategy.md")) == {"signs.py", "signs.toml", "momentum.py"}
    assert set(files("own-model.md")) == {
        "nets.py", "nets.toml", "losses.py", "losses.toml", "blobs.py",
    }  # fmt: skip
    assert {command.split()[1] for _, command in CASES} == {"list", "run", "compare"}


def test_the_loss_of_the_page_understated_is_refused_as_the_page_says(
    fedpriv: Command, tmp_path: Path
) -> None:
    for name, code in files("own-model.md").items():
        changed = code.replace("smoothness = 0.5 ", "smoothness = 0.475 ")
        (tmp_path / name).write_text(changed, encoding="utf-8")
    done = fedpriv("run", tmp_path / "losses.toml", "--out", tmp_path / "out")
    assert done.code == 2
    assert "smoothness is declared as 0.475, and at score" in done.message


@pytest.mark.skipif(find_spec("ray") is None, reason="engine 'ray' comes with the extra 'ray'")
@pytest.mark.skipif("FEDPRIV_STRESS" not in os.environ, reason="FEDPRIV_STRESS=1: a minute")
def test_parties_in_processes_of_their_own_run_the_same_code(tmp_path: Path) -> None:
    """A strategy and a module with frozen weights at once, on Ray as in one process."""
    pytest.importorskip("sklearn", reason="the digits come with the extra 'data'")
    for page in PAGES:
        for name, code in files(page).items():
            (tmp_path / name).write_text(code, encoding="utf-8")
    settings = (
        f"strategy.name={tmp_path}/momentum.py:Momentum", "strategy.rounds=2", "data.parties=3",
        f"model.name={tmp_path}/nets.py:FrozenEncoder", "model.options={}",
    )  # fmt: skip
    chosen = [part for setting in settings for part in ("--set", setting)]
    models = []
    for engine in ("vectorized", "ray"):
        out = tmp_path / engine
        command = ["run", str(tmp_path / "nets.toml"), *chosen, "--engine", engine]
        done = subprocess.run(
            [sys.executable, "-P", "-c", MAIN, *command, "--out", str(out)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        with np.load(out / "model.npz") as arrays:
            models.append(arrays["theta"])
    assert np.abs(models[0] - models[1]).max() < 1e-4
