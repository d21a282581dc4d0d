"""A hostile server that lies and ships code, parties that refuse, budgets and disks that end.

Real SuperLink, SuperNodes and workers on the loopback, with TLS and node keys, and answers masked
in active mode. What a party refuses it pays nothing for; why, its own log says, and the server's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from fedpriv._toml import to_toml
from fedpriv.federation.deployed.policy import read_party
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.keys import private_folder
from fedpriv.simulations.deploy.members.epochs import pin
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.run.submission import call, new_run, submission, write_app
from fedpriv.simulations.run.files import read_costs
from fedpriv.simulations.server_app import FAILURE
from tests.simulations.deploy import fates, forgeries
from tests.simulations.deploy.standing import BOUND, EXPERIMENT, standing, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.simulations.deploy.folders import PartyFolder
    from tests.simulations.deploy.standing import Standing

DISK = 256 * 1024


@pytest.fixture(scope="module")
def live() -> Iterator[Standing]:
    with standing(min_noise=0.001, max_clip=1.0) as made:
        yield made


def refusals(live: Standing, folder: PartyFolder) -> list[str]:
    """Why a party said no, as its own log has it."""
    return re.findall(r"fedpriv worker: refused: (.*)", live.log(folder))


def paid(live: Standing) -> dict[str, int]:
    return {folder.root.name: len(live.reserved(folder)) for folder in live.parties}


def test_parties_whose_rules_forbid_a_run_refuse_it_and_the_server_says_why(
    live: Standing,
) -> None:
    north, south = live.parties[:2]
    before = paid(live)
    live.change(north, policy={"strategies": ["output-perturbation"]})
    live.change(south, policy={"min_parties": 4})
    fates.patience(live.server.root, attempts=1)
    try:
        submitted = live.begin(live.written("forbidden"))
        assert live.end(submitted.directory) is None
    finally:
        live.change(north, policy={"strategies": ["gradient-perturbation"]})
        live.change(south, policy={"min_parties": 3})
    why = (submitted.directory / FAILURE).read_text()
    for folder, rule in (
        (north, "takes part in no run of strategy 'gradient-perturbation'"),
        (south, "A sum of 3 parties would be opened, and this party insists on 4."),
    ):
        assert rule in why
        assert any(rule in refusal for refusal in refusals(live, folder))
    assert paid(live) == before


def hostile_app(directory: Path, trace: Path) -> None:
    """Beside the references to the code of every member, code that tells where it is imported."""
    code = (
        f"import pathlib, sys\nwith pathlib.Path({str(trace)!r}).open('a') as trace:\n"
        "    trace.write(f'{sys.argv[0]}\\n')\napp = None\n"
    )
    app = directory / "private" / "flower"
    (app / "fedpriv" / "simulations").mkdir(parents=True)
    (app / "fedpriv" / "__init__.py").write_text(code)
    for name in ("__init__", "server_app", "client_app"):
        (app / "fedpriv" / "simulations" / f"{name}.py").write_text(code)
    project = tomllib.loads((app / "pyproject.toml").read_text())
    project["tool"]["flwr"]["app"]["fab-include"] = ["fedpriv/**/*.py"]
    (app / "pyproject.toml").write_text(to_toml(project))


def test_a_server_that_lies_and_ships_code_gets_what_it_was_due_and_nothing_else(
    live: Standing, tmp_path: Path
) -> None:
    """Parties take the run config from the bundle with the hostile code, and nothing besides."""
    before, trace = paid(live), tmp_path / "trace"
    earlier = {folder.root.name: len(refusals(live, folder)) for folder in live.parties}
    lies = {"north": ("less noise", ""), "south": ("larger clip", ""), "west": ("", "other model")}
    for name, each in lies.items():
        fates.lie(live.party(name).root, *each)
    fates.patience(live.server.root, attempts=2)
    directory = new_run(live.written("lies"), live.server)
    write_app(directory, live.server)
    hostile_app(directory, trace)
    call(submission(directory, live.server))
    result = live.end(directory)
    assert result is not None, (directory / FAILURE).read_text()
    for name, rule in (
        ("north", "noise of 0.0001 sensitivities, and this party insists on 0.001"),
        (
            "south",
            "bounds one record's part in the answer by 2, and this party allows at most 1",
        ),
        ("west", "release 0 of this run was answered already"),
    ):
        # On a slow machine a smaller sum may be asked for, and refused, besides.
        (told,) = (
            said for said in refusals(live, live.party(name))[earlier[name] :] if rule in said
        )
        assert read_costs(directory)["exchanges"]["refusals"][told] == 1
    assert paid(live) == {name: count + 1 for name, count in before.items()}
    for folder in live.parties:
        with Ledger.open(read_party(folder.policy).ledger, read_only=True) as ledger:
            *_, row = (row for row in ledger.rows() if row.kind == "reserved")
        assert json.loads(row.detail)["relative_noise"] > 0.001
    # Flower's own command line, which is on the hostile side, imports the code before it sends it.
    assert {Path(line).name for line in trace.read_text().splitlines()} == {"flwr"}


# Words in somebody else's mouth.


def test_an_instruction_as_if_from_the_server_and_a_reply_as_if_from_a_party_change_nothing(
    live: Standing,
) -> None:
    """A round of 2^32 - 1 would be the victim's last; a peer's answer would stand for west's."""
    before = paid(live)
    north, west = live.party("north"), live.party("west")
    forgeries.inject(north.root, "unsigned", "signed by a peer", "meant for a peer")
    forgeries.pretend(west.root, "answer", "signed", "east")
    fates.patience(live.server.root, attempts=1)
    submitted = live.begin(live.written("forged"))
    result = live.end(submitted.directory)
    assert result is not None, (submitted.directory / FAILURE).read_text()
    assert forgeries.injected(north.root) == {
        "unsigned": "error",
        "signed by a peer": "error",
        "meant for a peer": "Misdirected",
    }
    assert "BadSignature: The instruction is not signed by the server" in live.log(north)
    # Of a message to which something was replied, Flower says that there is no other reply; what
    # west says afterwards, as a sign of life, nobody waits for.
    rejected = read_costs(submitted.directory)["exchanges"]["rejected"]
    assert rejected.pop("late", 0) <= 2
    assert rejected == {"forged": 1, "gone": 1}
    assert paid(live) == {name: count + 1 for name, count in before.items()}


def test_a_node_that_claims_the_seat_of_another_party_has_none(live: Standing) -> None:
    """Whoever was first at the server had the seat, and the party itself was turned away."""
    before = paid(live)
    forgeries.pretend(live.party("south").root, "join", "claim", "north")
    fates.patience(live.server.root, attempts=1)
    submitted = live.begin(live.written("claimed"))
    result = live.end(submitted.directory)
    assert result is not None, (submitted.directory / FAILURE).read_text()
    assert read_costs(submitted.directory)["exchanges"]["rejected"] == {"stranger": 1}
    expected = {name: count + (name != "south") for name, count in before.items()}
    assert paid(live) == expected


# Budgets and disks that end.


@contextmanager
def full_disk(folder: PartyFolder) -> Iterator[Path]:
    """A disk for a party's ledger, which has room for no further row until the file is removed."""
    disk = folder.root / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a disk of {DISK} bytes cannot be mounted: {mounted.stderr.strip()}")
    try:
        file = read_party(folder.policy)
        Ledger.create(
            disk / "a.ledger", data_name=file.name, budget=file.budget, adjacency=file.adjacency
        ).close()
        rest = disk / "rest"
        with rest.open("wb", buffering=0) as full, suppress(OSError):
            while True:
                full.write(bytes(512))
        yield rest
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A `fedpriv` that runs in a session of its own, as in a terminal."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(timeout=BOUND)


@pytest.fixture
def fedpriv(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start the command line; whatever happens, it is ended."""
    with ExitStack() as stack:

        def begin(*words: object) -> Command:
            log = tmp_path / f"log{len(list(tmp_path.glob('log*')))}"
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from fedpriv.simulations.cli import main; main()",
                    *map(str, words),
                ],
                cwd=Path(__file__).parents[3],
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_ended, process)
            return Command(process=process, log=log)

        yield begin


def _ended(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=BOUND)


def test_two_runs_at_once_spend_a_budget_once_and_go_on_after_ctrl_c_and_without_a_full_disk(
    live: Standing, fedpriv: Callable[..., Command]
) -> None:
    """Every budget pays for one of them. One party has no room in its ledger for either."""
    west = live.party("west")
    rich = [folder for folder in live.parties if folder != west]
    for folder in live.parties:
        own = {"epsilon": EXPERIMENT["privacy"]["epsilon"], "composition": "gdp"}  # exactly one run
        live.change(folder, budget=own)
        (folder.root / f"{folder.root.name}.ledger").unlink(missing_ok=True)
        rmtree(folder.root / "state", ignore_errors=True)
        pin(private_folder(folder.root / "state"), read_roster(folder.roster))
    fates.patience(live.server.root, attempts=1)
    live.written("first")
    with full_disk(west) as rest:
        live.change(west, party={"ledger": "disk/a.ledger"})
        command = ("deploy", "run", live.root / "experiment-first.toml")
        first = fedpriv(*command, "--server", live.server.root)
        wait_until(lambda: "Starting logstream" in first.said, what=first)
        second = live.begin(live.written("second"))
        os.killpg(first.process.pid, signal.SIGINT)
        assert first.wait() == 130
        (look,) = re.findall(r"The run continues. Follow it again with: fedpriv (.*)", first.said)
        again = fedpriv(*shlex.split(look))
        assert again.wait() == 0, again.said
        assert live.end(second.directory) is None
        rest.unlink()
        with Ledger.open(west.root / "disk" / "a.ledger") as ledger:
            ledger.verify()
            assert [row.kind for row in ledger.rows()] == ["created", "composition"]
    assert "gradient-perturbation: 4 parties, 1 rounds" in again.said
    assert "Tolerates 1 party colluding with the server and 1 missing." in again.said
    why = (second.directory / FAILURE).read_text()
    assert "3 × QueryRefused: what is left of this party's budget does not pay for" in why
    assert "1 × QueryRefused: this party's ledger does not take the release" in why
    for folder in rich:
        assert len(live.reserved(folder)) == 1
        assert any("what is left of this party's budget" in each for each in refusals(live, folder))
    # To both runs, and to the statement of the first, which it would have to look up there.
    assert len([each for each in refusals(live, west) if "ledger does not take" in each]) > 2
    assert "party west: " in live.log(west)  # its owner is told more
