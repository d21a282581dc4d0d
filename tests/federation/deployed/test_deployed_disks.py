"""The disks of a deployed party: whose files they are, what stays, and what if they are full."""

from __future__ import annotations

import errno
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fedpriv.federation.deployed import journal
from fedpriv.federation.deployed.journal import Journal
from fedpriv.federation.party.answered import Given
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.party.memory import Memory
from fedpriv.federation.protocol.wire import Ask
from fedpriv.privacy.adjacency import Adjacency
from fedpriv.privacy.events import GaussianEvent
from fedpriv.privacy.ledger import Ledger
from fedpriv.secagg.errors import WrongRound
from tests.federation.deployed.north_party import RUN, answer, ask, join, noisy, query

if TYPE_CHECKING:
    from pathlib import Path

    from tests.federation.deployed.deployments import Deployment


# The journal.


def test_everything_in_the_state_directory_is_for_its_owner_alone(clear: Deployment) -> None:
    ask(clear, join())
    ask(clear, Ask(run=RUN, round=1, party=0), asked=query(clear))
    state = clear.home("north") / "state"
    for path in (state, *state.rglob("*")):
        allowed = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == allowed, path
    kept = "answers heard ledger lock noised planned roster.toml seats shown"
    names = kept.split()
    assert sorted(path.name for path in state.iterdir()) == names


def test_the_ledger_learns_nothing_about_an_answer() -> None:
    """Its digest is salted: equal answers have digests that cannot be told from unequal ones."""
    vector = np.arange(3, dtype=np.uint64)
    one, two = (
        Given(release=0, query=bytes(32), salt=bytes([i]) * 32, vector=vector, shared=0)
        for i in (1, 2)
    )
    assert one.digest != two.digest
    assert replace(one, opened=(0, 1), masks=7).digest == one.digest


def test_a_seat_is_kept_until_many_newer_runs_have_come_and_then_never_taken_again(
    tmp_path: Path,
) -> None:
    book = Journal(tmp_path)
    runs = [bytes([i]) * 32 for i in range(20)]
    with book.held():
        for run in runs:
            book.keep(Memory(run=run, channel=run))
        for run in runs[:4]:
            with pytest.raises(WrongRound, match="left it for good"):
                book.memory(run)
        for run in runs[4:]:
            assert book.memory(run).channel == run
        assert book.memory(b"x" * 32).run == b""


# Disks that fail.


def test_a_full_disk_under_the_ledger_is_a_refusal_and_no_answer(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own limit on pages gives the error of a full disk."""
    tiny = GaussianEvent(relative_noise=1000.0, adjacency=Adjacency.REPLACE_ONE)
    answer(clear, query(clear, event=tiny))
    opening = Ledger.open

    def full(*arguments: Any, **more: Any) -> Ledger:
        ledger = opening(*arguments, **more)
        connection = ledger._store._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return ledger

    monkeypatch.setattr(Ledger, "open", full)
    answered = 0
    for round_ in range(1, 200):
        try:
            answer(clear, query(clear, round_, event=tiny))
        except QueryRefused as refusal:
            assert "LedgerFull" in str(refusal)  # noqa: PT017
            break
        answered += 1
    else:
        pytest.fail("the disk was never full")
    monkeypatch.setattr(Ledger, "open", opening)
    paid = len(clear.reserved("north"))
    assert paid >= answered + 1
    answer(clear, query(clear, answered + 1, event=tiny))
    assert len(clear.reserved("north")) == answered + 2


def test_a_full_disk_under_the_state_directory_is_a_refusal_and_no_second_answer(
    clear: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writing = journal._write
    monkeypatch.setattr(journal, "_write", full)
    with pytest.raises(QueryRefused, match="disk does not take the answer: OSError"):
        answer(clear, noisy(clear))
    monkeypatch.setattr(journal, "_write", writing)
    first = answer(clear, noisy(clear))
    np.testing.assert_array_equal(answer(clear, noisy(clear)), first)
    assert len(clear.reserved("north")) == 1
