"""Control of a SuperLink from its own machine: its nodes and runs, asked for without a command.

A command of `flwr` takes two seconds to start; what is asked here is asked again and again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
from flwr.common.constant import HEARTBEAT_PATIENCE, Status
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, StopRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedpriv.simulations.deploy.federation import read_federation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.folders import ServerFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A node as the SuperLink has seen it.

    Attributes:
        node: The SuperLink's number for it.
        status: "registered", "online", "offline" or "unregistered".
        seen: When it was last heard, in seconds since 1970; None if never.
    """

    node: str
    status: str
    seen: float | None


def sightings(folder: ServerFolder) -> tuple[Sighting, ...]:
    """The nodes that the SuperLink knows."""
    with control_client(folder) as client:
        answer = client.ListNodes(ListNodesRequest())
    return tuple(
        Sighting(
            node=str(node.node_id),
            status=node.status,
            seen=(
                node.online_until - HEARTBEAT_PATIENCE * node.heartbeat_interval
                if node.online_until
                else None
            ),
        )
        for node in answer.nodes_info
    )


def state_of(folder: ServerFolder, run: str) -> str:
    """What the SuperLink believes of a run: "pending", "starting", "running" or "finished".

    One that it does not know, because its database is another one, is as good as finished.
    """
    with control_client(folder) as client:
        try:
            answer = client.ListRuns(ListRunsRequest(run_id=int(run)))
        except httpx.HTTPStatusError as error:
            reason = FlowerError.from_json(error.response.text)
            if reason is None or reason.code != ApiErrorCode.RUN_ID_NOT_FOUND:
                raise
            return Status.FINISHED
    return next((each.status.status for each in answer.run_dict.values()), Status.FINISHED)


def is_open(folder: ServerFolder, run: str) -> bool:
    """Whether the SuperLink would still carry out a run, or believes that it is carried out."""
    return state_of(folder, run) != Status.FINISHED


def end_run(folder: ServerFolder, run: str) -> None:
    """Have the SuperLink end a run, and drop its messages."""
    with control_client(folder) as client:
        client.StopRun(StopRunRequest(run_id=int(run)))


@contextmanager
def control_client(folder: ServerFolder) -> Iterator[ControlHttpClient]:
    """A client on the loopback, which is all that the SuperLink lets control it.

    Raises:
        ValueError: The SuperLink does not answer, or refuses.
    """
    port = read_federation(folder.federation).server.port
    client = ControlHttpClient.from_server_address(
        server_address=f"127.0.0.1:{port}",
        insecure=False,
        root_certificates=folder.ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        yield client
    except httpx.HTTPStatusError as error:
        raise ValueError(f"the SuperLink refuses: {error.response.text}") from None
    except httpx.HTTPError as error:
        raise ValueError(
            f"the SuperLink does not answer on port {port}: {error}. Start it with `fedpriv "
            f"deploy server {folder.root}`."
        ) from None
    finally:
        client.close()
