"""Who may send a body to the SuperLink, how long, and how slowly: over TLS, to a real one.

An attacker without a registered key is refused before the body, of which the SuperLink takes
nothing into memory; a registered one is held to the limits.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from base64 import b64encode
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from starlette.responses import PlainTextResponse

from fedpriv.simulations.deploy.flower.gates.bodies import Bodies, Limits
from fedpriv.simulations.deploy.flower.gates.heads import PromptHeads
from fedpriv.simulations.deploy.flower.superlink import served as superlink_served
from tests.simulations.deploy.fleet import superlink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from tests.simulations.deploy.fleet import Alone

MIB = 1024 * 1024
MOST_HEAD = 16 * 1024  # bytes, in h11
PULL = "/v1/fleet/pull-messages"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    with superlink(tmp_path_factory.mktemp("bodies")) as made:
        yield made


def signed(key: EllipticCurvePrivateKey, *, by: Any = None, age: float = 0.0) -> dict[str, str]:
    """The headers of a node; signed with another key if one is given, or long ago."""
    time = (now() - timedelta(seconds=age)).isoformat()
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(key.public_key())).decode(),
        TIMESTAMP_HEADER: time,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(by or key, time.encode())).decode(),
    }


@contextmanager
def connected(alone: Alone) -> Iterator[ssl.SSLSocket]:
    """A connection that fails rather than hang."""
    context = ssl.create_default_context(cafile=str(alone.deployment.server.ca))
    host, _, port = alone.address.partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        yield secure


def begin(connection: socket.socket, path: str, headers: dict[str, Any]) -> None:
    """Send the head of a request, and nothing of its body."""
    fields = {"host": "127.0.0.1", "content-type": PROTOBUF_MEDIA_TYPE, **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    connection.sendall("\r\n".join([*lines, "", ""]).encode())


def answer(connection: socket.socket) -> int:
    """The status that comes, before any body was sent."""
    return int(connection.recv(4096).split()[1])


def asked(alone: Alone, headers: dict[str, Any], *, path: str = PULL) -> int:
    with connected(alone) as connection:
        begin(connection, path, {"content-length": MIB, **headers})
        return answer(connection)


def memory(alone: Alone) -> int:
    """The bytes of memory that the SuperLink has."""
    status = Path(f"/proc/{alone.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_a_body_of_whoever_is_not_registered_is_not_read(alone: Alone) -> None:
    before = memory(alone)
    with connected(alone) as connection:
        begin(connection, PULL, {"content-length": 2048 * MIB})
        with suppress(OSError):  # the SuperLink ends the connection
            for _ in range(256):
                connection.sendall(bytes(MIB))
    assert memory(alone) - before < 32 * MIB
    with connected(alone) as connection:
        begin(connection, PULL, {"content-length": 2048 * MIB})
        assert answer(connection) == 401
        assert connection.recv(1) in (b"", b"T")  # nothing but the rest of the answer
    assert alone.process.alive


def test_a_head_without_end_is_cut_off(alone: Alone) -> None:
    before = memory(alone)
    with connected(alone) as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nhost: a\r\nx: ")
        with suppress(OSError):
            for _ in range(16):
                connection.sendall(b"a" * MIB)
    assert memory(alone) - before < 8 * MIB
    with connected(alone) as connection:
        # One byte too much: the connection is not ended before all of it was sent.
        head = b"POST /health HTTP/1.1\r\nhost: a\r\nx: "
        connection.sendall(head.ljust(MOST_HEAD + 1, b"a"))
        assert answer(connection) == 400


def test_only_a_fresh_signature_of_a_registered_key_is_let_in(alone: Alone) -> None:
    own, other = (node.key for node in alone.nodes[:2])
    stranger, _ = generate_key_pairs()
    assert asked(alone, signed(stranger)) == 401
    assert asked(alone, signed(own, by=stranger)) == 401
    assert asked(alone, signed(own, by=other)) == 401
    assert asked(alone, signed(own, age=400.0)) == 401
    assert asked(alone, signed(own, age=-60.0)) == 401
    for missing in signed(own):
        headers = {name: value for name, value in signed(own).items() if name != missing}
        assert asked(alone, headers) == 401
        assert asked(alone, {**signed(own), missing: "§"}) == 401
    assert asked(alone, {}, path="/v1/fleet/activate-node") == 401
    assert asked(alone, signed(stranger), path="/v1/fleet/activate-node") == 412
    assert asked(alone, {**signed(own), "host": "a/v1/runtime/pull-object?"}) == 400
    assert alone.nodes[0].pulled() == []


def test_a_registered_node_is_held_to_the_length_of_bodies(alone: Alone) -> None:
    headers = signed(alone.nodes[0].key)
    assert asked(alone, {**headers, "content-length": 64 * MIB + 1}) == 413
    assert asked(alone, {**headers, "content-length": "0x10"}) == 400
    with connected(alone) as connection:
        begin(connection, PULL, {**headers, "transfer-encoding": "chunked"})
        assert answer(connection) == 411
    with connected(alone) as connection:
        begin(connection, PULL, headers)
        assert answer(connection) == 411


def test_one_node_does_not_take_the_memory_of_all(alone: Alone) -> None:
    greedy, other = (node.key for node in alone.nodes[:2])
    with ExitStack() as stack:
        for _ in range(2):
            connection = stack.enter_context(connected(alone))
            assert offered(connection, greedy) == 100
            connection.sendall(bytes(MIB))
        assert offered(stack.enter_context(connected(alone)), greedy) == 503
        assert offered(stack.enter_context(connected(alone)), other) == 100
    deadline = time.monotonic() + 60
    status = 503
    while status == 503:  # until the SuperLink has seen that the two are gone
        assert time.monotonic() < deadline
        with connected(alone) as connection:
            status = offered(connection, greedy)
    assert status == 100


def test_a_stranger_does_not_take_the_memory_of_all(alone: Alone) -> None:
    """Eight bodies that nobody signed, a byte now and then of each, kept all parties out."""
    with ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(connected(alone))
            begin(connection, "/health", {"content-length": 64 * MIB})
            assert answer(connection) == 403
        assert alone.nodes[0].pulled() == []


def offered(connection: socket.socket, key: EllipticCurvePrivateKey) -> int:
    """The status of a request with a long body: 100 when the SuperLink begins to read it.

    To be told, and not to guess from silence: two requests of one node are let in by threads, in
    any order.
    """
    length = {"content-length": 64 * MIB, "expect": "100-continue"}
    begin(connection, PULL, {**signed(key), **length})
    return answer(connection)


# The same in front of an app that does nothing, with limits that can be waited for.


@contextmanager
def served(limits: Limits, http: Any = "auto") -> Iterator[int]:
    """A real HTTP server whose app answers how many bytes it got; its port."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        await PlainTextResponse(str(len(body)))(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Bodies(app, limits=limits), log_level="critical", lifespan="off", ws="none", http=http
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def test_a_body_that_makes_no_progress_is_cut_off_and_one_that_does_is_not() -> None:
    with served(Limits(silence=1.0)) as port:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
            begin(connection, "/", {"content-length": 100})
            connection.sendall(bytes(99))
            assert answer(connection) == 408
            while connection.recv(4096):
                pass  # until the server has closed it
        with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
            begin(connection, "/", {"content-length": 8})
            for _ in range(8):
                connection.sendall(bytes(1))
                time.sleep(0.2)
            assert connection.recv(4096).endswith(b"\r\n\r\n8")


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that comes by and by: the first of a connection, or a later one."""

    class Impatient(PromptHeads):
        seconds = 1.0

    with served(Limits(), Impatient) as port, ExitStack() as stack:
        silent, slow = (
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=30)))
            for _ in range(2)
        )
        begin(slow, "/", {"content-length": 1})
        time.sleep(1.5)  # a body has its own time
        slow.sendall(b"x")
        assert answer(slow) == 200
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 30:
                slow.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - began < 30
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
    settings: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", settings.update)
    superlink_served(app="app", http="auto")
    assert settings["http"] is PromptHeads


def answered(messages: list[dict[str, Any]], *, length: int) -> tuple[list[int], bool]:
    """What an app behind the limits answers to a request, and whether it was reached."""
    statuses: list[int] = []
    reached: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(True)
        await PlainTextResponse("")(scope, receive, send)

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"content-length", str(length).encode())]
    scope = {"type": "http", "path": "/", "method": "POST", "headers": headers}
    asyncio.run(Bodies(app, limits=Limits(body=10))(scope, receive, send))
    return statuses, bool(reached)


def test_a_body_is_counted_whatever_the_parser_lets_through() -> None:
    part = {"type": "http.request", "body": bytes(3), "more_body": True}
    last = {**part, "more_body": False}
    assert answered([part, last], length=6) == ([200], True)
    assert answered([part, part], length=5) == ([413], False)
    assert answered([part, last], length=7) == ([400], False)
    assert answered([part, {"type": "http.disconnect"}], length=6) == ([], False)
    assert answered([], length=11) == answered([], length=10**4000) == ([413], False)
