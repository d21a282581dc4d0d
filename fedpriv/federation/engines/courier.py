"""Requests to nodes and their replies, over a Flower grid: one exchange is one push and many pulls.

The loop is our own because `Grid.send_and_receive` polls every three seconds and returns everything
at the end; here replies are handed on as they arrive, so that an answer is added to the sum and
dropped.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from fedpriv._validate import require_non_negative, require_positive
from fedpriv.federation.exchange_report import Traffic
from fedpriv.federation.protocol.wire import Reply
from fedpriv.secagg.errors import BadSignature, MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flwr.serverapp import Grid

    from fedpriv.federation.engines.seals import Asked, Seal
    from fedpriv.federation.exchange_report import Tally
    from fedpriv.federation.protocol.wire import Request

ENVELOPE = "fedpriv"
_LONGEST_LEAVE = 24 * 3600.0
_GONE = (
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)


class Clock(Protocol):
    """The clock of the deadlines."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class WallClock:
    """Real time."""

    def now(self) -> float:
        """Seconds, never backwards."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the server waits for nodes and replies.

    Attributes:
        arrival: Seconds for all nodes to arrive before the first exchange.
        reply: Seconds for the replies of one exchange: whoever is silent then has dropped out.
        poll: Seconds between two polls.
        leave: Seconds for which a node that was silent twice is not awaited again, whatever sign of
            life it gives; doubled with each further silence. Otherwise a node that comes and goes
            would cost ``reply`` every time, and one party could delay a run for ever. 0 turns this
            off.
            such thing.
    """

    arrival: float = 120.0
    reply: float = 120.0
    poll: float = 0.05
    leave: float = 0.0

    def __post_init__(self) -> None:
        require_positive(arrival=self.arrival, reply=self.reply, poll=self.poll)
        require_non_negative(leave=self.leave)


def envelope(data: bytes) -> RecordDict:
    """Bytes as the content of a Flower message."""
    return RecordDict({ENVELOPE: ConfigRecord({ENVELOPE: data})})


def opened(message: Message) -> bytes:
    """The bytes that `envelope` put into a message."""
    try:
        data = message.content.config_records[ENVELOPE][ENVELOPE]
    except (KeyError, ValueError):
        raise MalformedMessage("The message has no envelope.") from None
    if not isinstance(data, bytes):
        raise MalformedMessage("An envelope must hold bytes.")
    return data


class Courier:
    """Carries requests out and brings replies in.

    Args:
        grid: Flower's grid.
        patience: How long to wait.
        clock: The clock of the deadlines.
        tally: Where it counts messages.
        seal: Signs requests and checks replies.
    """

    def __init__(
        self, grid: Grid, *, patience: Patience, clock: Clock, tally: Tally, seal: Seal
    ) -> None:
        self._grid = grid
        self._seal = seal
        self._patience = patience
        self._clock = clock
        self._tally = tally
        self._overdue: dict[str, Asked] = {}
        self._silences: Counter[int] = Counter()  # how often each was awaited in vain
        self._leave: dict[int, float] = {}  # until when it is not awaited again
        self.silent: set[int] = set()

    def nodes(self) -> list[int]:
        """The connected nodes; where seats are known, those that have one."""
        there, seats = set(self._grid.get_node_ids()), self._seal.seats()
        return sorted(there if seats is None else there & seats.keys())

    def arrived(self, count: int) -> list[int]:
        """At least ``count`` nodes, or those that arrived in time."""
        deadline = self._clock.now() + self._patience.arrival
        while len(nodes := self.nodes()) < count and self._clock.now() < deadline:
            self._clock.sleep(self._patience.poll)
        return nodes

    def returned(self, nodes: Collection[int]) -> list[int]:
        """Which of these nodes are connected: all of them, or those that came back in time.

        They are needed, so a node on leave is awaited again.
        """
        self._leave.clear()
        deadline = self._clock.now() + self._patience.reply
        while missing := set(nodes).difference(self.nodes()):
            if self._clock.now() >= deadline:
                break
            self._clock.sleep(self._patience.poll)
        return sorted(set(nodes) - missing)

    def exchange(
        self, step: str, requests: Mapping[int, Request], *, unawaited: Collection[int] = ()
    ) -> Iterator[tuple[int, Reply]]:
        """Every node's reply to its request, as it arrives; only the first reply of each.

        Ends when all have replied or time is up, without waiting for the ``unawaited`` nodes. Then
        `silent` has those that did not reply. What is not a reply is counted and dropped; a reply
        without the required signature is ignored, and the genuine one still awaited.
        """
        started, deadline = perf_counter(), self._clock.now() + self._patience.reply
        waiting, sent = self._push(step, requests)
        pending, received = dict(waiting), 0
        while True:
            heard: set[int] = set()
            for message in self._grid.pull_messages(list(pending | self._overdue)):
                replied = message.metadata.reply_to_message_id
                asked = waiting.get(replied) or self._overdue.get(replied)
                body = None if asked is None else self._body(asked, message)
                if asked is None or body is None:
                    self._tally.reject("late" if asked is None else "forged")
                elif replied not in waiting:
                    self._late(replied, message)
                elif replied not in pending:
                    self._tally.reject("duplicate")
                else:
                    del pending[replied]
                    heard.add(asked.node)
                    received += len(body)
                    reply = self._read(asked.node, message, body)
                    if reply is not None:
                        yield asked.node, reply
            left = {asked.node for asked in pending.values()}
            if not left - set(unawaited) or self._clock.now() >= deadline:
                break
            if not heard:
                self._clock.sleep(self._patience.poll)
        self.silent |= left
        self._miss(left - set(unawaited))
        self._overdue = pending
        traffic = Traffic(
            exchanges=1, seconds=perf_counter() - started, sent=sent, received=received
        )
        self._tally.exchange(step, traffic)

    def _push(self, step: str, requests: Mapping[int, Request]) -> tuple[dict[str, Asked], int]:
        """Send, and record which message went to which node."""
        outgoing, sent, seconds = [], 0, 2 * self._patience.reply
        for node, request in requests.items():
            body = request.to_bytes()
            sent += len(body)
            asked, data = self._seal.sealed(node, body, run=request.run, seconds=seconds)
            message = Message(envelope(data), node, f"{MessageType.QUERY}.{step}", ttl=seconds)
            outgoing.append((asked, message))
        pushed = set(self._grid.push_messages([message for _, message in outgoing]))
        waiting = {
            message.metadata.message_id: asked
            for asked, message in outgoing
            if message.metadata.message_id in pushed
        }
        if lost := requests.keys() - {asked.node for asked in waiting.values()}:
            self._tally.reject("unsent", len(lost))
            self.silent |= lost
        return waiting, sent

    def _miss(self, nodes: Collection[int]) -> None:
        """Record a node that was awaited in vain: the second time it is given leave."""
        self._tally.reject("silent", len(nodes))
        self._silences.update(nodes)
        for node in nodes:
            if (more := self._silences[node] - 2) >= 0 and self._patience.leave:
                away = min(self._patience.leave * 2.0 ** min(more, 62), _LONGEST_LEAVE)
                self._leave[node] = self._clock.now() + away

    def _hear(self, node: int) -> None:
        """A sign of life: the node is awaited from now on, unless it is on leave."""
        if self._clock.now() >= self._leave.get(node, 0.0):
            self.silent.discard(node)

    def _late(self, replied: str, message: Message) -> None:
        """A reply to an earlier exchange: useless, but a sign of life."""
        self._tally.reject("late")
        asked = self._overdue.pop(replied)
        if not message.has_error():
            self._hear(asked.node)

    def _body(self, asked: Asked, message: Message) -> bytes | None:
        """The bytes of a reply, if there are any; None without the required signature.

        Errors come from Flower, and nobody signs them.
        """
        if message.has_error():
            return b""
        try:
            data = opened(message)
        except MalformedMessage:
            data = b""
        try:
            return self._seal.opened(asked, data)
        except BadSignature:
            return None

    def _read(self, node: int, message: Message, body: bytes) -> Reply | None:
        """The reply in a message, if it has one."""
        if message.has_error():
            gone = message.error.code in _GONE
            self._tally.reject("gone" if gone else "error")
            (self.silent.add if gone else self._hear)(node)
            return None
        self._hear(node)
        try:
            reply = Reply.from_bytes(body)
        except MalformedMessage:
            self._tally.reject("malformed")
            return None
        if reply.refusal:
            self._tally.refused(reply.refusal)
        return reply
