"""A proxy that tunnels by CONNECT and notes every request, as a firewall's does.

``python -m tests.simulations.deploy.connect_proxy HOST PORT LOG`` serves until it is ended.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

from contextlib import contextmanager, suppress


class ConnectProxy(ThreadingTCPServer):
    """Serves CONNECT; whatever else it is asked for it notes and refuses."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, log: Path) -> None:
        self.log = log
        self.log.touch()
        super().__init__((host, port), _Request)

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    @property
    def asked(self) -> list[str]:
        """The first line of every request so far."""
        return self.log.read_text().splitlines()


class _Request(StreamRequestHandler):
    server: ConnectProxy

    def handle(self) -> None:
        asked = self.rfile.readline().decode("latin-1").strip()
        with self.server.log.open("a") as log:
            log.write(f"{asked}\n")
        while self.rfile.readline().strip():
            pass
        method, target, *_ = asked.split()
        if method != "CONNECT":
            self.wfile.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        try:
            onward = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        except OSError:
            self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        onward.settimeout(None)
        with onward:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(onward, self.connection), daemon=True)
            back.start()
            _pump(self.connection, onward)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(log: Path) -> Iterator[ConnectProxy]:
    """A proxy on the loopback, until the block ends."""
    with ConnectProxy("127.0.0.1", 0, log) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()


if __name__ == "__main__":
    with ConnectProxy(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])) as standing:
        standing.serve_forever()
