"""The worker process of a SuperNode or SuperLink: it runs the installed fedpriv and no other code.

Flower ships an app to every node and runs what was shipped. Whoever runs the server, or reaches its
port, would then run any code where the records are. So nodes are started with isolation "process",
where they leave running to somebody else, and that is this worker: of a task it takes the message,
the context and the run config, and never the code. It takes one task at a time, so that the state
which one message leaves is what the next one finds, and one kind of task only.

Every task is a fork of a process that has imported everything and, for a party, has its records in
memory: nothing but what Flower stores goes from one message to the next, and no time is spent on
starting Python or on reading what has not changed. The process itself starts no thread, and handles
nothing that others sent: it waits for the fork, says in a file what that does
(`fedpriv.simulations.deploy.health.heartbeat`), ends it at its deadline, and tells the node.

The parts of Flower used here are internal to it; pyproject.toml pins the version.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.auth import load_superexec_auth_secret
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

from fedpriv.federation.deployed.policy import MOST_SECONDS
from fedpriv.simulations.deploy.flower.ahead import Ahead
from fedpriv.simulations.deploy.flower.deadlines import PULL_SECONDS, max_seconds
from fedpriv.simulations.deploy.flower.forks import Note, in_a_fork
from fedpriv.simulations.deploy.flower.pace import Pace
from fedpriv.simulations.deploy.flower.tasks import TURNS, Duty, Role, Runtime, give_up
from fedpriv.simulations.deploy.health.heartbeat import Beat, Heart

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_POLL_SECONDS, _IDLE_SECONDS = 0.02, 1.0  # the node holds the question
_RETRY_SECONDS = 1.0
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


def work(
    role: Role,
    runtime: Runtime,
    *,
    runs: Path | None = None,
    party: Path | None = None,
    heart: Heart | None = None,
) -> None:
    """Take task after task, for ever.

    Args:
        role: Whose tasks.
        runtime: Where they come from.
        runs: The only place where a server's run may write.
        party: A party's own file, whose records are to be kept in memory.
        heart: Says what is being done.
    """
    heart = heart or Heart(path=None)
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
    idle = time.time()
    while True:
        heart.beat(Beat(since=idle))
        if party is not None:  # before a task is taken: nobody waits for it then
            ahead = ahead.looked_at(party)
            app = module.app_with(ahead.files)
        try:
            acquired = client.AcquireTask(wanted)
        except httpx.HTTPError as error:
            if isinstance(error, httpx.HTTPStatusError):  # its database may be busy
                print(f"fedpriv worker: no task, asks again: {error}", flush=True)
            time.sleep(_RETRY_SECONDS)  # or the node is not up yet, or is being restarted
            continue
        if acquired.HasField("task") and acquired.token:
            most = MOST_SECONDS if party is None else max_seconds(party)
            duty = Duty(app=app, runtime=runtime, most=most, runs=runs)
            _take(role, duty, acquired.token, heart)
            pace.came()
            idle = time.time()
        else:
            time.sleep(pace.pause)


def _take(role: Role, duty: Duty, token: str, heart: Heart) -> None:
    """Have one task done; if it is not, say so in its place."""
    since = time.time()

    def on_beat(note: Note | None, left: float | None) -> None:
        told = note or Note(run="unknown", step="pull")
        now = time.time()
        deadline = None if left is None else now + left
        heart.beat(Beat(time=now, run=told.run, step=told.step, since=since, deadline=deadline))

    # Until it has told what it does, a fork is fetching its task from this machine's node.
    outcome = in_a_fork(partial(TURNS[role], duty, token), seconds=PULL_SECONDS, on_beat=on_beat)
    if outcome != "done":
        print(f"fedpriv worker: a task was {outcome}", flush=True)
        with suppress(httpx.HTTPError):  # else the node finds out by itself
            give_up(duty.runtime, token, outcome)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as ``python -m fedpriv.simulations.deploy.flower.worker``."""
    parser = argparse.ArgumentParser(prog="python -m fedpriv.simulations.deploy.flower.worker")
    parser.add_argument("role", choices=APPS)
    parser.add_argument("--runtime", required=True, help="host:port of the node's Runtime API")
    parser.add_argument("--secret", required=True, help="file with the secret of that API")
    parser.add_argument("--root-certificates", type=Path, help="CA, if the API has TLS")
    parser.add_argument("--runs", type=Path, help="directory of a server's runs")
    parser.add_argument("--party", type=Path, help="a party's own file, to have its records ready")
    parser.add_argument("--heartbeat", type=Path, help="file to say in what is being done")
    given = parser.parse_args(arguments)
    certificates = given.root_certificates
    runtime = Runtime(
        address=given.runtime,
        secret=load_superexec_auth_secret(given.secret) or b"",
        certificates=None if certificates is None else certificates.read_bytes(),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work(
            cast("Role", given.role),
            runtime,
            runs=given.runs,
            party=given.party,
            heart=Heart(path=given.heartbeat),
        )
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
