"""Network checks: free ports, the server's certificate and its clock; through the node's proxy."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from cryptography import x509
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

from fedpriv.simulations.deploy.folders import read_node
from fedpriv.simulations.deploy.health.checks import Fault

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import PartyFolder

MOST_AHEAD = float(SYSTEM_TIME_TOLERANCE)
"""Seconds that a node's clock may be ahead: the SuperLink refuses signatures of the future."""
MOST_BEHIND = float(TIMESTAMP_TOLERANCE)
"""Seconds that it may be behind: the SuperLink refuses old signatures, too."""
_SECONDS = 5.0


def is_free(host: str, port: int) -> bool:
    """Whether a port can be listened on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def served_certificate(folder: PartyFolder) -> x509.Certificate:
    """The certificate that the server proves itself with, verified as the SuperNode does.

    Raises:
        Fault: It cannot be reached, or its certificate is not good for its name under our CA.
    """
    host, port = _server(folder)
    connection = _connection(folder)
    try:
        connection.connect()
        line = connection.sock
        served = (line.getpeercert(binary_form=True) if line is not None else None) or b""
    except ssl.SSLCertVerificationError as error:
        raise Fault(
            f"the certificate of {host}:{port} is refused: {error.verify_message}",
            "if it expired, the coordinator renews it; if its CA is another one, do not connect.",
        ) from None
    except OSError as error:
        raise _unreachable(host, port, error) from None
    finally:
        connection.close()
    return x509.load_der_x509_certificate(served)


def clock_skew(folder: PartyFolder) -> float:
    """Seconds that this clock is ahead of the server's, to about a second."""
    host, port = _server(folder)
    connection = _connection(folder)
    try:
        before = datetime.now(tz=UTC)
        connection.request("GET", "/health")
        told = connection.getresponse().headers["date"]
        after = datetime.now(tz=UTC)
    except (OSError, HTTPException) as error:
        raise _unreachable(host, port, error) from None
    finally:
        connection.close()
    # A date in a header has no fractions of a second.
    middle = before + (after - before) / 2
    return (middle - parsedate_to_datetime(told)).total_seconds() - 0.5


def _connection(folder: PartyFolder) -> HTTPSConnection:
    """A connection to the server by the way that the SuperNode takes, not yet made.

    Raises:
        Fault: The way is through a proxy that is itself spoken to over TLS, or is not HTTP.
    """
    host, port = _server(folder)
    context = ssl.create_default_context(cafile=str(folder.ca))
    known = getproxies()
    address = known.get("https") or known.get("all")
    if not address or proxy_bypass(host):
        return HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    proxy = urlsplit(address)
    if proxy.scheme != "http" or proxy.hostname is None:
        raise Fault(
            f"the proxy for {host}:{port} is a {proxy.scheme or 'nameless'} one",
            "name it as http://HOST:PORT in HTTPS_PROXY, or check the way by other means.",
        )
    headers = {}
    if proxy.username is not None:
        user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    connection = HTTPSConnection(
        proxy.hostname, proxy.port or 80, timeout=_SECONDS, context=context
    )
    connection.set_tunnel(host, port, headers)
    return connection


def _server(folder: PartyFolder) -> tuple[str, int]:
    host, _, port = read_node(folder).server.rpartition(":")
    return host.strip("[]"), int(port)


def _unreachable(host: str, port: int, error: Exception) -> Fault:
    return Fault(
        f"{host}:{port} cannot be reached: {error}",
        "start the server, and open its port to this machine.",
    )
