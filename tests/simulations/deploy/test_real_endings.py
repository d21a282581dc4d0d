"""Tasks that hang, and a server that is killed: everything ends, and what ended is told.

Real SuperLink, SuperNodes and workers on the loopback, with TLS and node keys; four parties, of
which one may be missing. In the first run a party's task hangs for ever. In the second one, too,
and then the server's worker is killed alone.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.deploy.flower import control
from fedpriv.simulations.deploy.health.recovery import recover
from fedpriv.simulations.deploy.health.status import member_status
from fedpriv.simulations.deploy.processes import processes
from fedpriv.simulations.deploy.run.lock import server_of
from fedpriv.simulations.deploy.run.submission import submit
from fedpriv.simulations.deploy.sessions import look_at
from tests.simulations.deploy import fates
from tests.simulations.deploy.standing import FOUR, standing, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.folders import PartyFolder
    from fedpriv.simulations.deploy.health.recovery import Finding
    from fedpriv.simulations.deploy.health.status import Status
    from fedpriv.simulations.deploy.run.submission import Submitted
    from tests.simulations.deploy.standing import Standing

REPLY_SECONDS = 12.0  # the server's patience; a message lives for twice as long


@dataclass
class Story:
    """What happened, and what was seen of it."""

    live: Standing
    idle: Status
    hung: int = 0
    at_party: Status | None = None
    at_server: Status | None = None
    refused: str = ""
    survived: bool = True
    finished: list[bool] = field(default_factory=list)
    paid: list[list[tuple[str, int]]] = field(default_factory=list)
    orphans: tuple[int | None, int | None] = (None, None)
    down: Status | None = None
    found: tuple[Finding, ...] = ()
    before: str = ""
    resumed: Submitted | None = None


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with standing(min_noise=0.001) as live:
        wait_until(lambda: _everybody_is(live, "idle"), what="the parties")
        story = Story(live, idle=member_status(live.server))
        fates.patience(live.server.root, attempts=3, seconds=REPLY_SECONDS)
        _a_task_hangs(story)
        _the_server_is_killed(story)
        yield story


def _everybody_is(live: Standing, *states: str) -> bool:
    parties = member_status(live.server).parties
    return len(parties) == len(FOUR) and all(party.state in states for party in parties)


def _hang(live: Standing, party: PartyFolder) -> int:
    """The process of a party's task that hangs."""
    note = fates.hung(party.root)
    wait_until(lambda: note.exists() and bool(note.read_text()), what="the task to hang")
    process = int(note.read_text())
    note.unlink()
    return process


def _a_task_hangs(story: Story) -> None:
    live, north = story.live, story.live.party("north")
    fates.give(north.root, "answer hangs fork")
    submitted = live.begin(live.written("clinics", strategy={"rounds": 2}))
    story.hung = _hang(live, north)
    story.at_party = member_status(north)
    story.at_server = member_status(live.server)
    try:
        submit(submitted.directory, live.server)
    except ValueError as error:
        story.refused = str(error)
    wait_until(lambda: look_at(story.hung) is None, what="the deadline")
    story.finished.append(live.end(submitted.directory) is not None)
    story.paid.append(live.reserved(north))
    wait_until(lambda: member_status(north).state == "idle", what="the party's worker")


def _the_server_is_killed(story: Story) -> None:
    live, north = story.live, story.live.party("north")
    fates.give(north.root, "answer hangs fork")
    submitted = live.begin(live.written("second"))
    _hang(live, north)
    wait_until(lambda: server_of(submitted.directory) is not None, what="the ServerApp")
    worker = next(each for each in processes(live.server) if each.name == "worker")
    served_by = server_of(submitted.directory)
    os.kill(worker.pid, signal.SIGKILL)  # and not the group
    wait_until(lambda: not worker.alive, what="the server's worker")
    wait_until(lambda: server_of(submitted.directory) is None, what="its ServerApp")
    story.orphans = (worker.pid, served_by)
    story.down, story.before = member_status(live.server), submitted.run
    story.found = recover(live.server, end=False)
    live.start(live.server, "worker")
    story.resumed = submit(submitted.directory, live.server)
    story.finished.append(live.end(submitted.directory) is not None)
    story.paid.append(live.reserved(north))


def test_a_federation_that_waits_is_idle_and_sound(story: Story) -> None:
    assert story.idle.state == "idle"
    assert story.idle.sound
    assert {party.name for party in story.idle.parties} == set(FOUR)
    assert all(party.seen is not None and party.seen < 60 for party in story.idle.parties)


def test_a_task_that_hangs_is_seen_at_its_party_and_at_the_server(story: Story) -> None:
    assert story.at_party is not None
    assert story.at_party.state == "working"
    assert story.at_party.server is not None
    beat = story.at_party.worker
    assert beat is not None
    assert beat.step == "answer"
    assert beat.deadline is not None
    assert beat.since is not None
    assert 0 < beat.deadline - beat.since <= 2 * REPLY_SECONDS
    assert story.at_server is not None
    north = next(party for party in story.at_server.parties if party.name == "north")
    assert north.state in ("working", "overdue")
    assert north.step == "answer"
    assert north.outstanding is not None
    assert [run.state for run in story.at_server.runs] == ["running"]


def test_a_task_that_hangs_is_ended_and_the_run_goes_on_and_names_who_was_missing(
    story: Story,
) -> None:
    live = story.live
    assert story.finished[0]
    north = live.party("north")
    assert "a task was overdue" in live.log(north)
    assert "Traceback" not in (north.processes / "supernode.log").read_text()
    assert "without north" in live.log(live.server)


def test_the_party_of_the_hung_task_answers_the_next_message(story: Story) -> None:
    """What it had journalled when it hung was paid for, and was not asked for again."""
    first, second = story.paid
    assert len(second) > len(first) >= 1


def test_a_run_that_is_served_is_not_submitted_again(story: Story) -> None:
    assert "goes on, as process" in story.refused


def test_a_server_app_dies_with_its_worker(story: Story) -> None:
    worker, app = story.orphans
    assert app is not None
    assert app != worker
    assert look_at(app) is None


def test_a_server_whose_worker_was_killed_is_down_and_its_run_interrupted(story: Story) -> None:
    assert story.down is not None
    assert (story.down.state, story.down.sound) == ("down", False)
    assert story.down.runs[-1].state == "interrupted"
    kinds = {finding.kind: finding for finding in story.found}
    assert kinds["run"].run == story.before
    assert "record" in kinds


def test_a_run_that_is_resumed_ends_what_flower_had_of_it(story: Story) -> None:
    assert story.resumed is not None
    assert story.resumed.run != story.before
    assert story.finished[1]
    assert not control.is_open(story.live.server, story.before)
    assert not control.is_open(story.live.server, "1234567")  # of another database
