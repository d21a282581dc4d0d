"""Status that is true: what is said of workers, parties and runs, from what they leave behind."""

from __future__ import annotations

import json
import os
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from fedpriv.federation.engines.courier import envelope
from fedpriv.simulations.commands.deploy import status as deploy_status
from fedpriv.simulations.deploy.flower.control import Sighting
from fedpriv.simulations.deploy.health import status as statuses
from fedpriv.simulations.deploy.health.heartbeat import Beat, Heart, heartbeat_file, last_beat
from fedpriv.simulations.deploy.health.status import (
    member_status,
    party_state,
    run_status,
    worker_state,
)
from fedpriv.simulations.deploy.members.membership import NodeState
from fedpriv.simulations.deploy.programs import Program
from fedpriv.simulations.deploy.run import presence
from fedpriv.simulations.deploy.run.lock import served
from fedpriv.simulations.deploy.run.presence import Presence, WatchedGrid, attendance, node_names
from fedpriv.simulations.run.files import private, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulations.conftest import Command
    from tests.simulations.deploy.conftest import Deployment, Founder, Starter

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("beat", "state"),
    [
        (None, "idle"),
        (Beat(time=NOW - 5), "idle"),
        (Beat(time=NOW - 5, run="1", step="answer", since=NOW - 9, deadline=NOW + 1), "working"),
        (Beat(time=NOW - 5, run="1", step="run", since=NOW - 9e5), "working"),
        (Beat(time=NOW - 5, run="1", step="answer", since=NOW - 9, deadline=NOW - 1), "overdue"),
        (Beat(time=NOW - 5, run="1", step="answer", since=NOW - 99, deadline=NOW - 60), "hung"),
        (Beat(time=NOW - 120), "hung"),
    ],
)
def test_the_state_of_a_worker_follows_from_its_heartbeat(beat: Beat | None, state: str) -> None:
    assert worker_state(beat, now=NOW) == state


@pytest.mark.parametrize(
    ("known", "online", "state"),
    [
        (Presence(), True, "idle"),
        (Presence(), False, "down"),
        (Presence(replied=NOW - 9, error="overdue"), True, "overdue"),
        (Presence(replied=NOW - 9, error="ValueError"), True, "idle"),
        (Presence(step="share", asked=NOW - 9, deadline=NOW + 231), True, "working"),
        (Presence(step="share", asked=NOW - 130, deadline=NOW + 110), True, "overdue"),
        (Presence(step="share", asked=NOW - 300, deadline=NOW - 60), True, "hung"),
        (Presence(step="share", asked=NOW - 300, deadline=NOW - 60), False, "down"),
    ],
)
def test_the_state_of_a_party_follows_from_what_its_server_saw(
    known: Presence, online: bool, state: str
) -> None:
    assert party_state(known, online=online, patience=0.5, now=NOW) == state


def test_a_heart_writes_at_once_what_is_new_and_seldom_what_is_not(tmp_path: Path) -> None:
    heart = Heart(path=tmp_path / "beat")

    def written(beat: Beat) -> bool:
        (tmp_path / "beat").unlink(missing_ok=True)
        heart.beat(beat)
        return (tmp_path / "beat").exists()

    assert written(Beat(time=NOW))
    assert not written(Beat(time=NOW + 1))
    assert written(Beat(time=NOW + 2, run="1", since=NOW + 2, deadline=NOW + 9.1))
    assert not written(Beat(time=NOW + 3, run="1", since=NOW + 2, deadline=NOW + 9.2))
    assert written(Beat(time=NOW + 8, run="1", since=NOW + 2, deadline=NOW + 9.1))
    assert written(Beat(time=NOW + 9))
    Heart(path=tmp_path / "absent" / "beat").beat(Beat())  # stops nobody


def test_a_heartbeat_that_is_damaged_is_none(deployment: Founder) -> None:
    folder = deployment().parties[0]
    folder.processes.mkdir()
    assert last_beat(folder) is None
    for text in ("", "{", "[]", '{"pid": 1, "unknown": 2}'):
        heartbeat_file(folder).write_text(text)
        assert last_beat(folder) is None


SLEEP = "import time; time.sleep(600)"


def sleeping(folder: Any, running: Starter) -> None:
    for name in ("supernode", "worker"):
        running((Program(name=name, command=(sys.executable, "-c", SLEEP), folder=folder),))


def test_a_partys_status_is_that_of_its_worker_and_its_exit_status_follows(
    deployment: Founder, running: Starter, fedpriv: Command
) -> None:
    folder = deployment().parties[0]
    sleeping(folder, running)
    now = time.time()
    late = Beat(time=now, run="17", step="answer", since=now - 20, deadline=now - 10)
    for beat, state, code in (
        (Beat(time=now), "idle", 0),
        (Beat(time=now, run="17", step="answer", since=now - 20, deadline=now + 90), "working", 0),
        (late, "overdue", 1),
        (Beat(time=now - 300), "hung", 1),
    ):
        Heart(path=heartbeat_file(folder)).beat(beat)
        done = fedpriv("deploy", "status", folder.root)
        assert (done.code, done.out.splitlines()[0].split()) == (code, ["state", state])
        facts = json.loads(fedpriv("deploy", "status", folder.root, "--json").out)
        assert (facts["state"], facts["sound"]) == (state, code == 0)
        assert facts["worker"]["run"] == beat.run
    assert "answer of run 17 for 2" in _status_with(folder, late, fedpriv)


def test_status_is_shown_again_and_again_until_it_is_interrupted(
    deployment: Founder, running: Starter, fedpriv: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = deployment().parties[0]
    sleeping(folder, running)
    states = iter((Beat(), Beat(time=time.time() - 300)))

    def sleep(_seconds: float) -> None:
        beat = next(states, None)
        if beat is None:
            raise KeyboardInterrupt
        Heart(path=heartbeat_file(folder)).beat(beat)

    with monkeypatch.context() as patched:
        patched.setattr(deploy_status, "time", SimpleNamespace(sleep=sleep, time=time.time))
        done = fedpriv("deploy", "status", folder.root, "--watch")
    shown = [line.split()[-1] for line in done.out.splitlines() if "state " in line]
    assert (shown, done.code) == (["idle", "idle", "hung"], 1)


def test_a_party_that_does_not_hear_its_server_is_down(
    deployment: Founder, running: Starter, fedpriv: Command
) -> None:
    folder = deployment().parties[0]
    sleeping(folder, running)
    now = time.time()
    for idle, heard, state in (
        (now - 500, now - 2, "idle"),
        (now - 5, now - 400, "idle"),  # it was answering until a moment ago
        (now - 500, now - 400, "down"),
    ):
        Heart(path=heartbeat_file(folder)).beat(Beat(time=now, since=idle))
        Heart(path=heartbeat_file(folder, "supernode")).beat(Beat(time=heard))
        assert member_status(folder).state == state
    assert "server   heard 40" in fedpriv("deploy", "status", folder.root).out


def _status_with(folder: Any, beat: Beat, fedpriv: Command) -> str:
    Heart(path=heartbeat_file(folder)).beat(beat)
    return str(fedpriv("deploy", "status", folder.root).out)


def run_directory(made: Deployment, name: str) -> Path:
    directory = made.server.runs / name
    private(directory)
    return directory


def test_a_run_that_failed_detached_is_seen_with_its_reason(
    deployment: Founder, fedpriv: Command
) -> None:
    made = deployment()
    directory = run_directory(made, "one")
    assert run_status(directory).state == "interrupted"
    write_json(directory / "private" / "flower-run.json", {"run": "12"})
    assert run_status(directory).state == "waiting"
    write_json(directory / "private" / "parties.json", {"time": NOW, "pid": 1, "nodes": {}})
    assert run_status(directory).state == "interrupted"
    with served(directory):
        assert run_status(directory).state == "running"
    (directory / "private" / "failure.txt").write_text("too few parties are left.\n")
    assert run_status(directory).state == "failed"
    shown = fedpriv("deploy", "status", made.server.root)
    assert "failed: too few parties are left." in shown.out
    with served(directory):  # resumed
        assert (run_status(directory).state, run_status(directory).failure) == ("running", "")
    write_json(directory / "result.json", {})
    assert run_status(directory).state == "finished"


class Parcels:
    """A grid that delivers nothing by itself."""

    def __init__(self) -> None:
        self.replies: list[Message] = []

    def push_messages(self, messages: Any) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, _message_ids: Any) -> list[Message]:
        replies, self.replies = self.replies, []
        return replies


def request(node: int) -> Message:
    return Message(envelope(b""), node, "query.answer", ttl=60.0)


def test_a_watched_grid_notes_who_owes_a_reply_and_names_who_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
    parcels: Any = Parcels()
    grid = WatchedGrid(parcels, directory=tmp_path, names={"7": "north", "8": "south", "9": "west"})
    asked = [request(node) for node in (7, 8, 9)]
    grid.push_messages(asked)
    parcels.replies = [
        Message(envelope(b"x"), reply_to=asked[0]),
        Message(
            Error(ErrorCode.CLIENT_APP_CRASHED, "overdue\x1b[2J" + "!" * 1000), reply_to=asked[1]
        ),
        Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=asked[2]),
    ]
    assert len(list(grid.pull_messages([]))) == 3
    known = attendance(tmp_path)
    assert known is not None
    assert known.pid == os.getpid()
    north, south, west = (known.nodes[node] for node in ("7", "8", "9"))
    assert (north.asked, north.error) == (None, "")
    assert north.replied is not None
    assert (south.asked, len(south.error)) == (None, 80)
    assert south.error.startswith("overdue?[2J!")  # it is shown in a terminal
    assert (west.replied, west.step) == (None, "answer")
    assert west.deadline is not None
    assert grid.missing() == ("south", "west")
    assert grid.missing() == ("north", "south", "west")  # nobody was heard since
    asked = [request(node) for node in (7, 8)]
    grid.push_messages(asked)
    again = [request(node) for node in (7, 8)]
    grid.push_messages(again)  # without north and south
    parcels.replies = [Message(envelope(b"x"), reply_to=each) for each in again]
    grid.pull_messages([])
    assert grid.missing() == ("north", "south", "west")


def test_who_is_waited_for_is_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, value)
    said: list[str] = []
    monkeypatch.setattr(presence, "log", lambda _level, text, *facts: said.append(text % facts))
    parcels: Any = Parcels()
    grid = WatchedGrid(parcels, directory=tmp_path, names={"7": "north"})
    grid.push_messages([request(7)])
    grid.pull_messages([])
    assert said == []
    monkeypatch.setattr(presence, "_LOG_SECONDS", -1.0)
    grid.pull_messages([])
    assert said == ["fedpriv: waiting for north (answer, 0 s)"]


def test_the_server_sees_every_party_of_the_roster(
    deployment: Founder, running: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = deployment()
    assert node_names(made.server) == {}  # nobody to ask
    registered = [
        NodeState(name=name, node=node, status="")
        for node, name in (("7", "north"), ("8", "south"))
    ]
    monkeypatch.setattr(presence, "nodes", lambda _folder: registered)
    assert node_names(made.server) == {"7": "north", "8": "south"}
    sleeping(made.server, running)
    now = time.time()
    monkeypatch.setattr(
        "fedpriv.simulations.deploy.flower.control.sightings",
        lambda _folder: (
            Sighting(node="7", status="online", seen=now - 3),
            Sighting(node="8", status="offline", seen=now - 500),
        ),
    )
    directory = run_directory(made, "one")
    asked = {"step": "answer", "asked": now - 4, "deadline": now + 100, "replied": now - 9}
    nodes = {"7": {**asked, "error": ""}}
    write_json(directory / "private" / "parties.json", {"time": now, "pid": 1, "nodes": nodes})
    with served(directory):
        north, south, west = member_status(made.server).parties
        assert (north.state, north.step, north.status) == ("working", "answer", "online")
        assert (round(north.outstanding or 0), round(north.replied or 0)) == (4, 9)
        assert (south.state, west.state, west.status) == ("down", "down", "unknown")
    north = member_status(made.server).parties[0]  # nobody serves it: nobody waits
    assert (north.state, north.outstanding) == ("idle", None)
    assert not member_status(made.server).sound


@pytest.mark.parametrize(("status", "sound"), [("unregistered", True), ("online", False)])
def test_a_party_that_was_expelled_is_a_fault_only_while_its_node_is_let_in(
    status: str, sound: bool
) -> None:
    party = statuses.PartyStatus(name="x", state="expelled", status=status)
    found = statuses.Status(state="idle", processes=(), worker=None, parties=(party,))
    assert found.sound is sound
