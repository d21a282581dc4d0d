"""Engine `ray`: a run on Flower's simulation runtime, in processes of its own.

A SuperLink of our own, in a home of its own, so that nothing of the user's Flower is touched and
nothing is downloaded; `flwr run` starts the ServerApp on it, and Ray the parties. That home is also
their working directory: Ray lets its workers import from there before anywhere else, and nobody but
this process has put anything there. Everything ends with this process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fedpriv._toml import to_toml
from fedpriv.data.builtin.archive import VARIABLE
from fedpriv.simulations.engines.flower_app import PROJECT
from fedpriv.simulations.run.files import read_json
from fedpriv.simulations.safe_path import SAFE_PATH, installed_program, own_root
from fedpriv.simulations.server_app import FAILURE, PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fedpriv.simulations.run.session import Session

_CONNECTION = "fedpriv"
_START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_TAIL = 20  # lines of a log that failed
_QUIET = {
    **SAFE_PATH,
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "OMP_NUM_THREADS": "1",  # one thread per party: Ray runs as many parties as processors
    "PYTHONUNBUFFERED": "1",
}
# What is shipped is a reference: every process runs the fedpriv that is installed where it is.


def run_on_ray(
    session: Session,
    *,
    on_progress: Callable[[int, int, str], None] = lambda _done, _total, _facts: None,
) -> dict[str, Any]:
    """Carry out the run of a session on Flower's simulation runtime; its result.

    ``on_progress`` is told rounds done, rounds expected, and what is known of the last one.

    Raises:
        ValueError: Ray is not installed, or the run failed; the message has the reason.
    """
    if find_spec("ray") is None:
        raise ValueError("engine = 'ray' needs Ray: install fedpriv[ray].")
    (session.directory / FAILURE).unlink(missing_ok=True)
    with TemporaryDirectory(prefix="fedpriv-") as folder:
        home = Path(folder)
        port = _free_port()
        environment = _environment(home)
        _write_app(home, session, port)
        try:
            with _superlink(home, port, environment):
                tail = _follow(_flwr_run(home, session), home, environment, on_progress)
        finally:
            _end_all(home)
    return _result(session, tail)


def _write_app(home: Path, session: Session, port: int) -> None:
    """The files that `flwr run` reads: the app, the connection, and what this run is."""
    (home / "app").mkdir()
    (home / "app" / "pyproject.toml").write_text(to_toml(PROJECT))
    connection = {"address": f"127.0.0.1:{port}", "insecure": True}
    config = {"superlink": {"default": _CONNECTION, _CONNECTION: connection}}
    (home / "config.toml").write_text(to_toml(config))
    run_config = {
        "config": to_toml(session.prepared.experiment.to_dict()),
        "output": str(session.directory.resolve()),
    }
    (home / "run.toml").write_text(to_toml(run_config))


def _flwr_run(home: Path, session: Session) -> list[str]:
    nodes = f"num-supernodes={session.prepared.task.parties} client-resources-num-cpus=1"
    return [
        installed_program("flwr"), "run", str(home / "app"), _CONNECTION, "--stream",
        "--run-config", str(home / "run.toml"), "--federation-config", nodes,
    ]  # fmt: skip


def _environment(home: Path) -> dict[str, str]:
    """The environment of the processes; the user's paths mean the same there as here.

    An empty entry of PYTHONPATH, which a stray colon makes, would be the working directory.
    """
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    programs = [str(Path(installed_program("flwr")).parent), os.environ.get("PATH", "")]
    data = os.environ.get(VARIABLE)
    return {
        **os.environ,
        **_QUIET,
        "FLWR_HOME": str(home),
        "PYTHONPATH": os.pathsep.join([own_root(), *(str(Path(p).absolute()) for p in named)]),
        "PATH": os.pathsep.join(filter(None, programs)),
        **({VARIABLE: str(Path(data).absolute())} if data else {}),
    }


@contextmanager
def _superlink(home: Path, port: int, environment: Mapping[str, str]) -> Iterator[None]:
    """A SuperLink that lives as long as the block, and everything that it starts."""
    log = home / "superlink.log"
    command = [
        installed_program("flower-superlink"), "--insecure", "--simulation",
        "--isolation", "subprocess", "--host", "127.0.0.1", "--port", str(port),
        "--disable-runtime-dependency-installation",
    ]  # fmt: skip
    with log.open("w") as output, _child(command, home, environment, output) as process:
        deadline = time.monotonic() + _START_SECONDS
        while not _healthy(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ValueError(f"Flower's SuperLink did not start: {_end_of(log)}")
            time.sleep(0.1)
        yield


@contextmanager
def _child(
    command: list[str], home: Path, environment: Mapping[str, str], output: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which is ended with the block."""
    process = subprocess.Popen(  # noqa: S603 - a program of this environment, no shell
        command,
        cwd=home,
        env=dict(environment),
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for number, patience in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, None)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)


def _end_all(home: Path) -> None:
    """End what is left: Flower starts processes in sessions that no process group reaches.

    All of them, and no others, were given this home, as Linux shows. A process that none of the
    others started is ended first, and ends its own children: Ray knows how to end what it started.
    """
    for number, all_of_them in (
        (signal.SIGTERM, False),
        (signal.SIGTERM, True),
        (signal.SIGKILL, True),
    ):
        left = _at_home(home)
        for process, parent in left.items():
            if all_of_them or parent not in left:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
        deadline = time.monotonic() + _GRACE_SECONDS
        while _at_home(home) and time.monotonic() < deadline:
            time.sleep(0.1)


def _at_home(home: Path) -> dict[int, int]:
    """The processes whose environment names this home, but for this one, and their parents."""
    mark, parents = f"FLWR_HOME={home}\0".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            if mark in (folder / "environ").read_bytes():
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                parents[int(folder.name)] = int(parent)
    parents.pop(os.getpid(), None)
    return parents


def _follow(
    command: list[str],
    home: Path,
    environment: Mapping[str, str],
    on_progress: Callable[[int, int, str], None],
) -> list[str]:
    """Run a command to its end and tell about progress; the last lines that it printed."""
    tail: list[str] = []
    with _child(command, home, environment, subprocess.PIPE) as process:
        for line in process.stdout or ():
            _, marked, facts = line.partition(PROGRESS)
            if marked:
                count, _, rest = facts.strip().partition(" ")
                done, _, total = count.partition("/")
                on_progress(int(done), int(total), rest)
            else:
                tail = [*tail[1 - _TAIL :], line.rstrip()]
        process.wait()
    return tail


def _result(session: Session, tail: list[str]) -> dict[str, Any]:
    if session.finished:
        result: dict[str, Any] = read_json(session.directory / "result.json")
        return result
    failure = session.directory / FAILURE
    if failure.exists():
        raise ValueError(failure.read_text().strip())
    raise ValueError("the run on Flower ended without a result. It said:\n" + "\n".join(tail))


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])


def _healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=0.5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
