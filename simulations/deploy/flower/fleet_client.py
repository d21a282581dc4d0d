"""Client of a party's SuperNode: an answer of the server is bounded, plain, and from nowhere else.

A party behind a firewall calls out, to one server. Flower's client follows wherever that server
sends it: a redirect had a party's machine call any address of its own network, by GET or with the
body of its request. It unpacks what comes compressed, a thousandfold, and reads answers to their
end, however long. None of it needs a signature of the server's identity. Here no redirect is
followed, nothing compressed is asked for or read, and an answer, as all objects of a message
together, has a limit.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import httpx
from flwr.supernode.fleet_http_client import FleetHttpClient

from fedpriv.simulations.deploy.flower.gates.bodies import Limits
from fedpriv.simulations.deploy.flower.gates.fleet_rules import MOST_BYTES, MOST_OBJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    PullObjects = Callable[..., dict[str, bytes]]

MOST = Limits().body + 1024 * 1024
"""Bytes of an answer: an object that a server's own machine may send to its SuperLink, framed."""


class BoundedFleetClient(FleetHttpClient):
    """Flower's client, held to one server and to `MOST` bytes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._client.follow_redirects = False
        self._client.headers["accept-encoding"] = "identity"
        self._client.event_hooks = {"response": [bound]}


def bound(response: httpx.Response) -> None:
    """Refuse an answer that is packed, before its body is read, and one that is too long, then."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.RemoteProtocolError("the answer is compressed.", request=response.request)
    response.stream = _Counted(response)


class _Counted(httpx.SyncByteStream):
    """The body of an answer, up to a limit."""

    def __init__(self, response: httpx.Response) -> None:
        self._stream, self._request = response.stream, response.request

    def __iter__(self) -> Iterator[bytes]:
        left = MOST
        for part in self._stream:  # type: ignore[union-attr] # of a client that does not await
            left -= len(part)
            if left < 0:
                raise httpx.RemoteProtocolError("the answer is too long.", request=self._request)
            yield part

    def close(self) -> None:
        """Let the connection go."""
        self._stream.close()  # type: ignore[union-attr]


def bounded_message(pull: PullObjects) -> PullObjects:
    """Pull the objects of a message, which may be as many and as large as those of a reply."""

    def pulled(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **how: Any) -> Any:
        lock, sizes = Lock(), [0]

        def counted(identifier: str) -> bytes:
            data = pull_object_fn(identifier)
            with lock:
                sizes.append(sizes.pop() + len(data))
                if sizes[0] > MOST_BYTES:
                    raise ConnectionError("a message has too many bytes.")
            return data

        if len(object_ids) > MOST_OBJECTS:
            raise ConnectionError("a message has too many objects.")
        return pull(object_ids, counted, **how)

    return pulled
