"""docs/deployment.md: its files are read and its commands run, up to the start of processes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.simulations.deploy.folders import PartyFolder, server_folder
from fedpriv.simulations.deploy.health.doctor import examine
from fedpriv.simulations.deploy.run.submission import new_run
from fedpriv.simulations.experiment.file import read_experiment
from tests.simulations.deploy.conftest import NAMES

if TYPE_CHECKING:
    import pytest

    from tests.simulations.conftest import Command

PAGE = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text()
STARTS = ("server", "party", "run")


def files() -> dict[str, str]:
    """The files that the page shows, by the name in their first line."""
    blocks = re.findall(r"```toml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
    return dict(blocks)


def commands() -> list[list[str]]:
    """The commands of the sequence, for every party where the page names one of them."""
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    shown = []
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        names = NAMES if "and so" in line or "every party" in line else ("north",)
        shown += [[word.replace("north", name) for word in words] for name in names]
    return shown


def test_the_documented_sequence_leads_to_a_federation_that_is_ready(
    fedpriv: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(files()) == {"federation.toml", "clinics.toml", "experiment.toml"}
    for name, text in files().items():
        Path(name).write_text(text)
    for number, name in enumerate(NAMES):
        rows = [f"{age},{'yes' if age > 50 else 'no'}" for age in range(number, 100, 2)]
        Path(f"{name}.csv").write_text("\n".join(["age,sick", *rows, ""]))
    done = set()
    for program, *words in commands():
        if program == "cp":
            Path(words[1]).write_text(Path(words[0]).read_text())
            continue
        assert program == "fedpriv"
        arguments = [
            str(path) for word in words for path in sorted(Path().glob(word)) or [Path(word)]
        ]
        if words[:1] == ["deploy"] and words[1] in STARTS:
            arguments.append("--dry-run")
        if words[0] == "doctor":
            arguments.append("--offline")
        if words[0] == "verify":  # there is nothing to verify before a run has ended
            arguments.append("--help")
        ended = fedpriv(*arguments)
        assert ended.code == 0, (words, ended.out, ended.err)
        done.add(" ".join(words[:2]) if words[0] == "deploy" else words[0])
    steps = ("init", "bundle", "add", "server", "party", "run", "stop")
    assert done == {"doctor", "verify", *(f"deploy {step}" for step in steps)}
    server = server_folder(Path("clinics"))
    for home in sorted(Path("clinics/parties").resolve().glob("*")):
        folder = PartyFolder(home)
        assert [check for check in examine(folder, network=False) if not check.passed] == []
    assert [check for check in examine(server) if not check.passed] == []
    directory = new_run(read_experiment("experiment.toml"), server)
    assert (directory / "private" / "run.json").exists()


def test_every_command_and_option_that_the_page_names_exists(fedpriv: Command) -> None:
    help_of = {
        name: fedpriv("deploy", name, "--help").out
        for name in ("init", "join", "bundle", "add", "accept", "expel", "rotate", "renew",
                     "server", "party", "run", "status", "stop", "recover", "backup", "restore",
                     "evaluate", "cancel", "attest", "handover")
    }  # fmt: skip
    named = set(re.findall(r"`(?:fedpriv )?deploy ([a-z]+)", PAGE))
    assert named <= help_of.keys()
    for name, option in re.findall(r"`(?:fedpriv )?deploy ([a-z]+)[^`]*?(--[a-z-]+)", PAGE):
        assert option in help_of[name], (name, option)
