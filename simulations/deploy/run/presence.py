"""Presence of the parties in a run: who was asked what, and when each was last heard.

A server cannot look at its parties' machines. What it knows is what its ServerApp sees on the way
of its messages: `WatchedGrid` notes it, and says it in the log and in ``private/parties.json`` of
the run, for `fedpriv deploy status`. Contents of messages are not looked at.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from logging import INFO
from typing import TYPE_CHECKING, Any

from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log
from httpx import HTTPError

from fedpriv.federation.exchange_report import one_line
from fedpriv.simulations.deploy.health.heartbeat import replace_lightly
from fedpriv.simulations.deploy.members.membership import nodes
from fedpriv.simulations.run.files import PRIVATE, private

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from flwr.app import Message
    from flwr.supercore.run import Run

    from fedpriv.simulations.deploy.folders import ServerFolder

_FILE = "parties.json"
_LONGEST_REASON = 80  # characters of what a party says
_NOT_ITS_OWN = (  # replies that the SuperLink makes when there is none
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)
_FILE_SECONDS = 2.0  # between two notes while nothing comes
_LOG_SECONDS = 30.0  # between two lines that name whoever is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A party in a run, as its server sees it. Times are in seconds since 1970.

    Attributes:
        replied: When its last reply came; None if none did.
        error: What the last reply said in the place of an answer, in a word or two.
        step: Which exchange it owes a reply in; empty if none.
        asked: When it was asked.
        deadline: When its message expires.
    """

    replied: float | None = None
    error: str = ""
    step: str = ""
    asked: float | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """All nodes of a run.

    Attributes:
        time: When that was known.
        pid: By which process.
        nodes: The nodes that were asked.
    """

    time: float
    pid: int
    nodes: dict[str, Presence]


class WatchedGrid(Grid):
    """A grid that notes who was asked, and who replied.

    Args:
        grid: The real one.
        directory: Of the run.
        names: Which party every registered node is of.
    """

    def __init__(self, grid: Grid, *, directory: Path, names: Mapping[str, str]) -> None:
        self._grid, self._names = grid, dict(names)
        self._file = private(directory) / _FILE
        self._presence: dict[str, Presence] = {}
        self._waiting: dict[str, str] = {}
        self._heard: set[str] = set()
        self._missed: set[str] = set()
        self._noted = 0.0
        self._logged = time.time()

    def missing(self) -> tuple[str, ...]:
        """The parties that missed an exchange since this was last asked, or were not in any."""
        self._miss_who_owes()
        absent = (self._names.keys() | self._presence.keys()) - self._heard
        names = tuple(sorted(self._name(node) for node in absent | self._missed))
        self._heard, self._missed = set(), set()
        return names

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages, and note to whom."""
        self._miss_who_owes()  # the exchange before this one goes on without them
        messages = list(messages)
        pushed = list(self._grid.push_messages(messages))
        for message in messages:
            metadata, node = message.metadata, str(message.metadata.dst_node_id)
            self._waiting[node] = metadata.message_id
            self._presence[node] = replace(
                self._presence.get(node, Presence()),
                step=metadata.message_type.rpartition(".")[2],
                asked=time.time(),
                deadline=metadata.created_at + metadata.ttl,
            )
        self._note()
        self._logged = time.time()
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Fetch replies, and note whose."""
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            self._hear(reply)
        if replies or time.time() - self._noted > _FILE_SECONDS:
            self._note()
        waiting = [
            f"{self._name(node)} ({each.step}, {time.time() - each.asked:.0f} s)"
            for node, each in sorted(self._presence.items())
            if each.asked is not None
        ]
        self._say("waiting for", waiting)
        return replies

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are there."""
        there = list(self._grid.get_node_ids())
        known = {str(node) for node in there}
        self._say("not there:", [name for node, name in self._names.items() if node not in known])
        return there

    def _hear(self, reply: Message) -> None:
        node = str(reply.metadata.src_node_id)
        before, error = self._presence.get(node, Presence()), ""
        if reply.has_error():
            if reply.error.code in _NOT_ITS_OWN:
                return
            error = one_line(reply.error.reason or "unknown")[:_LONGEST_REASON]
            self._missed.add(node)
        else:
            self._heard.add(node)
        if self._waiting.get(node) == reply.metadata.reply_to_message_id:
            before = replace(before, step="", asked=None, deadline=None)
        self._presence[node] = replace(before, replied=time.time(), error=error)

    def _miss_who_owes(self) -> None:
        self._missed |= {node for node, each in self._presence.items() if each.asked is not None}

    def _note(self) -> None:
        self._noted = time.time()
        known = Attendance(time=self._noted, pid=os.getpid(), nodes=self._presence)
        replace_lightly(self._file, asdict(known))

    def _say(self, what: str, names: list[str]) -> None:
        if names and time.time() - self._logged > _LOG_SECONDS:
            self._logged = time.time()
            log(INFO, "fedpriv: %s %s", what, ", ".join(sorted(names)))

    def _name(self, node: str) -> str:
        return self._names.get(node, f"node {node}")

    # What is passed on.

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run."""
        return self._grid.run

    def create_message(self, *arguments: Any, **more: Any) -> Message:
        """Make a message."""
        return self._grid.create_message(*arguments, **more)

    def send_and_receive(self, *arguments: Any, **more: Any) -> Iterable[Message]:
        """Not for protocols with several exchanges: unwatched."""
        return self._grid.send_and_receive(*arguments, **more)


def attendance(directory: Path) -> Attendance | None:
    """What the ServerApp of a run noted last; None if it has noted nothing."""
    try:
        values = json.loads((directory / PRIVATE / _FILE).read_text())
        noted = {node: Presence(**each) for node, each in values["nodes"].items()}
        return Attendance(time=values["time"], pid=values["pid"], nodes=noted)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def node_names(folder: ServerFolder) -> dict[str, str]:
    """The party of every registered node; none where the SuperLink cannot be asked."""
    try:
        return {each.node: each.name for each in nodes(folder)}
    except (ValueError, OSError, HTTPError):  # names are for people: a run goes on without them
        return {}
