"""Membership of nodes: the SuperLink admits the keys of the roster's parties, and no others."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from httpx import HTTPStatusError

from fedpriv.simulations.deploy.federation import read_federation
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.deploy.members.roster_lock import roster_held
from fedpriv.simulations.run.files import write_json

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.control import ControlHttpClient

    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.members.roster import Member
    from fedpriv.simulations.deploy.processes import Process

_POLL_SECONDS = 0.2
_UNREGISTERED = "unregistered"  # in Flower, whose tables keep every node for ever


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What `reconcile` changed.

    Attributes:
        registered: The parties whose node keys were registered.
        unregistered: The parties, or numbers of nodes, whose keys were unregistered.
    """

    registered: tuple[str, ...]
    unregistered: tuple[str, ...]


def reconcile(folder: ServerFolder) -> Reconciled:
    """Make the registered node keys exactly those of the roster's parties; the server must be up.

    Whatever else is registered is unregistered first, by whatever means it came to be: a key that
    was replaced or whose party was expelled is refused from its next request on, also on a
    connection that is open. No key is ever registered again after that.

    Raises:
        ValueError: The SuperLink refuses a key, for example one that was unregistered before.
    """
    with roster_held(folder):  # or one of an older roster would come last
        return _reconciled(folder)


def _reconciled(folder: ServerFolder) -> Reconciled:
    from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest

    wanted = _wanted(folder)
    from fedpriv.simulations.deploy.flower.control import control_client

    with control_client(folder) as control:
        there = _registered(control)
        strangers = [node for node in there if node.public_key not in wanted]
        for node in strangers:
            control.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
        known = {node.public_key: node.node_id for node in there}
        missing = {key: member for key, member in wanted.items() if key not in known}
        for key, member in missing.items():
            try:
                answer = control.RegisterNode(RegisterNodeRequest(public_key=key, name=member.name))
            except HTTPStatusError:
                raise ValueError(
                    f"the node key of {member.name!r} was not registered: it was unregistered "
                    "before, or is no EC key. Make new keys with `fedpriv deploy rotate`, and add "
                    "their bundle."
                ) from None
            known[key] = answer.node_id
    _note(folder, {member: known[key] for key, member in wanted.items()})
    return Reconciled(
        registered=tuple(sorted(member.name for member in missing.values())),
        unregistered=tuple(sorted(node.name or str(node.node_id) for node in strangers)),
    )


def _note(folder: ServerFolder, numbers: dict[Member, int]) -> None:
    """Note the SuperLink's number of every party's node, with the key that it has there."""
    names = {member.name for member in numbers}
    for path in folder.nodes.glob("*.json"):
        if path.stem not in names:
            path.unlink()
    for member, number in numbers.items():
        note = {"node": str(number), "key": member.node}
        write_json(folder.nodes / f"{member.name}.json", note)


def nodes(folder: ServerFolder) -> tuple[NodeState, ...]:
    """The registered nodes."""
    members = _wanted(folder)
    from fedpriv.simulations.deploy.flower.control import control_client

    with control_client(folder) as control:
        return tuple(
            NodeState(
                name=members[node.public_key].name if node.public_key in members else "unknown",
                node=str(node.node_id),
                status=node.status,
            )
            for node in _registered(control)
        )


def _wanted(folder: ServerFolder) -> dict[bytes, Member]:
    """Every party that belongs, by its node key as the SuperLink has keys."""
    return {
        load_ssh_public_key(member.node.encode()).public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        ): member
        for member in read_roster(folder.roster).seats
    }


def _registered(control: ControlHttpClient) -> list[NodeInfo]:
    """The nodes whose keys are admitted."""
    from flwr.proto.control_pb2 import ListNodesRequest

    answer = control.ListNodes(ListNodesRequest())
    return [node for node in answer.nodes_info if node.status != _UNREGISTERED]
