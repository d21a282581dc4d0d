"""A real SuperLink whose ServerApp and nodes are in the hands of a test.

The test takes the task of a run as a worker would, and so speaks for the server through Flower's
own grid; and it has the node keys of the parties, with which it signs as their SuperNodes would, or
as they never would.
"""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.common.serde import message_to_proto, run_from_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node as ProtoNode
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.auth import load_superexec_auth_secret
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedpriv.federation.engines.courier import envelope
from fedpriv.simulations.deploy.federation import parse_federation, read_federation
from fedpriv.simulations.deploy.founding import found, rebundle
from fedpriv.simulations.deploy.members.changes import add
from fedpriv.simulations.deploy.members.membership import reconcile, wait_until_up
from fedpriv.simulations.deploy.processes import start, stop, tail
from fedpriv.simulations.deploy.programs import server_programs
from fedpriv.simulations.deploy.run.submission import new_run, submit
from fedpriv.simulations.experiment.file import read_experiment
from tests.simulations.deploy.conftest import (
    NAMES,
    SCHEMA,
    SIZES,
    Deployment,
    federation_values,
    write_records,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.processes import Process

BOUND = 120.0  # seconds; on a machine that is not busy a SuperLink is up after five
_EXPERIMENT = """
[data]
schema = "clinics.toml"
[strategy]
name = "gradient-perturbation"
rounds = 1
learning_rate = 1.0
[privacy]
epsilon = 1.0
[run]
engine = "deployment"
secure_aggregation = "active"
"""


@dataclass(frozen=True)
class Node:
    """A registered node that says whatever a test wants, properly signed."""

    folder: PartyFolder
    address: str

    @cached_property
    def key(self) -> Any:
        return load_ssh_private_key(self.folder.node_key.read_bytes(), None)

    @cached_property
    def signing(self) -> NodeAuthHttpInterceptor:
        return NodeAuthHttpInterceptor(self.key, self.key.public_key())

    @cached_property
    def client(self) -> FleetHttpClient:
        return FleetHttpClient.from_server_address(
            self.address, False, self.folder.ca.read_bytes(), [self.signing]
        )

    @cached_property
    def number(self) -> int:
        key = public_key_to_bytes(self.key.public_key())
        asked = ActivateNodeRequest(public_key=key, heartbeat_interval=60.0)
        return int(self.client.ActivateNode(asked).node_id)

    @property
    def named(self) -> ProtoNode:
        return ProtoNode(node_id=self.number)

    def beat(self) -> None:
        self.client.SendNodeHeartbeat(
            SendNodeHeartbeatRequest(node=self.named, heartbeat_interval=60.0)
        )

    def pulled(self) -> list[str]:
        """The ids of the messages that the SuperLink delivers."""
        answer = self.client.PullMessages(PullMessagesRequest(node=self.named))
        return [message.metadata.message_id for message in answer.messages_list]

    def object(self, identifier: str, *, run: int) -> Any:
        return self.client.PullObject(
            PullObjectRequest(node=self.named, run_id=run, object_id=identifier)
        )

    def confirm(self, identifier: str, *, run: int) -> None:
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=self.named, run_id=run, message_object_id=identifier)
        )

    def push(self, *messages: Message, trees: list[Any] | None = None) -> Any:
        """Announce messages; what is still to be pushed of them."""
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
        return self.client.PushMessages(
            PushMessagesRequest(
                node=self.named,
                messages_list=[message_to_proto(message) for message in messages],
                message_object_trees=[get_object_tree(each) for each in messages]
                if trees is None
                else trees,
            )
        )

    def push_object(self, content: bytes, identifier: str, *, run: int, session: str) -> bool:
        answer = self.client.PushObject(
            PushObjectRequest(
                node=self.named,
                run_id=run,
                object_id=identifier,
                object_content=content,
                session_id=session,
            )
        )
        return bool(answer.stored)

    def reply(self, message: Message) -> None:
        """Push a message and all of its objects, as a SuperNode does."""
        session = self.push(message).session_id
        for identifier, each in get_all_nested_objects(message).items():
            assert self.push_object(
                each.deflate(), identifier, run=message.metadata.run_id, session=session
            )


@dataclass(frozen=True)
class Fleet:
    """A SuperLink, the grid of a run on it, and the nodes of all parties."""

    deployment: Deployment
    grid: HttpGrid
    run: int
    nodes: tuple[Node, ...]

    @property
    def server(self) -> ServerFolder:
        return self.deployment.server

    def instruct(self, node: Node, data: bytes = b"instruction", *, ttl: float = 600.0) -> Message:
        """Send an instruction to a node, which is online for that."""
        node.beat()
        message = Message(envelope(data), node.number, "query.step", ttl=ttl)
        (sent,) = self.grid.push_messages([message])
        assert sent == message.metadata.message_id
        return message

    def replies(self, *messages: Message) -> list[Message]:
        return list(self.grid.pull_messages([each.metadata.message_id for each in messages]))


def answer_to(instruction: Message, data: bytes = b"answer") -> Message:
    """What a worker replies."""
    return Message(envelope(data), reply_to=instruction)


def status(action: Callable[[], object]) -> int:
    """The status by which the SuperLink answers."""
    try:
        action()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 200


@dataclass(frozen=True)
class Alone:
    """A SuperLink without a run, and the nodes of all parties."""

    deployment: Deployment
    process: Process
    nodes: tuple[Node, ...]
    address: str


@contextmanager
def superlink(root: Path) -> Iterator[Alone]:
    """Start a SuperLink at which every party is registered."""
    with ExitStack() as stack:
        deployment = _founded(root)
        server = deployment.server
        program, _ = server_programs(server)
        stack.callback(stop, server)
        process = start(program)
        assert wait_until_up(server, process, seconds=BOUND), tail(server, "superlink")
        reconcile(server)
        address = f"127.0.0.1:{read_federation(server.federation).server.port}"
        nodes = tuple(Node(folder, address) for folder in deployment.parties)
        for node in nodes:
            stack.callback(node.client.close)
        yield Alone(deployment, process, nodes, address)


@contextmanager
def fleet(root: Path) -> Iterator[Fleet]:
    """Start a SuperLink and a run, whose task nobody but the caller carries out."""
    with superlink(root) as alone:
        server = alone.deployment.server
        (root / "experiment.toml").write_text(_EXPERIMENT)
        submit(new_run(read_experiment(root / "experiment.toml"), server), server)
        with _task(alone.address, server) as grid:
            yield Fleet(alone.deployment, grid, grid.run.run_id, alone.nodes)


def _founded(root: Path) -> Deployment:
    (root / "clinics.toml").write_text(SCHEMA)
    values = federation_values(schema=str(root / "clinics.toml"), budget={"epsilon": 1e6})
    founded = found(parse_federation(values), root / "deployment")
    for number, folder in enumerate(founded.parties):
        write_records(folder.root / "records.csv", SIZES[number], seed=number)
        rebundle(folder)
    add([folder.bundle for folder in founded.parties], founded.server.root)
    assert len(founded.parties) == len(NAMES)
    return Deployment(root=root, server=founded.server, parties=founded.parties)


@contextmanager
def _task(address: str, server: ServerFolder) -> Iterator[HttpGrid]:
    """The grid of the next run, whose task is kept alive."""
    certificate = server.ca.read_bytes()
    proof = SuperExecAuthHttpInterceptor(
        master_secret=load_superexec_auth_secret(str(server.secret)) or b"",
        protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"}),
    )
    with RuntimeHttpClient.from_server_address(address, False, certificate, [proof]) as waiting:
        wanted = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
        token = waiting.AcquireTask(wanted).token
    assert token
    holder = RuntimeTokenHttpInterceptor(token)
    with RuntimeHttpClient.from_server_address(address, False, certificate, [holder]) as client:
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heart.start()
        task = client.PullTaskInput(PullTaskInputRequest())
        grid = HttpGrid(address, False, certificate, token=token)
        run = run_from_proto(task.run)
        grid.set_run(run)
        # Of this process, in which other tests run as well.
        known: dict[str, Any] = {"_task_id": task.task_id, "_run_id": run.run_id, "_node_id": 1}
        try:
            with patch.multiple(TaskIdentity, **known):
                yield grid
        finally:
            heart.stop()
            grid.close()


REFUSED = 403


def stored(live: Fleet) -> list[list[Any]]:
    """All that a node could have left in the SuperLink's tables."""
    tables = ("message_ins", "message_res", "objects", "object_children", "object_push_sessions")
    with closing(sqlite3.connect(f"file:{live.server.database}?mode=ro", uri=True)) as database:
        return [
            sorted(map(repr, database.execute(f"SELECT * FROM {table}")))  # noqa: S608
            for table in tables
        ]


def received(live: Fleet, node: Node, data: bytes = b"instruction", ttl: float = 600.0) -> Message:
    """An instruction that a node has got whole."""
    message = live.instruct(node, data, ttl=ttl)
    assert node.pulled() == [message.metadata.message_id]
    return message
