"""The page about reports does what it says."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")


def test_the_example_leaves_a_page() -> None:
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(example, names)  # noqa: S102 (our own page)
    assert names["result"].page.read_text().startswith("<!doctype html>")


def test_the_options_of_the_page_are_those_of_the_command() -> None:
    from typer.main import get_command

    from fedpriv.simulations.cli import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    report, dashboard, run = (
        {option for parameter in commands[name].params for option in parameter.opts}
        for name in ("report", "dashboard", "run")
    )
    known = report | dashboard | (run & {"--track"})
    assert set(re.findall(r"(?<=[ `])--[a-z]+", PAGE)) <= known


def test_every_section_that_a_page_can_have_is_named() -> None:
    from fedpriv.simulations.run.release_outcome import REPORT

    table = PAGE[PAGE.index("| section |") : PAGE.index("The one-sentence result")]
    named = {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")}
    others = {"budget": "schedule and budget"}
    told = {others.get(name, name.replace("-", " ")) for name in REPORT}
    assert told <= named
