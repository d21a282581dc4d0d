"""Backup and restore: nothing that was spent is spent a second time, whatever copy is put back."""

from __future__ import annotations

import shutil
import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.wire import Ask
from fedpriv.simulations.deploy.backups.newest import Assurance, Ready
from tests.federation.deployed.north_party import RUN, answer, ask, join, query
from tests.simulations.deploy.backed_up import (
    NOBODY_KNOWS,
    head,
    lose,
    of_another_run,
    put_back,
    saved,
)

if TYPE_CHECKING:
    from tests.federation.deployed.deployments import Deployment
    from tests.simulations.conftest import Command


def spent(deployment: Deployment) -> float:
    with deployment.ledger("north") as ledger:
        ledger.verify()
        return ledger.spent().guarantee.epsilon


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


# The command line.


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
    assert "closed for good" in again.out


def head_in(text: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith("head"))
