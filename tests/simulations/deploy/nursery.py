"""Processes of a deployment that start at once: forks of one that has imported everything.

A worker spends four seconds on imports. Tests that kill dozens of them start them from here: each
is a process and a session of its own, and runs the ``main`` of the module that its command names.

``python -m tests.simulations.deploy.nursery`` reads one order a line, in JSON, and answers with the
id of the process. It ends with its input; what it started goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedpriv
from fedpriv.federation.engines.warm_up import load_kernels
from fedpriv.simulations.deploy.processes import Process, log_of
from fedpriv.simulations.run.files import write_json

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.programs import Program

_MODULES = (
    "fedpriv.simulations.deploy.flower.superlink",
    "fedpriv.simulations.deploy.flower.supernode",
    "fedpriv.simulations.deploy.flower.worker",
    "tests.simulations.deploy.fates",
)


class Nursery:
    """The starter, from the outside."""

    def __init__(self) -> None:
        self._starter = subprocess.Popen(
            [sys.executable, "-m", "tests.simulations.deploy.nursery"],
            cwd=Path(fedpriv.__file__).parents[1],
            env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, program: Program) -> Process:
        """Start a program as `processes.start` does, and ruled by its fates."""
        folder, orders, answers = program.folder, self._starter.stdin, self._starter.stdout
        assert orders is not None
        assert answers is not None
        folder.processes.mkdir(exist_ok=True, mode=0o700)
        order = {
            "command": program.command[program.command.index("-m") + 1 :],
            "environment": program.environment,
            "root": str(folder.root),
            "log": str(log_of(folder, program.name)),
        }
        orders.write(json.dumps(order) + "\n")
        orders.flush()
        values = json.loads(answers.readline())
        write_json(folder.processes / f"{program.name}.pid", values)
        return Process(name=program.name, **values)

    def close(self) -> None:
        """End the starter."""
        for pipe in (self._starter.stdin, self._starter.stdout):
            assert pipe is not None
            pipe.close()
        self._starter.wait(timeout=30)


def main() -> None:
    """Import everything, then fork for every order."""
    from fedpriv.simulations.deploy.flower import worker

    for name in (
        *_MODULES,
        *worker.APPS.values(),
        *worker._AHEAD["client"],
        *worker._AHEAD["server"],
    ):
        import_module(name)
    load_kernels()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who ends is gone at once
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(order)
        stat = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        print(json.dumps({"pid": child, "started": stat[19]}), flush=True)


def _live(order: dict[str, Any]) -> None:
    """Be the process that was ordered; never return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(order["root"])
        os.environ.update(order["environment"])
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        name, *arguments = order["command"]
        sys.argv = [name, *arguments]
        for rules in ("fates", "forgeries"):
            import_module(f"tests.simulations.deploy.{rules}").rule(Path(order["root"]))
        import_module(name).main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
