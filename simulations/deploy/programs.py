"""The commands of a deployment, exactly as they are run: `--dry-run` prints these and no others.

What Flower 1.41 needs, found by running it:

- `--isolation process`: nodes run no code that was shipped to them;
  `fedpriv.simulations.deploy.flower.worker` does the running. In "subprocess" the SuperLink would
  also give its tasks to anyone who asks.
- `--superexec-auth-secret-file`: only the worker gets tasks, not every user of the machine.
- `--enable-supernode-auth`: only registered node keys are admitted. It needs TLS.
- `--disable-runtime-dependency-installation`: nothing is downloaded. (A SuperNode never does.)
- `--database`: registrations and runs survive a restart of the SuperLink.
- FLWR_HOME: `flwr` reads connections from ``config.toml`` there. ``root-certificates`` must be
  absolute. The connection is to 127.0.0.1, because the Control API answers nobody else.
- ``-P`` and PYTHONSAFEPATH: nothing in a member's folder is imported
  (`fedpriv.simulations.safe_path`).
- A SuperNode looks for messages every three seconds, waits for a lost worker, and fetches code:
  `fedpriv.simulations.deploy.flower.supernode` looks more often, and does neither.
- HTTPS_PROXY, ALL_PROXY and NO_PROXY: a SuperNode reaches its server through the proxy that they
  name, by CONNECT, and TLS is with the server. All others talk to this machine alone, and must not
  hand what they say to a proxy: NO_PROXY is ``*`` for them.
- A SuperNode whose key is not registered, or that does not trust the server's certificate, ends
  with exit code 1 at once; one whose server is not up tries again for ever.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from shlex import join, quote
from typing import TYPE_CHECKING

from fedpriv._toml import to_toml
from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.folders import read_node
from fedpriv.simulations.deploy.health.heartbeat import heartbeat_file
from fedpriv.simulations.safe_path import SAFE_PATH, installed_program, own_root, python_module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.simulations.deploy.folders import Folder, PartyFolder, ServerFolder

CONNECTION = "fedpriv"
_LOOPBACK = "127.0.0.1"
_QUIET = {
    **SAFE_PATH,
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONUNBUFFERED": "1",
    # Whose word the HTTP server takes for where a request comes from: a proxy on this machine.
    "FORWARDED_ALLOW_IPS": _LOOPBACK,
}
_LOCAL = {"NO_PROXY": "*", "no_proxy": "*"}  # where both are set, the lower case is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The command of one process.

    Attributes:
        name: What it is called in pid files and logs.
        command: The program and its arguments; no secret is among them.
        folder: The member whose process it is.
        environment: What is set for it beside what it inherits.
    """

    name: str
    command: tuple[str, ...]
    folder: Folder
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_environment(self) -> dict[str, str]:
        """The whole environment of the process."""
        return {**os.environ, **self.environment}

    @property
    def line(self) -> str:
        """The command as a line for a shell."""
        settings = " ".join(f"{key}={quote(value)}" for key, value in self.environment.items())
        return f"env {settings} {join(self.command)}"


def server_programs(folder: ServerFolder) -> tuple[Program, ...]:
    """The SuperLink, and the worker that carries out its runs."""
    section = read_federation(folder.federation).server
    superlink = (
        *python_module("fedpriv.simulations.deploy.flower.superlink"),
        "--host", section.listens_on, "--port", str(section.port),
        "--ssl-certfile", str(folder.certificate), "--ssl-keyfile", str(folder.key),
        "--ssl-ca-certfile", str(folder.ca), "--enable-supernode-auth",
        "--isolation", "process", "--superexec-auth-secret-file", str(folder.secret),
        "--disable-runtime-dependency-installation", "--database", str(folder.database),
    )  # fmt: skip
    worker = (
        *_worker("server", f"{_LOOPBACK}:{section.port}", folder),
        "--root-certificates", str(folder.ca), "--runs", str(folder.runs),
    )  # fmt: skip
    return (
        _program("superlink", superlink, folder, **_LOCAL),
        _program("worker", worker, folder, **_LOCAL),
    )


def party_programs(folder: PartyFolder) -> tuple[Program, ...]:
    """The SuperNode, and the worker that answers for the party."""
    node = read_node(folder)
    supernode = (
        *python_module("fedpriv.simulations.deploy.flower.supernode"), "--superlink", node.server,
        "--root-certificates", str(folder.ca),
        "--auth-supernode-private-key", str(folder.node_key),
        "--node-config", f'party="{folder.policy}"',
        "--isolation", "process", "--superexec-auth-secret-file", str(folder.secret),
        "--host", _LOOPBACK, "--port", str(node.port),
    )  # fmt: skip
    worker = (
        *_worker("client", f"{_LOOPBACK}:{node.port}", folder), "--party", str(folder.policy),
    )  # fmt: skip
    return (
        _program("supernode", supernode, folder),
        _program("worker", worker, folder, **_LOCAL),
    )


def flwr(folder: ServerFolder, *arguments: str) -> Program:
    """A command of Flower's own command line, for this server."""
    return _program("flwr", (installed_program("flwr"), *arguments), folder, **_LOCAL)


def write_connection(folder: ServerFolder) -> None:
    """Tell `flwr` where the server is."""
    section = read_federation(folder.federation).server
    connection = {
        "address": f"{_LOOPBACK}:{section.port}",
        "root-certificates": str(folder.ca),
    }
    folder.flower.mkdir(exist_ok=True)
    config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    (folder.flower / "config.toml").write_text(to_toml(config))


def _worker(role: str, runtime: str, folder: Folder) -> tuple[str, ...]:
    return (
        *python_module("fedpriv.simulations.deploy.flower.worker"), role,
        "--runtime", runtime, "--secret", str(folder.secret),
        "--heartbeat", str(heartbeat_file(folder)),
    )  # fmt: skip


def _program(name: str, command: tuple[str, ...], folder: Folder, **more: str) -> Program:
    return Program(
        name=name,
        command=command,
        folder=folder,
        environment={**_QUIET, **more, "FLWR_HOME": str(folder.flower), "PYTHONPATH": own_root()},
    )
