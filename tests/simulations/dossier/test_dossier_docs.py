"""The page about dossiers: its commands work, and its tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from typer.main import get_command

from fedpriv.simulations.cli import app
from fedpriv.simulations.dossier.questions import QUESTIONS
from tests.simulations.dossier.scenes import study

if TYPE_CHECKING:
    import pytest

    from tests.simulations.conftest import Command

PAGE = (Path(__file__).parents[3] / "docs" / "dossier.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_work_in_this_order(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study(tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "fedpriv"
        done = fedpriv(*arguments)
        assert done.code == 0, done.err
    assert "The dossier holds." in done.out
    listed = set(re.findall(r"^\| `(dossier\.\w+|registry\.yaml|evidence/|\S+)` \|", PAGE, re.M))
    there = {p.name + "/" * p.is_dir() for p in (tmp_path / "dossier").iterdir()}
    assert there == {name for name in listed if not name.startswith("-")}


def test_every_question_is_listed_by_topic() -> None:
    for topic in dict.fromkeys(each.topic for each in QUESTIONS):
        ids = ", ".join(each.id for each in QUESTIONS if each.topic == topic)
        assert f"| {topic} | {ids} |" in PAGE


def test_the_options_of_the_page_are_those_of_the_commands() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    known = {
        option
        for name in ("dossier", "verify", "run", "audit")
        for parameter in commands[name].params
        for option in parameter.opts
    }
    assert set(re.findall(r"(?<=[ `])--[a-z-]+", PAGE)) <= known
