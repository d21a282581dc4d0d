"""docs/audit.md shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.simulations.conftest import Command

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_can_be_followed(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (study,) = blocks("toml")
    Path("study.toml").write_text(study, encoding="utf-8")
    for block in blocks("text"):
        command, _, expected = block.partition("\n")
        done = fedpriv(*shlex.split(command)[2:])
        assert done.code == 0, done.err
        if expected:
            assert done.out == expected
    assert Path("audited/audit.json").exists()
    assert Path("attacked/attacks.json").exists()
