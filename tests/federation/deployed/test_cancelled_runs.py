"""Cancelled runs: left for good, not attested, and no reason to take a party for new."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fedpriv.federation.deployed.journal import Journal, LedgerMark
from fedpriv.federation.protocol.errands import Cancel, Cancelled
from fedpriv.federation.protocol.wire import Reply, Request
from fedpriv.secagg.errors import WrongRound
from fedpriv.simulations.deploy.run.closed import why_closed
from fedpriv.simulations.deploy.run.jobs import cancelling
from fedpriv.simulations.deploy.run.jobs.dispatch import tell_cancelled
from fedpriv.simulations.deploy.run.server import open_session
from tests.federation.deployed.deployments import FOUR, Deployment
from tests.federation.deployed.errands import (
    NAMES,
    PATIENCE,
    ROUND,
    RUN,
    TWICE,
    Power,
    cut,
    done,
    grid_of,
    handled,
    paid,
    state,
)
from tests.federation.deployed.failing_grids import InterruptedGrid

if TYPE_CHECKING:
    from pathlib import Path


def interrupted(deployment: Deployment, out: Path, *, step: str, away: str) -> None:
    """A run in which the server fails before a step, while one party is not there."""
    grid = grid_of(deployment, InterruptedGrid, away)
    grid.step, grid.between = step, cut
    with pytest.raises(Power):
        deployment.run(out, grid=grid)


@pytest.mark.parametrize("step", ["answer", "reveal"])
def test_a_cancelled_run_is_left_for_good(step: str, tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    out = tmp_path / "server" / "runs" / "a"
    interrupted(deployment, out, step=step, away="west")
    spent = {name: paid(deployment, name) for name in NAMES}
    assert any(seat.stat().st_size for seat in seats(deployment, "north"))

    cancelling.record(out)
    words = done("cancel", deployment, out, "south", "west")
    assert words == {
        "north": "left it",
        "east": "left it",
        "south": "not there",
        "west": "not there",
    }
    for name in ("north", "east"):
        closed = seats(deployment, name)
        assert closed
        assert not any(seat.stat().st_size for seat in closed)
        assert not any(
            path.stat().st_size for path in (state(deployment, name) / "answers").iterdir()
        )
    assert spent == {name: paid(deployment, name) for name in NAMES}

    # It is not taken up again at the server, nor by a server that has forgotten that.
    config = {
        "config": deployment.config(),
        "roster": str(deployment.server / "roster.toml"),
        "output": str(out),
    }
    with pytest.raises(ValueError, match="closed for good: it was cancelled"):
        open_session(config)
    (out / "private" / "cancelled.json").rename(tmp_path / "hidden")
    with pytest.raises(RuntimeError, match="this run was cancelled, for good"):
        deployment.run(out)
    (tmp_path / "hidden").rename(out / "private" / "cancelled.json")

    # Who was away is told before the next run, which is as good as any.
    tell_cancelled(
        out.parent,
        deployment.grid(),
        names=NAMES,
        seal=deployment.seal(),
        patience=PATIENCE,
    )
    assert not cancelling.untold(out.parent, NAMES)
    deployment.run(tmp_path / "server" / "runs" / "b", config=deployment.config(run={"seed": 1}))
    name = json.loads((out / "private" / "run.json").read_text())["run"]
    for party in NAMES:
        journal: Journal = deployment.host(party).store
        assert journal.cancelled(name)
        rest = [seat for seat in seats(deployment, party) if seat.stat().st_size]
        assert len(rest) == 1  # that of the second run


def test_cancelling_does_not_make_a_party_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR, budget=TWICE)
    out = tmp_path / "server" / "runs" / "a"
    interrupted(deployment, out, step="reveal", away="west")
    cancelling.record(out)
    done("cancel", deployment, out)
    (deployment.home("north") / "north.ledger").unlink()
    (state(deployment, "north") / "ledger").unlink()
    deployment.run(tmp_path / "server" / "runs" / "b")
    assert "its ledger is gone" in caplog.text
    assert not (deployment.home("north") / "north.ledger").exists()


def test_a_run_that_is_finished_or_unknown_is_not_cancelled(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    with pytest.raises(ValueError, match="no directory of a run"):
        cancelling.record(out)
    deployment.run(out)
    with pytest.raises(ValueError, match="is finished"):
        cancelling.record(out)
    # And if it is finished while it is being cancelled, no party is told to leave it.
    result = (out / "result.json").rename(tmp_path / "result.json")
    cancelling.record(out)
    assert cancelling.untold(out.parent, NAMES) == [out]
    result.rename(out / "result.json")
    assert cancelling.untold(out.parent, NAMES) == []
    with pytest.raises(ValueError, match="is finished"):
        done("cancel", deployment, out)
    assert why_closed(out) == ""
    assert set(done("attest", deployment, out).values()) == {"signed"}


def test_an_errand_comes_alone_and_can_be_repeated(tmp_path: Path) -> None:
    deployment = Deployment(folder=tmp_path, **FOUR)
    cancel = Cancel(run=RUN, **ROUND, name=b"a-run", seats=RUN)
    for _ in range(2):
        (said,) = handled(deployment, "north", cancel).messages
        assert isinstance(said, Cancelled)
    two = Request(messages=(cancel, cancel)).to_bytes()
    # In company it is no errand but a step of a run that was cancelled.
    assert not Reply.from_bytes(deployment.host("north").handle(two)).messages
    assert (
        "32 bytes each"
        in handled(
            deployment, "north", Cancel(run=RUN, **ROUND, name=b"a-run", seats=RUN[1:])
        ).refusal
    )


def test_a_cancelled_run_leaves_nothing_of_seats_that_were_not_taken(tmp_path: Path) -> None:
    """A server that cancels what never was, again and again, fills no disk with a thousand each."""
    deployment = Deployment(folder=tmp_path, **FOUR)
    many = b"".join(bytes([high, low]) * 16 for high in range(4) for low in range(256))
    assert handled(deployment, "north", Cancel(run=RUN, **ROUND, name=b"a", seats=many)).messages
    assert not seats(deployment, "north")
    assert not list((deployment.home("north") / "state").glob("cancelled/*"))


def test_a_seat_is_left_once_whatever_the_run_is_called(tmp_path: Path) -> None:
    """One run that was joined let a server leave a mark for every name that it thought of."""
    journal = Journal(tmp_path)
    with journal.held():
        journal.keep(replace(journal.memory(RUN), run=RUN))
        for name in ("a-run", *(f"a-run-{index}" for index in range(20))):
            journal.cancel(name, [RUN])
            journal.cancel(name, [RUN])
        assert journal.cancelled("a-run")
    assert len(list((tmp_path / "cancelled").iterdir())) == 1


def test_a_party_joins_only_so_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each a name is kept for ever: a server that begins run after run fills no disk."""
    monkeypatch.setattr("fedpriv.federation.deployed.journal._MOST_JOINED", 2)
    journal = Journal(tmp_path)
    with journal.held():
        for run in (RUN, RUN[::-1]):
            journal.keep(replace(journal.memory(run), run=run))
        with pytest.raises(WrongRound, match="has joined 2 runs"):
            journal.memory(bytes(32))
        assert journal.memory(RUN).run == RUN  # where it has its place


def test_a_run_that_was_left_with_a_backup_is_not_attested(tmp_path: Path) -> None:
    """What the party answered after the backup its ledger does not know."""
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    with deployment.ledger("north") as ledger:
        then = LedgerMark.of(ledger)
    Journal(deployment.home("north") / "state").leave(ledger=then)
    words = done("attest", deployment, out)
    assert "put back from a backup" in words.pop("north")
    assert set(words.values()) == {"signed"}


def test_a_cancelled_run_is_not_attested(tmp_path: Path) -> None:
    deployment, out = Deployment(folder=tmp_path, **FOUR), tmp_path / "server" / "runs" / "a"
    deployment.run(out)
    done("attest", deployment, out, "north")
    name = json.loads((out / "private" / "run.json").read_text())["run"]
    handled(deployment, "north", Cancel(run=RUN, **ROUND, name=name.encode(), seats=b""))
    assert "was cancelled" in done("attest", deployment, out)["north"]


def seats(deployment: Deployment, name: str) -> list[Path]:
    return sorted((state(deployment, name) / "seats").glob("[!.]*"))
