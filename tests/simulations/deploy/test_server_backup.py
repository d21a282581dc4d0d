"""Backups of a server: no run that is open is taken up, and no release is undone."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.backups.backup import back_up
from fedpriv.simulations.deploy.backups.newest import Assurance
from fedpriv.simulations.deploy.backups.restore import restore
from fedpriv.simulations.deploy.folders import member_folder
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.north_party import CLEAR
from tests.simulations.deploy.backed_up import NOBODY_KNOWS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> Deployment:
    """A server with one finished run, and one that was begun."""
    tmp_path.chmod(0o700)
    rounds = {"strategy": {"rounds": 1}}
    deployment = Deployment(
        folder=tmp_path,
        experiment={**CLEAR["experiment"], **rounds},
        policy=CLEAR["policy"],
        budget={"epsilon": 8.0},
    )
    (deployment.server / "server.crt").write_text("")
    deployment.run(deployment.server / "runs" / "first")
    return deployment


def begun(deployment: Deployment, name: str) -> Path:
    from fedpriv.simulations.deploy.run.server import open_session

    output = deployment.server / "runs" / name
    open_session(
        {
            "config": deployment.config(privacy={"epsilon": 0.5}),
            "roster": str(deployment.server / "roster.toml"),
            "output": str(output),
        }
    )
    return output


def test_a_servers_open_runs_are_closed_and_its_finished_ones_are_there(
    server: Deployment,
) -> None:
    (ledger,) = server.server.glob("*.ledger")
    open_ = begun(server, "second")
    backup = server.folder / "server.backup"
    (copied,) = back_up(member_folder(server.server), backup)
    ledger.unlink()
    shutil.rmtree(server.server / "runs")
    (server.server / "runs").mkdir()
    with pytest.raises(ValueError, match=NOBODY_KNOWS):
        restore(backup, server.server, Assurance())
    said = restore(backup, server.server, Assurance(head=copied.head))
    assert said == (
        f"{ledger.name} was put back, with {copied.rows} rows",
        "run second was not finished, and is closed for good",
    )
    with pytest.raises(ValueError, match="closed for good: it was open when the server was put"):
        begun(server, "second")
    assert (open_ / "private" / "run.json").exists()
    assert (server.server / "runs" / "first" / "result.json").exists()


def test_a_servers_ledger_is_not_put_back_to_before_a_run_that_is_there(
    server: Deployment,
) -> None:
    (ledger,) = server.server.glob("*.ledger")
    backup, old = server.folder / "server.backup", ledger.read_bytes()
    back_up(member_folder(server.server), backup)
    begun(server, "second")
    with Ledger.open(ledger) as book:
        book.record_simulation("a row", {})
    begun(server, "third")
    ledger.unlink()
    with pytest.raises(ValueError, match="run third has seen row"):
        restore(backup, server.server, Assurance(lost=True))
    ledger.write_bytes(old)


def test_that_a_run_began_is_no_sign_that_nothing_was_paid_since(server: Deployment) -> None:
    """The backup ends where a later run began, which the directory remembers, and the run paid."""
    (ledger,) = server.server.glob("*.ledger")
    backup, runs = server.folder / "server.backup", server.server / "runs"
    (copied,) = back_up(member_folder(server.server), backup)
    server.run(runs / "second", config=server.config(privacy={"epsilon": 0.5}))
    ledger.unlink()
    for said in ({}, {"lost": True}, {"head": copied.head}):
        with pytest.raises(ValueError, match="run second has seen row"):
            restore(backup, server.server, Assurance(**said))
    for name in ("result.json", "statement.json"):  # as if it had been killed before its end
        (runs / "second" / name).unlink()
    with pytest.raises(ValueError, match=NOBODY_KNOWS):
        restore(backup, server.server, Assurance())


def test_a_backup_of_after_the_latest_run_is_the_newest(server: Deployment) -> None:
    (ledger,) = server.server.glob("*.ledger")
    backup = server.folder / "server.backup"
    (copied,) = back_up(member_folder(server.server), backup)
    ledger.unlink()
    said = restore(backup, server.server, Assurance())
    assert said == (f"{ledger.name} was put back, with {copied.rows} rows",)


def test_a_servers_ledger_is_not_put_back_to_before_an_evaluation(server: Deployment) -> None:
    (ledger,) = server.server.glob("*.ledger")
    backup = server.folder / "server.backup"
    back_up(member_folder(server.server), backup)
    with Ledger.open(ledger) as book:
        book.record_simulation("the row of an evaluation", {})
        mark = {"ledger_rows": book.length, "ledger_head": book.head}
    first = server.server / "runs" / "first"
    begun_ = first / "private" / "evaluation.json"
    begun_.write_text("{}")  # it was asked for, and nobody knows more
    ledger.unlink()
    with pytest.raises(ValueError, match=NOBODY_KNOWS):
        restore(backup, server.server, Assurance())
    begun_.rename(first / "evaluation-1a2b.json").write_text(json.dumps(mark))
    with pytest.raises(ValueError, match="run first has seen row"):
        restore(backup, server.server, Assurance(lost=True))


def test_an_evaluation_that_was_under_way_is_not_taken_up_from_a_backup(
    server: Deployment,
) -> None:
    """It had ended since: once more, and the same exact counts got noise of the server's twice."""
    (ledger,) = server.server.glob("*.ledger")
    backup, first = server.folder / "server.backup", server.server / "runs" / "first"
    terms = first / "private" / "evaluation.json"
    terms.write_text("{}")
    (copied,) = back_up(member_folder(server.server), backup)
    ledger.unlink()
    said = restore(backup, server.server, Assurance(head=copied.head))
    assert said[-1] == "an evaluation of run first was not finished, and is given up"
    assert not terms.exists()
    ledger.unlink()
    shutil.rmtree(first)
    restore(backup, server.server, Assurance(lost=True))
    assert (first / "result.json").exists()
    assert not terms.exists()
