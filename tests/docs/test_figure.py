"""The figure and the numbers of the README: drawn from a comparison, light and dark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "chem97.svg"
MOST_BYTES = 150_000


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))


@pytest.mark.usefixtures("site")
def test_a_comparison_becomes_a_figure_and_a_table(fedpriv: Command, tmp_path: Path) -> None:
    import figure

    study = ["--set", "data.name=synthetic", "--set", "compare.epsilons=[0.5, 2.0]"]
    few = ["--set", "compare.seeds=2", "--workers", "1", "--out", tmp_path]
    done = fedpriv("compare", "quickstart", *study, *few)
    assert done.code == 0, done.err
    report, rows = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("report", "rows"))
    drawing = figure.figure(report)
    names = [str(node.text) for node in ET.fromstring(drawing).iter() if "name" in _classes(node)]  # noqa: S314
    assert sorted(names) == ["gradient-perturbation", "non-private", "party-alone"]
    assert "prefers-color-scheme: dark" in drawing
    lines = figure.table(rows).splitlines()
    assert lines[0] == "| accuracy in % | ε = 0.5 | ε = 2 |"
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| non-private", "| party-alone", "| gradient-perturbation",
    ]  # fmt: skip
    mean = f"{100 * rows[-1]['mean']:.1f} ± "
    assert lines[-1].split(" | ")[-1].startswith(mean)
    readme = figure.with_table("before\n{}\nold\n{}\nafter".format(*figure.MARKS), "new")
    assert readme == "before\n{}\nnew\n{}\nafter".format(*figure.MARKS)


def _classes(node: ET.Element) -> list[str]:
    return node.get("class", "").split()


def test_the_figure_of_the_readme_is_small_and_complete() -> None:
    text = FIGURE.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {node.text for node in ET.fromstring(text).iter() if "name" in _classes(node)}  # noqa: S314
    assert len(names) == 9
    assert all(f"\n| {name} |" in readme for name in names)


@pytest.mark.deep
@pytest.mark.usefixtures("site")
def test_the_numbers_of_the_readme_are_those_of_the_demo(tmp_path: Path) -> None:
    """A change of the noise or of a default changes them: `make figure` puts new ones there."""
    main = "from fedpriv.simulations.cli import main; main()"
    command = [sys.executable, "-c", main, "compare", "chem97", "--out", str(tmp_path / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    import figure

    table = figure.table(json.loads((tmp_path / "out" / "rows.json").read_text()))
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
