"""The command line, called in this process: as a person would, without the time to start Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Done(NamedTuple):
    """What a command left: its exit status and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def message(self) -> str:
        """The error in one line, as it would be on a wide terminal."""
        return " ".join(self.err.split())


Command = Callable[..., Done]


@pytest.fixture
def fedpriv(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `fedpriv` with some arguments."""

    def run(*arguments: object) -> Done:
        from fedpriv.simulations.cli import main

        monkeypatch.setattr(sys, "argv", ["fedpriv", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        captured = capsys.readouterr()
        return Done(int(code or 0), captured.out, captured.err)

    return run
