"""Nothing that lies in a member's folder is run in the place of what is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.deploy.programs import flwr, party_programs, server_programs
from fedpriv.simulations.deploy.templates import start_script, unit
from fedpriv.simulations.safe_path import SAFE_PATH, safe_children
from tests.simulations.engines.planting import plant, ran

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.programs import Program
    from tests.simulations.deploy.conftest import Founder

ROOT = Path(__file__).parents[3]


def until_options(program: Program) -> list[str]:
    """The command of a program as it is started, up to its first argument."""
    words = list(program.command)
    return words[: words.index("-m") + 2] if "-m" in words else words[:1]


@pytest.mark.deep
def test_no_process_of_a_deployment_imports_what_lies_in_a_members_folder(
    deployment: Founder,
) -> None:
    made = deployment()
    programs = [
        *server_programs(made.server),
        *party_programs(made.parties[0]),
        flwr(made.server, "list"),
    ]
    marks = {folder.root: plant(folder.root) for folder in (made.server, made.parties[0])}
    started = [
        subprocess.Popen(
            [*until_options(program), "--help"],
            cwd=program.folder.root,
            env=program.full_environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for program in programs
    ]
    for program, process in zip(programs, started, strict=True):
        _, errors = process.communicate(timeout=120)
        assert ran(marks[program.folder.root]) == "", program.name
        assert process.returncode == 0, errors


def test_nor_do_the_python_processes_that_such_a_process_starts(deployment: Founder) -> None:
    """Flower's own, say, which are started without a word about where modules come from."""
    made = deployment()
    mark = plant(made.parties[0].root)
    find = "from importlib.util import find_spec; print(find_spec('fedpriv').origin)"
    for program in party_programs(made.parties[0]):
        done = subprocess.run(
            [sys.executable, "-c", find],
            cwd=program.folder.root,
            env=program.full_environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert Path(done.stdout.strip()) == ROOT / "fedpriv" / "__init__.py"
    assert ran(mark) == ""


@pytest.mark.parametrize("role", ["server", "party"])
def test_services_start_in_the_safe_mode_as_well(role: str, deployment: Founder) -> None:
    made = deployment()
    folder = made.server if role == "server" else made.parties[0]
    assert "PYTHONSAFEPATH=1 " in start_script(role)
    settings = re.findall("^Environment=(.*)$", unit(role, folder), flags=re.MULTILINE)
    assert "PYTHONSAFEPATH=1" in " ".join(settings).split()


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = SAFE_PATH
    for before in (None, "", "1"):
        monkeypatch.delenv(key, raising=False)
        if before is not None:
            monkeypatch.setenv(key, before)
        with safe_children():
            assert os.environ[key] == "1"
        assert os.environ.get(key) == before


def test_processes_are_started_in_these_places_and_no_others() -> None:
    """A new place must be started in the safe mode, and planted against above or beside."""
    starts = re.compile(
        r"subprocess\.(?:Popen|run|call|check_\w+)\(|os\.(?:exec|spawn|posix_spawn|system|popen)\w*\("
        r'|ProcessPoolExecutor\(|get_context\("(?:spawn|forkserver)"\)|create_subprocess'
    )
    product = [
        path
        for part in ("fedpriv", "strategies", "simulations")
        for path in ROOT.glob(f"{part}/**/*.py")
    ]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in product}
    assert {name for name, text in texts.items() if starts.search(text)} == {
        "simulations/compare/cells.py",
        "simulations/deploy/processes.py",
        "simulations/deploy/run/submission.py",
        "simulations/engines/ray.py",
    }
    assert {name for name, text in texts.items() if "sys.executable" in text} == {
        "simulations/safe_path.py"
    }
