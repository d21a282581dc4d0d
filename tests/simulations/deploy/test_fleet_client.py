"""A server that sends a party's node elsewhere, or more than it can hold: against real sockets."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedpriv.simulations.deploy.flower import fleet_client, supernode
from fedpriv.simulations.deploy.flower.fleet_client import BoundedFleetClient, bounded_message

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUEST = PullMessagesRequest()


@contextmanager
def server(status: int = 200, body: bytes = b"", **headers: str) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked for; it answers everything alike."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815 (the names of the base class)

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{listening.server_port}", asked
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def client(kind: type[FleetHttpClient], address: str) -> FleetHttpClient:
    return kind.from_server_address(address, True, None, [])


@pytest.mark.parametrize("status", [302, 303, 307, 308])
def test_a_node_goes_nowhere_else_because_its_server_says_so(status: int) -> None:
    """To any address of the party's own network, from within it."""
    with server() as (inside, asked), server(status, location=f"http://{inside}/off") as (sent, _):
        with client(FleetHttpClient, sent) as flowers:
            flowers.PullMessages(REQUEST)
        assert len(asked) == 1  # which is what Flower's own does
        with client(BoundedFleetClient, sent) as own, pytest.raises(httpx.HTTPStatusError):
            own.PullMessages(REQUEST)
        assert len(asked) == 1


def test_what_is_compressed_is_not_unpacked() -> None:
    packed = gzip.compress(bytes(1 << 20))
    with (
        server(200, packed, content_encoding="gzip") as (address, _),
        client(BoundedFleetClient, address) as own,
        pytest.raises(httpx.RemoteProtocolError, match="compressed"),
    ):
        own.PullMessages(REQUEST)


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = PullMessagesResponse()
    answer.reconnect.reconnect = 5
    data = answer.SerializeToString()
    with server(200, data) as (address, _), client(BoundedFleetClient, address) as own:
        assert own.PullMessages(REQUEST) == answer
        monkeypatch.setattr(fleet_client, "MOST", len(data) - 1)
        with pytest.raises(httpx.RemoteProtocolError, match="too long"):
            own.PullMessages(REQUEST)


def test_a_message_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(identifiers: list[str], one: Any, **how: Any) -> dict[str, bytes]:
        assert how == {"max_time": 1.0}
        return {each: one(each) for each in identifiers}

    monkeypatch.setattr(fleet_client, "MOST_BYTES", 8)
    pulled = bounded_message(pull)
    assert pulled(["a", "b"], lambda _: b"1234", max_time=1.0) == dict.fromkeys("ab", b"1234")
    with pytest.raises(ConnectionError, match="bytes"):
        pulled(["a", "b", "c"], lambda _: b"1234", max_time=1.0)
    with pytest.raises(ConnectionError, match="objects"):
        pulled(["a"] * 257, lambda _: b"", max_time=1.0)


def test_a_supernode_has_this_client() -> None:
    assert (fleet_http_connection, "FleetHttpClient", BoundedFleetClient) in supernode.changes()
