"""Status of a member as it is: its processes and worker, and at the server every party and run.

state      a worker                              a party, as its server sees it
idle       waits for a task                      owes no reply
working    has one, in time                      owes one, and is waited for
overdue    its deadline has passed               is not waited for, or said "overdue" itself
hung       no heartbeat, or long past deadline   is online, and its message has expired
down       a process has ended, or no server     its node is not online
expelled   by the party's own roster             by the roster
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedpriv.federation.deployed.policy import read_party
from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
from fedpriv.simulations.deploy.health.heartbeat import last_beat
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.processes import processes
from fedpriv.simulations.deploy.run.closed import is_cancelled
from fedpriv.simulations.deploy.run.lock import server_of
from fedpriv.simulations.deploy.run.presence import Attendance, Presence, attendance, node_names
from fedpriv.simulations.deploy.run.submission import known_run, result_of
from fedpriv.simulations.run.files import PRIVATE

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.flower.control import Sighting
    from fedpriv.simulations.deploy.health.heartbeat import Beat

State = Literal["idle", "working", "overdue", "hung", "down", "expelled"]
FAULTS: tuple[State, ...] = ("overdue", "hung", "down", "expelled")
RunState = Literal["running", "waiting", "finished", "failed", "interrupted", "cancelled"]
_SILENT_SECONDS = 60.0  # without a heartbeat; reading a large table takes some of it
_LATE_SECONDS = 30.0  # after a deadline: a task is ended within seconds of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A process of the member.

    Attributes:
        name: What it is called.
        pid: Its id.
        alive: Whether it runs.
        orphans: How many processes it left, if it does not.
    """

    name: str
    pid: int
    alive: bool
    orphans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyStatus:
    """A party, as its server sees it. Ages are in seconds; None where nothing is known.

    Attributes:
        name: Its name.
        state: See the table above.
        status: What the SuperLink says of its node.
        seen: How long ago its node was last heard.
        replied: How long ago it last replied, in the run that goes on or was the last.
        step: Which exchange it owes a reply in.
        outstanding: For how long.
        error: What its last reply said in the place of an answer.
    """

    name: str
    state: State
    status: str
    seen: float | None = None
    replied: float | None = None
    step: str = ""
    outstanding: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run of the server.

    Attributes:
        directory: Its directory.
        run: Flower's number for it; None if it was never submitted.
        state: "running" while a process serves it; "waiting" if it was submitted and nobody did
            yet; "interrupted" if nobody serves it and it says nothing.
        failure: Why it has no result.
    """

    directory: str
    run: str | None
    state: RunState
    failure: str = ""

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.state == "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All that is known of a member.

    Attributes:
        state: Of the member itself.
        processes: Those that were started and not stopped.
        worker: Its last heartbeat.
        server: At a party: its node's, from when it last heard the server.
        parties: At the server: everybody in the roster.
        runs: At the server: all runs, oldest first.
    """

    state: State
    processes: tuple[ProcessStatus, ...]
    worker: Beat | None
    server: Beat | None = None
    parties: tuple[PartyStatus, ...] = ()
    runs: tuple[RunStatus, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether the member and its parties are idle or working.

        A party that was expelled is as it should be, unless its node is still let in.
        """
        faulty = (
            party
            for party in self.parties
            if party.state in FAULTS and (party.state != "expelled" or party.status == "online")
        )
        return self.state not in FAULTS and next(faulty, None) is None


def member_status(folder: ServerFolder | PartyFolder) -> Status:
    """How a member is, now."""
    started = tuple(
        ProcessStatus(
            name=process.name,
            pid=process.pid,
            alive=(alive := process.alive),
            orphans=0 if alive else len(process.left(folder.root)),
        )
        for process in processes(folder)
    )
    beat = last_beat(folder)
    up = bool(started) and all(process.alive for process in started)
    state = worker_state(beat, now=time.time()) if up else "down"
    if isinstance(folder, PartyFolder):
        server = last_beat(folder, "supernode")
        if state == "idle" and not _reached(server, beat, now=time.time()):
            state = "down"
        if _expelled(folder):
            state = "expelled"
        return Status(state=state, processes=started, worker=beat, server=server)
    runs = tuple(run_status(path) for path in sorted(folder.runs.iterdir()))
    return Status(
        state=state,
        processes=started,
        worker=beat,
        parties=_parties(folder, runs) if up else (),
        runs=runs,
    )


def worker_state(beat: Beat | None, *, now: float) -> State:
    """The state of a worker whose process is alive, by its last heartbeat."""
    if beat is None:  # it is starting, or is older than heartbeats
        return "idle"
    late = 0.0 if beat.deadline is None else now - beat.deadline
    if now - beat.time > _SILENT_SECONDS or late > _LATE_SECONDS:
        return "hung"
    if late > 0:
        return "overdue"
    return "working" if beat.run else "idle"


def party_state(presence: Presence, *, online: bool, patience: float, now: float) -> State:
    """The state of a party in a run that goes on, by what its server has seen.

    Args:
        presence: That.
        online: Whether the SuperLink hears its node.
        patience: The fraction of a message's life for which the server waits.
        now: The time.
    """
    if not online:
        return "down"
    if presence.asked is None or presence.deadline is None:
        return "overdue" if presence.error == "overdue" else "idle"
    if now - presence.deadline > _LATE_SECONDS:
        return "hung"
    waited = presence.asked + patience * (presence.deadline - presence.asked)
    return "overdue" if now > waited else "working"


def run_status(directory: Path) -> RunStatus:
    """How a run is, now."""
    submitted = known_run(directory)
    failure = directory / PRIVATE / "failure.txt"
    state: RunState = "interrupted"
    if result_of(directory) is not None:
        state = "finished"
    elif is_cancelled(directory):
        state = "cancelled"
    elif server_of(directory) is not None:
        state = "running"
    elif failure.exists():
        state = "failed"
    elif submitted is not None and attendance(directory) is None:
        state = "waiting"
    return RunStatus(
        directory=str(directory),
        run=None if submitted is None else submitted.run,
        state=state,
        failure=failure.read_text().strip() if state == "failed" else "",
    )


def _parties(folder: ServerFolder, runs: tuple[RunStatus, ...]) -> tuple[PartyStatus, ...]:
    """Everybody in the roster, as the SuperLink and the ServerApp have seen them."""
    from pathlib import Path

    from fedpriv.simulations.deploy.flower.control import sightings

    try:
        seen = {each.node: each for each in sightings(folder)}
        members = read_roster(folder.roster).members
    except ValueError:  # the SuperLink does not answer, or nobody was added yet
        return ()
    nodes = {name: node for node, name in node_names(folder).items()}
    going = [run for run in runs if run.state == "running"]
    known = [attendance(Path(run.directory)) for run in (going or runs)[-1:]]
    latest = known[0] if known else None
    return tuple(
        _party(
            member.name,
            expelled=getattr(member, "expelled", None) is not None,
            sighting=seen.get(nodes.get(member.name, "")),
            latest=latest,
            going=bool(going),
        )
        for member in members
    )


def _party(
    name: str,
    *,
    expelled: bool,
    sighting: Sighting | None,
    latest: Attendance | None,
    going: bool,
) -> PartyStatus:
    now = time.time()
    online = sighting is not None and sighting.status == "online"
    presence = Presence()
    if latest is not None and sighting is not None:
        presence = latest.nodes.get(sighting.node, presence)
    watched = presence if going else Presence()  # nobody owes a reply to a run that is over
    state: State = party_state(watched, online=online, patience=0.5, now=now)
    return PartyStatus(
        name=name,
        state="expelled" if expelled else state,
        status="unknown" if sighting is None else sighting.status,
        seen=None if sighting is None else _age(sighting.seen, now),
        replied=_age(presence.replied, now),
        step=watched.step,
        outstanding=_age(watched.asked, now),
        error=presence.error,
    )


def _age(moment: float | None, now: float) -> float | None:
    return None if moment is None else round(max(0.0, now - moment), 1)


def _reached(server: Beat | None, worker: Beat | None, *, now: float) -> bool:
    """Whether a party's node has heard its server lately, or had no time to: it was answering."""
    if server is None or worker is None:  # it is starting
        return True
    return now - max(server.time, worker.since or 0.0) <= _SILENT_SECONDS


def _expelled(folder: PartyFolder) -> bool:
    """Whether a party's own roster says that it was expelled."""
    try:
        name, members = read_party(folder.policy).name, read_roster(folder.roster).members
    except ValueError:  # one of them is not there yet
        return False
    return any(
        member.name == name and getattr(member, "expelled", None) is not None for member in members
    )
