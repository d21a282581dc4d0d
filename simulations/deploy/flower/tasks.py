"""Tasks of a worker: one message, answered for a party; one run, carried out for the server.

Of what Flower hands out only the message, the context and the run config are used, never the code.
Each is a task for a fork (`fedpriv.simulations.deploy.flower.forks`): if that is killed, the worker
says so to the node in its place.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, Literal

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.supercore.heartbeat import make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.logger import (
    flush_logs,
    mirror_output_to_queue,
    start_log_uploader,
    stop_log_uploader,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedpriv.federation.engines.courier import opened
from fedpriv.federation.exchange_report import one_line
from fedpriv.federation.protocol.instruction import reply_body
from fedpriv.federation.protocol.wire import Reply
from fedpriv.simulations.deploy.flower import replies
from fedpriv.simulations.deploy.flower.deadlines import require_in_time, seconds_left
from fedpriv.simulations.deploy.flower.forks import Note
from fedpriv.simulations.deploy.flower.heartbeats import persistent
from fedpriv.simulations.deploy.flower.patches import put_in_place
from fedpriv.simulations.deploy.flower.run_config import own_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr.app import Context
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor

    from fedpriv.simulations.deploy.flower.forks import Tell

Role = Literal["client", "server"]
_MOST_SAID = 10_000  # characters about one failure
_REPLY_SECONDS = 10.0  # to say that a message came too late


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The Runtime API that tasks come from.

    Attributes:
        address: Host and port of the node's Runtime API.
        secret: Shared with the node: nobody else on the machine gets a task.
        certificates: The CA, where the API has TLS; None where it is on the loopback alone.
    """

    address: str
    secret: bytes
    certificates: bytes | None = None

    @property
    def insecure(self) -> bool:
        """Whether the API has no TLS."""
        return self.certificates is None

    def client(self, proof: ProtobufClientInterceptor) -> RuntimeHttpClient:
        """A client of the node's Runtime API."""
        return RuntimeHttpClient.from_server_address(
            self.address,
            self.insecure,
            self.certificates,
            [RuntimeVersionHttpInterceptor(component_name="SuperExec"), proof],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What a worker does with a task.

    Attributes:
        app: The installed app, whatever was shipped.
        runtime: Where tasks come from.
        most: How many seconds a message may take, by the party's own rule.
        runs: The only place where a server's run may write.
    """

    app: Any
    runtime: Runtime
    most: float
    runs: Path | None = None


def answer_message(duty: Duty, token: str, tell: Tell) -> None:
    """Answer one message with the party's own code."""
    client = duty.runtime.client(RuntimeTokenHttpInterceptor(token))
    with _beating(client):
        message, context, _run, _code = pull_task_input(client)
        metadata = message.metadata
        left = seconds_left(metadata, most=duty.most)
        step = one_line(metadata.message_type.removeprefix("query."))
        seconds = left if left > 0 else _REPLY_SECONDS
        tell(Note(run=str(metadata.run_id), step=step, seconds=seconds))
        status, details = SubStatus.COMPLETED, ""
        try:
            require_in_time(left)
            reply = duty.app(message=message, context=context)
        except Exception as error:  # the server is told its kind only
            note_failure()
            status, details = SubStatus.FAILED, type(error).__name__
            failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details)
            reply = Message(failed, reply_to=message)
        _note_refusal(reply)
        push_message(client, reply, context)
        push_task_output(client, context, status, details)


def carry_out_run(duty: Duty, token: str, tell: Tell) -> None:
    """Carry out one run with the server's own code."""
    runtime = duty.runtime
    client = runtime.client(RuntimeTokenHttpInterceptor(token))
    put_in_place(replies.changes())
    grid = HttpGrid(runtime.address, runtime.insecure, runtime.certificates, token=token)
    status, details = SubStatus.FAILED, "stopped"
    with _beating(client):
        task = client.PullTaskInput(PullTaskInputRequest())
        context, run = context_from_proto(task.context), run_from_proto(task.run)
        tell(Note(run=str(run.run_id), step="run"))
        # Every message that the app makes asks for these.
        TaskIdentity.task_id = task.task_id
        TaskIdentity.run_id = run.run_id
        TaskIdentity.node_id = context.node_id
        grid.set_run(run)
        with _uploaded_log(client, run.run_id):
            try:
                context.run_config = own_config(run)
                require_run_directory(context, duty.runs)
                duty.app(grid=grid, context=context)
                status, details = SubStatus.COMPLETED, ""
            except Exception as error:
                traceback.print_exc()
                details = f"{type(error).__name__}: {error}"
        push_task_output(client, None, status, details)
    grid.close()


TURNS = {"client": answer_message, "server": carry_out_run}


def give_up(runtime: Runtime, token: str, why: str) -> None:
    """Tell the node that a task has ended without a reply; the node then replies with ``why``."""
    client = runtime.client(RuntimeTokenHttpInterceptor(token))
    push_task_output(client, None, SubStatus.FAILED, why)
    client.close()


def note_failure() -> None:
    """Log the end of a failure at the party; only the end, as a server must not fill the disk."""
    print(traceback.format_exc()[-_MOST_SAID:], file=sys.stderr, flush=True)


def _note_refusal(reply: Message) -> None:
    """Log a refusal at the party, as the server is told it: it names rules, and no record."""
    if not reply.has_error():
        refusal = Reply.from_bytes(reply_body(opened(reply))).refusal
        if refusal:
            print(f"fedpriv worker: refused: {refusal}", flush=True)


def require_run_directory(context: Context, runs: Path | None) -> None:
    """Refuse a run that `fedpriv deploy run` did not prepare on this machine.

    Whoever reaches the Control API may start a run. Without the name of a directory that was made
    here, and has a random part, such a run does nothing.

    Raises:
        ValueError: The run config names no directory right below ``runs``.
    """
    output = Path(str(context.run_config.get("output", "")))
    if runs is None or not output.is_dir() or output.resolve().parent != runs.resolve():
        raise ValueError(
            "the run was not prepared on this server: start it with `fedpriv deploy run`."
        )


@contextmanager
def _beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell the node that the task is being worked on; a task that was stopped raises SIGINT."""
    sender = persistent(make_task_heartbeat_fn_http(client))
    sender.start()
    try:
        yield
    finally:
        if sender.is_running:
            sender.stop()


@contextmanager
def _uploaded_log(client: RuntimeHttpClient, run: int) -> Iterator[None]:
    """Send what is printed to the SuperLink as well, for `flwr log`."""
    lines: Queue[str | None] = Queue()
    mirror_output_to_queue(lines)
    uploader = start_log_uploader(log_queue=lines, node_id=0, run_id=run, client=client)
    try:
        yield
    finally:
        flush_logs(lines)
        stop_log_uploader(lines, uploader)
