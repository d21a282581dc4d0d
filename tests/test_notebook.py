"""The notebook of the documentation runs, cell by cell, in a fresh interpreter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"

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


def cells() -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def test_every_cell_of_the_notebook_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(cells()),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"^SHOWN (\w+)", done.stdout, re.MULTILINE)
    assert shown == [
        "Result", "DataFrame", "Shown", "ndarray", "NoneType", "Comparison", "Shown",
    ]  # fmt: skip
    assert "SIMULATED: no privacy was spent" in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_notebook_is_short_and_the_readme_shows_its_lines() -> None:
    code = [line for cell in cells() for line in cell.splitlines() if line]
    assert len(code) <= 12
    section = (ROOT / "README.md").read_text().split("## In a notebook")[1]
    block = section.split("```python\n")[1].split("```")[0]
    shown = [line.split("  #")[0].rstrip() for line in block.splitlines() if line]
    assert set(shown) <= set(code)
    assert "docs/quickstart.ipynb" in section
