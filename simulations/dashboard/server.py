"""Server of the dashboard: on this machine's loopback alone, read-only, behind a secret address.

Others who are logged in here reach the loopback, too, and so does any page in a browser. So every
address begins with a secret that was drawn at the start, and a request must name this host: a name
that was bent to point here (DNS rebinding) is refused. A report may have come with results that
somebody else made: it may look nice, and neither reads what else is here nor sends anything.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from fedpriv.simulations.dashboard.activities import overview, report_of, required
from fedpriv.simulations.report.render import PAGE as REPORT_PAGE

_LOOPBACK = "127.0.0.1"
_PAGE = Path(__file__).parent / "page"
_FRESH_SECONDS = 1.0  # for which one look serves all who ask
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:"
)
_OF_REPORTS = (  # beside what a report states itself, if it does: whoever sent it wrote that
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
_TEXT = "{}; charset=utf-8"


class Dashboard(ThreadingHTTPServer):
    """The dashboard of a directory, on a port of the loopback.

    Args:
        root: What it follows.
        port: 0 for any that is free.

    Raises:
        ValueError: There is no such directory, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, root: Path, *, port: int = 0) -> None:
        self.root = required(root)
        self.secret = secrets.token_urlsafe(16)
        self._lock, self._seen, self._text = Lock(), float("-inf"), b""
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            raise ValueError(
                f"--port {port} cannot be used: {error.strerror}. Name another one, or 0 for any."
            ) from None
        self.hosts = {f"{name}:{self.server_port}" for name in (_LOOPBACK, "localhost")}

    @property
    def address(self) -> str:
        """For a browser; whoever knows it may look."""
        return f"http://{_LOOPBACK}:{self.server_port}/{self.secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of who goes away before the answer: strangers can, as often as they like."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def now(self) -> bytes:
        """What goes on, as JSON; looked at once for all who ask within a second."""
        with self._lock:
            if time.monotonic() - self._seen > _FRESH_SECONDS:
                self._text = json.dumps(overview(self.root)).encode()
                self._seen = time.monotonic()
            return self._text


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard
    server_version, sys_version = "fedpriv", ""
    timeout = 30.0

    def do_GET(self) -> None:
        """Answer with one of the few things there are."""
        content = self._content()
        if content is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, body, policy = content
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def _content(self) -> tuple[str, bytes, str] | None:
        """Kind, content and policy of what is asked for; None if it is nothing, or not for them."""
        if self.headers.get("Host") not in self.server.hosts:
            return None
        if not self.path.startswith("/"):
            return None
        _, secret, *names = self.path.split("?")[0].split("/")
        if not compare_digest(secret.encode(), self.server.secret.encode()):
            return None
        match names:
            case [""]:
                return _TEXT.format("text/html"), _read("dashboard.html"), _POLICY
            case ["style.css"]:
                style = (REPORT_PAGE / "page.css").read_bytes() + _read("dashboard.css")
                return _TEXT.format("text/css"), style, _POLICY
            case ["dashboard.js"]:
                return _TEXT.format("text/javascript"), _read("dashboard.js"), _POLICY
            case ["now.json"]:
                return "application/json", self.server.now(), _POLICY
            case ["report", wanted]:
                page = report_of(self.server.root, wanted)
                return None if page is None else (_TEXT.format("text/html"), page, _OF_REPORTS)
        return None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name it has there
        """Nothing: addresses hold the secret."""


def _read(name: str) -> bytes:
    return (_PAGE / name).read_bytes()
