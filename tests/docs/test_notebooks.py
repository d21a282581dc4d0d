"""The notebooks of the documentation run, cell by cell, in fresh interpreters: README's, too."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the last expressions of the cells are, in order; None for cells without one.
SHOWN = {
    "quickstart": ["Result", "DataFrame", "Shown", "ndarray", "NoneType", "Comparison", "Shown"],
    "own-data": [
        "DataFrame", "Result", "DataFrame", "Shown", "NoneType", "ndarray", "NoneType", "DataFrame",
    ],
    "deployment-in-one-process": [
        "NoneType", "tuple", "NoneType", "NoneType", "ndarray", "NoneType", "NoneType",
    ],
}  # fmt: skip
SAID = {
    "quickstart": "SIMULATED: no privacy was spent",
    "own-data": "the ledger is used up",
    "deployment-in-one-process": "this party insists on 'active'",
}

# As a notebook does: the value of a cell's last expression is shown, in the richest form it has.
RUNNER = """
import ast, json, sys
space = {"__name__": "__main__"}
for source in json.load(sys.stdin):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), space) if last else None
    forms = [form for form in ("_repr_png_", "_repr_html_") if hasattr(value, form)]
    assert not forms or any(getattr(value, form)() for form in forms)
    print("SHOWN", type(value).__name__, *forms, "" if value is None else repr(value))
"""


def cells(name: str) -> list[str]:
    notebook = json.loads((ROOT / "docs" / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def test_all_notebooks_are_run() -> None:
    assert {path.stem for path in (ROOT / "docs").glob("*.ipynb")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_every_cell_of_a_notebook_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="the notebooks need the extra 'frame'")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(cells(name)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^SHOWN (\w+)", done.stdout, re.MULTILINE) == SHOWN[name]
    assert SAID[name] in done.stdout
    if name == "quickstart":  # nothing of a simulation stays behind
        assert not list(tmp_path.iterdir())
    if name == "deployment-in-one-process":  # every party has signed, for all that it paid
        (text,) = (tmp_path / "clinics/server/runs").glob("*/statement.signed.json")
        signatures = json.loads(text.read_text())["signatures"]["parties"]
        assert [(row["name"], row["releases"]) for row in signatures] == [
            ("north", 3),
            ("south", 3),
            ("west", 3),
        ]


def test_the_notebook_is_short_and_the_readme_shows_its_lines() -> None:
    code = [line for cell in cells("quickstart") for line in cell.splitlines() if line]
    assert len(code) <= 12
    section = (ROOT / "README.md").read_text().split("## In a notebook")[1]
    block = section.split("```python\n")[1].split("```")[0]
    shown = [line.split("  #")[0].rstrip() for line in block.splitlines() if line]
    assert set(shown) <= set(code)
    assert all(f"docs/{name}.ipynb" in section for name in SHOWN)
