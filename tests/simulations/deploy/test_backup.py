"""Backup and restore: nothing that was spent is spent a second time, whatever copy is put back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.wire import Ask
from fedpriv.privacy.ledger import Ledger, LedgerMismatch
from fedpriv.simulations.deploy.backups.archive import Archive, read_archive, write_archive
from fedpriv.simulations.deploy.backups.backup import back_up
from fedpriv.simulations.deploy.backups.newest import Assurance, Ready
from fedpriv.simulations.deploy.backups.restore import restore
from fedpriv.simulations.deploy.folders import PartyFolder, member_folder
from tests.federation.deployed.deployments import Deployment
from tests.federation.deployed.north_party import CLEAR, RUN, answer, ask, join, query

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.federation.queries.kinds import GradientQuery
    from tests.simulations.conftest import Command

NOBODY_KNOWS = "nothing here tells whether the ledger"


@pytest.fixture
def party(tmp_path: Path) -> Deployment:
    """A party that has given one answer, in a run that it joined."""
    tmp_path.chmod(0o700)
    deployment = Deployment(folder=tmp_path, budget={"composition": "gdp"}, **CLEAR)
    ask(deployment, join())
    ask(deployment, Ask(run=RUN, round=1, party=0), asked=query(deployment))
    return deployment


def home(deployment: Deployment) -> PartyFolder:
    return PartyFolder(deployment.home("north"))


def saved(deployment: Deployment, name: str = "north.backup", **options: Any) -> Path:
    path = deployment.folder / name
    back_up(home(deployment), path, **options)
    return path


def put_back(deployment: Deployment, backup: Path, **said: Any) -> tuple[str, ...]:
    """Restore the party, which accepts its roster again if it has forgotten which."""
    told = restore(backup, deployment.home("north"), Assurance(**said))
    if "deploy accept" in told[-1]:
        with pytest.raises(ValueError, match="no roster was accepted by 'north' yet"):
            deployment.host("north")
        deployment.accept("north")
        told = told[:-1]
    return told


def head(deployment: Deployment) -> str:
    with deployment.ledger("north") as ledger:
        return ledger.head


def spent(deployment: Deployment) -> float:
    with deployment.ledger("north") as ledger:
        ledger.verify()
        return ledger.spent().guarantee.epsilon


def lose(deployment: Deployment, *, ledger: bool = True, state: bool = True) -> None:
    folder = deployment.home("north")
    if ledger:
        for path in folder.glob("north.ledger*"):
            path.unlink()
    if state:
        shutil.rmtree(folder / "state")


def of_another_run(deployment: Deployment) -> GradientQuery:
    return query(deployment, run=query(deployment).run + "b")


# What is newer is never given up.


@pytest.mark.parametrize("ledger", [True, False], ids=["ledger lost", "ledger damaged"])
def test_a_backup_of_before_the_latest_answer_is_not_put_beside_the_state_of_after_it(
    party: Deployment, ledger: bool
) -> None:
    backup = saved(party)
    answer(party, query(party, 1))
    if ledger:
        lose(party, state=False)
    else:
        (party.home("north") / "north.ledger").write_bytes(b"a fault of the disk")
    for said in ({}, {"lost": True}):
        with pytest.raises(ValueError, match=r"state directory has seen row 7 .* older"):
            put_back(party, backup, **said)
    with pytest.raises(QueryRefused, match="ledger"):
        answer(party, of_another_run(party))


def test_a_ledger_that_has_gone_on_is_not_exchanged_for_its_past(party: Deployment) -> None:
    backup = saved(party)
    answer(party, query(party, 1))
    paid, files = spent(party), sorted(party.home("north").iterdir())
    with pytest.raises(ValueError, match="nothing is lost, and nothing was changed"):
        put_back(party, backup, head=None)
    assert (spent(party), sorted(party.home("north").iterdir())) == (paid, files)
    np.testing.assert_array_equal(answer(party, query(party, 1)), answer(party, query(party, 1)))


def test_a_ledger_of_another_day_is_no_reason_to_believe_a_backup(party: Deployment) -> None:
    """Somebody put back the disk of an earlier day: neither it nor the backup is the newest."""
    shutil.copytree(party.home("north"), party.folder / "image")
    answer(party, query(party, 1))
    backup = saved(party)
    answer(party, query(party, 2))
    shutil.rmtree(party.home("north"))
    (party.folder / "image").rename(party.home("north"))
    with pytest.raises(ValueError, match=NOBODY_KNOWS):
        put_back(party, backup)


def test_two_ledgers_that_spent_apart_are_not_exchanged(party: Deployment) -> None:
    """A party was cloned, and the clone's backup is older than nothing, but another history."""
    shutil.copytree(party.home("north"), party.folder / "clone")
    answer(party, query(party, 1))
    backup = saved(party)
    lose(party)
    shutil.copytree(party.folder / "clone", party.home("north"), dirs_exist_ok=True)
    answer(party, of_another_run(party))
    for said in ({}, {"lost": True}):
        with pytest.raises(ValueError, match="older, or of another ledger"):
            put_back(party, backup, **said)


# When all is lost.


def test_with_everything_lost_somebody_must_vouch_for_the_backup(party: Deployment) -> None:
    backup, then = saved(party), head(party)
    lose(party)
    with pytest.raises(ValueError, match=NOBODY_KNOWS):
        put_back(party, backup)
    assert not (party.home("north") / "north.ledger").exists()
    assert put_back(party, backup, head=then)[0] == "north.ledger was put back, with 5 rows"
    answer(party, of_another_run(party))


def test_what_the_federation_has_seen_later_refuses_the_backup(party: Deployment) -> None:
    backup = saved(party)
    answer(party, query(party, 1))
    later = head(party)
    lose(party)
    with pytest.raises(ValueError, match="older than what the federation has seen"):
        put_back(party, backup, head=later)
    assert not (party.home("north") / "north.ledger").exists()


def test_what_nobody_knows_is_written_off(party: Deployment) -> None:
    """The attack: answer, lose the newest copy, put back an older one, answer again."""
    backup = saved(party)
    answer(party, query(party, 1))
    lose(party)
    assert "the rest of the budget of north.ledger was written off" in put_back(
        party, backup, lost=True
    )
    assert spent(party) == pytest.approx(2.0, rel=1e-9)
    for asked in (query(party, 1), of_another_run(party)):
        with pytest.raises(QueryRefused, match=r"left all runs|does not pay"):
            answer(party, asked)
    with pytest.raises(ValueError, match="exclude each other"):
        Assurance(head="0" * 64, lost=True)


def test_a_backup_with_the_end_that_the_state_remembers_is_the_newest(party: Deployment) -> None:
    backup, paid = saved(party), spent(party)
    lose(party, state=False)
    put_back(party, backup)
    assert spent(party) == paid
    answer(party, of_another_run(party))
    assert spent(party) > paid


def test_where_only_the_state_is_lost_the_newer_ledger_stays(party: Deployment) -> None:
    backup = saved(party)
    answer(party, query(party, 1))
    paid = spent(party)
    lose(party, ledger=False)
    assert "stays" in put_back(party, backup)[0]
    assert spent(party) == paid
    with pytest.raises(QueryRefused, match="left all runs"):
        answer(party, query(party, 2))
    answer(party, of_another_run(party))


# Nothing goes on from a backup.


@pytest.mark.parametrize("release", [0, 1, 2], ids=["before", "after the backup", "new"])
def test_no_release_of_a_run_that_the_backup_knows_is_drawn_again(
    party: Deployment, release: int
) -> None:
    backup, then = saved(party), head(party)
    answer(party, query(party, 1))
    lose(party)
    put_back(party, backup, head=then)  # which is a lie
    with pytest.raises(QueryRefused, match="left all runs that began before it"):
        answer(party, query(party, release))


def test_a_seat_that_was_taken_before_the_backup_is_closed(party: Deployment) -> None:
    backup = saved(party)
    lose(party, state=False)
    put_back(party, backup)
    for run in (RUN, RUN[::-1]):
        ask(party, join(run))
    closed, open_ = (
        ask(party, Ask(run=run, round=1, party=0), asked=of_another_run(party))
        for run in (RUN, RUN[::-1])
    )
    assert "left it for good" in closed.refusal
    assert not open_.refusal


def test_a_restore_that_is_interrupted_is_repeated(
    party: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, then = saved(party), head(party)
    lose(party)

    def power_cut(_ready: Ready) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ready, "exchange", power_cut)
        with pytest.raises(KeyboardInterrupt):
            put_back(party, backup, head=then)
    assert [path.name for path in party.home("north").glob(".*")] == []
    party.accept("north")
    with pytest.raises(QueryRefused, match="its ledger is gone"):  # and a new, full one is not made
        answer(party, of_another_run(party))
    with pytest.raises(ValueError, match=NOBODY_KNOWS):
        put_back(party, backup)
    put_back(party, backup, head=then)
    with pytest.raises(QueryRefused, match="left all runs"):
        answer(party, query(party))


def test_the_log_of_the_old_ledger_is_not_read_into_the_new_one(party: Deployment) -> None:
    backup = saved(party)
    path = party.home("north") / "north.ledger"
    other = sqlite3.connect(path)
    other.execute("PRAGMA wal_autocheckpoint = 0")
    other.execute("UPDATE secret SET salt = x'00'")
    other.commit()
    log = (path.parent / "north.ledger-wal").read_bytes()
    other.close()
    (path.parent / "north.ledger-wal").write_bytes(log)
    put_back(party, backup)
    assert spent(party) > 0
    assert (path.parent / "north.ledger.replaced").exists()


# What is in a backup.


def test_a_backup_holds_no_secret_of_the_protocol_and_no_record(party: Deployment) -> None:
    journal = Journal(party.home("north") / "state")
    memory = journal.memory(RUN)
    given = journal.given(query(party).run)
    assert given is not None
    backup = saved(party)
    data = backup.read_bytes()
    for secret in (memory.channel, given.salt, given.vector.tobytes()):
        assert secret not in data
    keyed = saved(party, "keyed.backup", keys=True)
    assert {name.split("/")[0] for name in read_archive(backup).parts} == {"ledgers"}
    home = {name for name, _ in read_archive(keyed).under("home")}
    assert home == {"ca.crt", "identity.key", "party.toml", "roster.toml", "schema.toml"}
    assert {path.stat().st_mode & 0o777 for path in (backup, keyed)} == {0o600}


def test_a_backup_waits_for_the_message_that_is_being_handled(party: Deployment) -> None:
    taking = threading.Thread(target=saved, args=(party,))
    with Journal(party.home("north") / "state").held():
        taking.start()
        taking.join(0.2)
        assert taking.is_alive()
    taking.join()
    assert (party.folder / "north.backup").exists()


def test_an_old_ledger_is_not_backed_up(party: Deployment) -> None:
    path = party.home("north") / "north.ledger"
    old = path.read_bytes()
    answer(party, query(party, 1))
    path.write_bytes(old)
    with pytest.raises(ValueError, match="older than the state directory"):
        saved(party)


def test_with_keys_a_party_is_put_back_on_an_empty_machine(party: Deployment) -> None:
    backup, then = saved(party, keys=True), head(party)
    records = (party.home("north") / "records.csv").read_bytes()
    shutil.rmtree(party.home("north"))
    put_back(party, backup, head=then)
    assert (party.home("north") / "identity.key").stat().st_mode & 0o777 == 0o600
    (party.home("north") / "records.csv").write_bytes(records)
    answer(party, of_another_run(party))


def test_a_backup_of_another_party_or_budget_is_refused(party: Deployment) -> None:
    backup = saved(party)
    with pytest.raises(ValueError, match=r"is of party 'north', and the directory of party 'east'"):
        restore(backup, party.home("east"), Assurance(lost=True))
    lose(party)
    party.write_party("north", epsilon=3.0)
    with pytest.raises(LedgerMismatch, match="budget"):
        put_back(party, backup, lost=True)
    assert not (party.home("north") / "north.ledger").exists()


def test_a_damaged_or_hostile_archive_is_refused(tmp_path: Path) -> None:
    good = tmp_path / "good"
    parts = {"ledgers/a": b"1" * 5000}
    write_archive(good, Archive(role="party", name="north", facts={}, parts=parts))
    with pytest.raises(ValueError, match="a backup replaces no other"):
        write_archive(good, Archive(role="party", name="north", facts={}, parts=parts))
    data = good.read_bytes()
    for name, changed, match in (
        ("cut", data[:4000], "no backup of fedpriv, or is cut short"),
        ("changed", data.replace(b"1" * 5000, b"2" * 5000), "damaged or was changed"),
        ("text", b"no tar", "no backup of fedpriv"),
    ):
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(ValueError, match=match):
            read_archive(tmp_path / name)
    for name in ("../identity.key", "/etc/passwd", "a//b"):
        path = tmp_path / "hostile"
        path.unlink(missing_ok=True)
        write_archive(path, Archive(role="party", name="n", facts={}, parts={name: b""}))
        with pytest.raises(ValueError, match="must not have a part"):
            read_archive(path)
    with tarfile.open(tmp_path / "good") as tar:
        assert tar.getnames() == ["backup.json", "ledgers/a"]


# The server, and the command line.


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


def test_the_command_line_says_what_was_copied_and_why_not(
    party: Deployment, fedpriv: Command
) -> None:
    backup = party.folder / "cli.backup"
    done = fedpriv("deploy", "backup", party.home("north"), "--output", backup)
    assert done.code == 0, done.err
    assert f"head     {head(party)}" in done.out
    refused = fedpriv("deploy", "restore", backup, party.home("north"))
    assert refused.code == 2
    assert "nothing is lost" in refused.message
    lose(party)
    again = fedpriv("deploy", "restore", backup, party.home("north"), "--head", head_in(done.out))
    assert again.code == 0, again.err
    assert "left for good" in again.out


def head_in(text: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith("head"))
