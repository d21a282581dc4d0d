"""A round of Flower's SecAgg+, through its public classes, timed in this process."""

from __future__ import annotations

import logging
from copy import deepcopy
from time import process_time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common import recorddict_compat
from flwr.server import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.supercore.task_identity import TaskIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.serverapp import Grid

FULL_CLIENTS = 3
"""Parties that mask at full length where all would take too long."""


class Clock:
    """Processor time of every call, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def time(self, name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call, and note the time that it took."""
        start = process_time()
        result = call(*arguments, **options)
        self.seconds.setdefault(name, []).append(process_time() - start)
        return result

    def a_client(self) -> float:
        """What the average party spent: the mean of every step."""
        return sum(
            sum(calls) / len(calls) for name, calls in self.seconds.items() if name != "server"
        )


def flower_round(parties: int, threshold: int, dimension: int, dropped: float) -> dict[str, float]:
    """The same round by Flower's `SecAggPlusWorkflow` and `secaggplus_mod`, in this process.

    A few clients mask at full length; the server gets one of their vectors from the others, too.
    """
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # what messages carry
    logging.getLogger("flwr").setLevel(logging.WARNING)
    nodes = list(range(1, parties + 1))
    gone = set(nodes[-round(dropped * parties) :])
    contexts = {i: Context(1, i, {}, RecordDict(), {}) for i in nodes}
    clock, payload, size = Clock(), list[Any](), dict[str, int]()
    full = [np.zeros(dimension, dtype=np.float32)]

    def client(sent: Message) -> Message:
        message = deepcopy(sent)  # clients change what they get, and a network would copy it
        node = message.metadata.dst_node_id
        stage = str(message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        masks = stage == Stage.COLLECT_MASKED_VECTORS
        short = masks and node > FULL_CLIENTS

        def fit(request: Message, _: Context) -> Message:
            parameters = ndarrays_to_parameters([full[0][:1]] if short else full)
            result = FitRes(Status(Code.OK, ""), parameters, 1, {})
            return Message(
                recorddict_compat.fitres_to_recorddict(result, keep_input=True), reply_to=request
            )

        if masks and node in gone:
            return Message(Error(code=0), reply_to=message)
        name = "short" if short else stage
        reply: Message = clock.time(name, secaggplus_mod, message, contexts[node], fit)
        record = reply.content.config_records[RECORD_KEY_CONFIGS]
        if short:
            record[Key.MASKED_PARAMETERS] = payload[0]
        elif masks:
            payload.append(record[Key.MASKED_PARAMETERS])
        size.setdefault(name, sum(_length(value) for value in record.values()))
        return reply

    class Network:
        """The one method of a grid that the workflow uses."""

        seconds = 0.0

        def send_and_receive(self, messages: list[Message], **_: Any) -> list[Message]:
            start = process_time()
            replies = [client(m) for m in sorted(messages, key=lambda m: m.metadata.dst_node_id)]
            self.seconds += process_time() - start
            return replies

    class Everybody(FedAvg):
        """All nodes take part; what becomes of the sum is not measured."""

        def configure_fit(self, *_: Any) -> Any:
            fit = FitIns(Parameters([], ""), {})
            return [(SimpleNamespace(node_id=node), fit) for node in nodes]

        def aggregate_fit(self, *_: Any) -> Any:
            return None, {}

    state = RecordDict({"config": ConfigRecord({"current_round": 1})})
    state["parameters"] = recorddict_compat.parameters_to_arrayrecord(Parameters([], ""), True)
    context = LegacyContext(Context(1, 0, {}, state, {}), strategy=Everybody())
    network, start = Network(), process_time()
    SecAggPlusWorkflow(parties, threshold)(cast("Grid", network), context)
    server = process_time() - start - network.seconds
    clock.seconds.pop("short")
    return {
        "client": clock.a_client(),
        "server": server,
        "setup_bytes": size[Stage.SETUP] + size[Stage.SHARE_KEYS],
        "answer_bytes": size[Stage.COLLECT_MASKED_VECTORS],
        "reveal_bytes": size[Stage.UNMASK],
    }


def _length(value: Any) -> int:
    items = value if isinstance(value, list) else [value]
    return sum(len(item) if isinstance(item, bytes) else 8 for item in items)
