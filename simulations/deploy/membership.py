"""Membership of nodes: the SuperLink admits those whose public key was registered, each once."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import TYPE_CHECKING

from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.programs import CONNECTION, flwr
from fedpriv.simulations.deploy.run.submission import call
from fedpriv.simulations.run.files import read_json, write_json

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.processes import Process

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as the SuperLink sees it.

    Attributes:
        name: The party; "unknown" if it was registered by other means.
        node: The SuperLink's number for it.
        status: "registered", "online" or "offline".
    """

    name: str
    node: str
    status: str


def wait_until_up(folder: ServerFolder, process: Process, *, seconds: float) -> bool:
    """Whether the SuperLink answers, over TLS, before it ends or time is up."""
    deadline = time.monotonic() + seconds
    while process.alive and time.monotonic() < deadline:
        if is_up(folder):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def is_up(folder: ServerFolder) -> bool:
    """Whether the SuperLink answers, with a certificate of our CA."""
    port = read_federation(folder.federation).server.port
    try:
        context = ssl.create_default_context(cafile=str(folder.ca))
        connection = HTTPSConnection("127.0.0.1", port, timeout=2.0, context=context)
    except (OSError, ssl.SSLError):
        return False
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def register(folder: ServerFolder) -> tuple[str, ...]:
    """Register the node keys that are not registered yet; returns their parties.

    A key that was replaced is unregistered first: the old one is worth nothing from then on.
    """
    there = {state.node for state in nodes(folder)}
    new = []
    for path in sorted(folder.nodes.glob("*.pub")):
        key, note = path.read_text().strip(), path.with_suffix(".json")
        known = read_json(note) if note.exists() else {}
        if known.get("node") in there:
            if known["key"] == key:
                continue
            call(flwr(folder, "supernode", "unregister", known["node"], *_PLAIN))
        answer = call(
            flwr(folder, "supernode", "register", str(path), *_PLAIN, "--name", path.stem)
        )
        write_json(note, {"node": str(answer["node-id"]), "key": key})
        new.append(path.stem)
    return tuple(new)


def nodes(folder: ServerFolder) -> tuple[NodeState, ...]:
    """The registered nodes."""
    names = {
        str(read_json(path)["node"]): path.stem for path in sorted(folder.nodes.glob("*.json"))
    }
    answer = call(flwr(folder, "supernode", "list", *_PLAIN))
    return tuple(
        NodeState(
            name=names.get(str(entry["node-id"]), "unknown"),
            node=str(entry["node-id"]),
            status=str(entry["status"]),
        )
        for entry in answer["nodes"]
    )


_PLAIN = (CONNECTION, "--format", "json")
