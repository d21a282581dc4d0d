"""A Flower grid with planned faults."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedpriv.federation.engines.courier import envelope, opened
from fedpriv.federation.protocol.wire import Joined, Reply
from fedpriv.secagg.errors import MalformedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.supercore.run import Run

    from fedpriv.federation.engines.courier import Clock
    from fedpriv.federation.engines.faults import Fault, FaultPlan

_OF_A_SUM = ("ask", "answer")
_LOST = "lost-"  # prefix of messages that the real grid never sees
_VERSION_AT = 16  # after the length of a refusal, which is empty, and that of the first record


class FaultyGrid(Grid):
    """Passes messages on, with the faults of a plan.

    Like the server, it learns which node is which party from the replies to ``join``.

    Args:
        grid: The real one.
        plan: The faults.
        clock: The federation's clock, by which delays are counted.
    """

    def __init__(self, grid: Grid, plan: FaultPlan, clock: Clock) -> None:
        self._grid = grid
        self._plan = plan
        self._clock = clock
        self._exchanges: Counter[str] = Counter()
        self._pulls = self._lost = 0
        self._party: dict[int, int] = {}
        self._fates: dict[str, tuple[Fault, ...]] = {}
        self._failed: dict[str, Message] = {}
        self._twins: dict[str, str] = {}
        self._withheld: list[tuple[float, Message]] = []
        self._previous: dict[int, bytes] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send what is not lost on the way; some of it fails, some stays unanswered."""
        batch = list(messages)
        fates = [self._fate(message) for message in batch]
        self._exchanges.update({_step(message) for message in batch})
        sent, copies = [], {}
        for message, fate in zip(batch, fates, strict=True):
            kinds = {fault.kind for fault in fate}
            if not kinds & {"silence", "error"}:
                sent.append(message)
                if "duplicate" in kinds:
                    copies[len(sent) - 1] = _copy(message)
                continue
            self._lost += 1
            name = f"{_LOST}{self._lost}"
            message.metadata.__dict__["_message_id"] = name
            if "error" in kinds:
                self._failed[name] = message
        self._grid.push_messages(sent)
        self._grid.push_messages(list(copies.values()))
        for place, copy in copies.items():
            self._twins[copy.metadata.message_id] = sent[place].metadata.message_id
        names = [message.metadata.message_id for message in batch]
        self._fates |= {name: fate for name, fate in zip(names, fates, strict=True) if fate}
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """What has arrived, with the plan's faults."""
        wanted = set(message_ids)
        self._pulls += 1
        come = [_failure(self._failed.pop(name)) for name in wanted & self._failed.keys()]
        twins = {copy for copy, original in self._twins.items() if original in wanted}
        known = {name for name in wanted if not name.startswith(_LOST)}
        for reply in self._grid.pull_messages(list(known | twins)):
            original = self._twins.pop(reply.metadata.reply_to_message_id, None)
            if original is not None:
                reply.metadata.__dict__["_reply_to_message_id"] = original
            come += self._after(reply)
        now = self._clock.now()
        come += [reply for due, reply in self._withheld if due <= now]
        self._withheld = [(due, reply) for due, reply in self._withheld if due > now]
        return [come[place] for place in self._plan.order(len(come), pull=self._pulls)]

    def _fate(self, message: Message) -> tuple[Fault, ...]:
        step, party = _step(message), self._party.get(message.metadata.dst_node_id)
        if party is None:
            return ()
        asked = sum(self._exchanges[name] for name in _OF_A_SUM)
        return self._plan.of(
            step=step,
            occurrence=self._exchanges[step],
            round_=asked if step in _OF_A_SUM else asked - 1,
            party=party,
        )

    def _after(self, reply: Message) -> list[Message]:
        """A reply as it arrives now: whole, damaged, or not at all."""
        node = reply.metadata.src_node_id
        if reply.has_error():
            return [reply]
        data = opened(reply)
        if _step(reply) == "join":
            self._party.setdefault(node, _number(data))
        previous, self._previous[node] = self._previous.get(node, b""), data
        for fault in self._fates.get(reply.metadata.reply_to_message_id, ()):
            match fault.kind:
                case "lost":
                    return []
                case "delay":
                    self._withheld.append((self._clock.now() + fault.seconds, reply))
                    return []
                case "flip":
                    data = data[:_VERSION_AT] + b"\xff" + data[_VERSION_AT + 1 :]
                case "truncate":
                    data = data[:-1]
                case "replay":
                    data = previous
                case _:
                    pass
        reply.content = envelope(data)
        return [reply]

    # The rest of Flower's interface is passed to the real grid.

    def get_node_ids(self) -> Iterable[int]:
        """The nodes."""
        return self._grid.get_node_ids()

    def set_run(self, run: Run) -> None:
        """Passed to the real grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Passed to the real grid."""
        return self._grid.run

    def create_message(self, *_args: object, **_more: object) -> NoReturn:
        """Not supported: Flower deprecates it."""
        raise NotImplementedError

    def send_and_receive(self, *_args: object, **_more: object) -> NoReturn:
        """Not supported: the federation pushes and pulls."""
        raise NotImplementedError


def _step(message: Message) -> str:
    """The name of the exchange: "answer" of "query.answer"."""
    return message.metadata.message_type.partition(".")[2]


def _number(data: bytes) -> int:
    """The number of the party that joins; -1 if these bytes are no such reply."""
    with suppress(MalformedMessage):
        for message in Reply.from_bytes(data).messages:
            if isinstance(message, Joined):
                return message.party
    return -1


def _copy(message: Message) -> Message:
    metadata = message.metadata
    return Message(message.content, metadata.dst_node_id, metadata.message_type, ttl=metadata.ttl)


def _failure(message: Message) -> Message:
    """What Flower returns when a ClientApp fails."""
    error = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason="left the round")
    return Message(error, reply_to=message)
