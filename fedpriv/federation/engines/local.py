"""Engine `local`: the real ClientApp of every node, called in this process, on our own grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flwr.clientapp import ClientApp

_SERVER = 1
FIRST_NODE = 1001
"""The number of the node of party 0; the others follow."""


class VirtualClock:
    """Time that passes only when somebody waits: a minute of silence costs nothing."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds slept so far."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class LocalGrid(Grid):
    """A grid in which every node is a `Context` of its own, handed to one ClientApp.

    A message is answered when it is pushed; its reply waits to be pulled. As in a deployment, only
    the state of a node's context outlives a message.

    Args:
        app: What the nodes run.
        parties: The number of nodes; ``partition-id`` tells each which party it is.
        run_config: The configuration of the run, the same for all.
    """

    def __init__(
        self,
        app: ClientApp,
        parties: int,
        *,
        run_config: Mapping[str, bool | float | int | str] | None = None,
    ) -> None:
        _identify_process()
        self._app = app
        self._run_config = dict(run_config or {})
        self._parties = parties
        self._states = {FIRST_NODE + index: RecordDict() for index in range(parties)}
        self._replies: dict[str, Message] = {}
        self._pushed = 0

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self._states)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver every message at once."""
        names = []
        for message in messages:
            self._pushed += 1
            name = f"message-{self._pushed}"
            message.metadata.__dict__["_message_id"] = name
            self._replies[name] = self._deliver(message)
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages that were not pulled yet."""
        return [self._replies.pop(name) for name in message_ids if name in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Used by Flower's own loop; a federation pushes and pulls."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        context = Context(
            run_id=message.metadata.run_id,
            node_id=node,
            node_config={"partition-id": node - FIRST_NODE, "num-partitions": self._parties},
            state=self._states[node],
            run_config=self._run_config,
        )
        try:
            return self._app(message, context)
        except Exception as error:  # as Flower does
            reason = f"{type(error).__name__}: {error}"
            return Message(
                Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason), reply_to=message
            )

    # Methods that nobody uses here.

    def set_run(self, run: object) -> NoReturn:
        """Not supported: this grid is not part of a Flower run."""
        raise NotImplementedError

    @property
    def run(self) -> NoReturn:
        """Not supported: this grid is not part of a Flower run."""
        raise NotImplementedError

    def create_message(self, *_args: object, **_more: object) -> NoReturn:
        """Not supported: Flower deprecates it."""
        raise NotImplementedError


def _identify_process() -> None:
    """Flower's messages name the task of the process that its runtime set: set one if missing."""
    try:
        _ = TaskIdentity.task_id
    except RuntimeError:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = _SERVER
