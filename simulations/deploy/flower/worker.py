"""The worker process of a SuperNode or SuperLink: it runs the installed fedpriv and no other code.

Flower ships an app to every node and runs what was shipped. Whoever runs the server, or reaches its
port, would then run any code where the records are. So nodes are started with isolation "process",
where they leave running to somebody else, and that is this worker: of a task it takes the message,
the context and the run config, and never the code. It takes one task at a time, so that the state
which one message leaves is what the next one finds, and one kind of task only.

Every task is a fork of a process that has imported everything and, for a party, has its records in
memory: nothing but what Flower stores goes from one message to the next, and no time is spent on
starting Python or on reading what has not changed. The process itself starts no thread.

The parts of Flower used here are internal to it; pyproject.toml pins the version.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, Literal, cast

import httpx
from flwr.app import Error, Message
from flwr.common.config import get_fused_config_from_fab
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_from_proto, fab_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest
from flwr.supercore.auth import load_superexec_auth_secret
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.logger import (
    flush_logs,
    mirror_output_to_queue,
    start_log_uploader,
    stop_log_uploader,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import (
    pull_task_input,
    push_message,
    push_task_output,
)

from fedpriv.federation.engines.courier import opened
from fedpriv.federation.protocol.instruction import reply_body
from fedpriv.federation.protocol.wire import Reply
from fedpriv.simulations.deploy.flower.ahead import Ahead
from fedpriv.simulations.deploy.flower.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flwr.app import Context
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor

Role = Literal["client", "server"]
APPS: dict[Role, str] = {
    "client": "fedpriv.simulations.client_app",
    "server": "fedpriv.simulations.server_app",
}
_TASKS: dict[Role, TaskType] = {"client": TaskType.CLIENT_APP, "server": TaskType.SERVER_APP}
# Imported before the first task, so that no fork has to: they would otherwise wait for their use.
_AHEAD: dict[Role, tuple[str, ...]] = {
    "client": (
        "fedpriv.simulations.deploy.run.client",
        "fedpriv.strategies",
        "pyarrow.compute",
        "pyarrow.csv",
    ),
    "server": ("fedpriv.simulations.deploy.run.server", "fedpriv.strategies"),
}
_POLL_SECONDS, _IDLE_SECONDS = 0.2, 1.0
_RETRY_SECONDS = 1.0
_MOST_SAID = 10_000  # characters about one failure
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


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


def work(
    role: Role, runtime: Runtime, *, runs: Path | None = None, party: Path | None = None
) -> None:
    """Take task after task, for ever.

    Args:
        role: Whose tasks.
        runtime: Where they come from.
        runs: The only place where a server's run may write.
        party: A party's own file, whose records are to be kept in memory.
    """
    module = import_module(APPS[role])
    for name in _AHEAD[role]:
        with suppress(ImportError):  # what is missing is said where it is needed
            import_module(name)
    app, ahead, pace = module.app, Ahead(), Pace(shortest=_POLL_SECONDS, longest=_IDLE_SECONDS)
    if party is not None:
        import_module("fedpriv.federation.engines.warm_up").load_kernels()
        ahead = ahead.looked_at(party)
    proof = SuperExecAuthHttpInterceptor(
        master_secret=runtime.secret, protected_methods=frozenset({ACQUIRE})
    )
    client = runtime.client(proof)
    wanted = AcquireTaskRequest(supported_task_types=[_TASKS[role]])
    print(f"fedpriv worker: {APPS[role]} for {runtime.address}", flush=True)
    while True:
        if party is not None:  # before a task is taken: nobody waits for it then
            ahead = ahead.looked_at(party)
            app = module.app_with(ahead.files)
        try:
            acquired = client.AcquireTask(wanted)
        except httpx.TransportError:  # the node is not up yet, or is being restarted
            time.sleep(_RETRY_SECONDS)
            continue
        if acquired.HasField("task") and acquired.token:
            _in_a_fork(partial(_TURNS[role], app, runtime, acquired.token, runs))
            pace.came()
        else:
            time.sleep(pace.pause)


def _in_a_fork(task: Callable[[], None]) -> None:
    """Run a task in a copy of this process and wait for its end."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            task()
        except BaseException:  # the copy must never go on as the worker
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    try:
        os.waitpid(child, 0)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise


def _one_message(app: Any, runtime: Runtime, token: str, _runs: Path | None) -> None:
    """Answer one message with the party's own code."""
    client = runtime.client(RuntimeTokenHttpInterceptor(token))
    with _beating(client):
        message, context, _run, _code = pull_task_input(client)
        status, details = SubStatus.COMPLETED, ""
        try:
            reply = app(message=message, context=context)
        except Exception as error:  # the server is told its kind only
            note_failure()
            status, details = SubStatus.FAILED, type(error).__name__
            failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details)
            reply = Message(failed, reply_to=message)
        _note_refusal(reply)
        push_message(client, reply, context)
        push_task_output(client, context, status, details)


def note_failure() -> None:
    """Log the end of a failure at the party; only the end, as a server must not fill the disk."""
    print(traceback.format_exc()[-_MOST_SAID:], file=sys.stderr, flush=True)


def _note_refusal(reply: Message) -> None:
    """Log a refusal at the party, as the server is told it: it names rules, and no record."""
    if not reply.has_error():
        refusal = Reply.from_bytes(reply_body(opened(reply))).refusal
        if refusal:
            print(f"fedpriv worker: refused: {refusal}", flush=True)


def _one_run(app: Any, runtime: Runtime, token: str, runs: Path | None) -> None:
    """Carry out one run with the server's own code."""
    client = runtime.client(RuntimeTokenHttpInterceptor(token))
    grid = HttpGrid(runtime.address, runtime.insecure, runtime.certificates, token=token)
    status, details = SubStatus.FAILED, "stopped"
    with _beating(client):
        task = client.PullTaskInput(PullTaskInputRequest())
        context, run = context_from_proto(task.context), run_from_proto(task.run)
        # Every message that the app makes asks for these.
        TaskIdentity.task_id = task.task_id
        TaskIdentity.run_id = run.run_id
        TaskIdentity.node_id = context.node_id
        grid.set_run(run)
        with _uploaded_log(client, run.run_id):
            try:
                context.run_config = get_fused_config_from_fab(
                    fab_from_proto(task.fab).content, run
                )
                require_run_directory(context, runs)
                app(grid=grid, context=context)
                status, details = SubStatus.COMPLETED, ""
            except Exception as error:
                traceback.print_exc()
                details = f"{type(error).__name__}: {error}"
        push_task_output(client, None, status, details)
    grid.close()


_TURNS = {"client": _one_message, "server": _one_run}


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
    sender = HeartbeatSender(make_task_heartbeat_fn_http(client))
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as ``python -m fedpriv.simulations.deploy.flower.worker``."""
    parser = argparse.ArgumentParser(prog="python -m fedpriv.simulations.deploy.flower.worker")
    parser.add_argument("role", choices=APPS)
    parser.add_argument("--runtime", required=True, help="host:port of the node's Runtime API")
    parser.add_argument("--secret", required=True, help="file with the secret of that API")
    parser.add_argument("--root-certificates", type=Path, help="CA, if the API has TLS")
    parser.add_argument("--runs", type=Path, help="directory of a server's runs")
    parser.add_argument("--party", type=Path, help="a party's own file, to have its records ready")
    given = parser.parse_args(arguments)
    certificates = given.root_certificates
    runtime = Runtime(
        address=given.runtime,
        secret=load_superexec_auth_secret(given.secret) or b"",
        certificates=None if certificates is None else certificates.read_bytes(),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work(cast("Role", given.role), runtime, runs=given.runs, party=given.party)
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
