"""Long polling: a request that would find nothing is held until there is news, or some seconds.

Flower's nodes, workers and ServerApps ask again and again whether there is something for them. Each
question costs both ends more than the answer, and whatever comes waits for the next one. Held, it
is answered when something came; when nothing comes, there is one question every few seconds.

News wakes everyone who waits for its kind: whom it is for, Flower says when the request goes on.
Nothing is decided here: a request goes on as it came, a little later. What must be checked about
who asks is checked before, so that a stranger is not held. A request whose sender is gone does not
go on: Flower would take the message that it is given for delivered.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from starlette.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Waiting = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]

HELD_SECONDS = 3.0
"""How long a request is held at most. Its sender gives up after 30 seconds, its signature is good
for five minutes, and a server that is told to end waits for it."""

_ACQUIRE = "/v1/runtime/acquire-task"
_SETTLE_SECONDS = 0.02  # what comes in parts is one piece of news
_MOST = 4096  # connections that are remembered, and requests that are held at once


class News:
    """How often something came, and who waits for the next time. For any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._waiting: list[Waiting] = []

    @property
    def count(self) -> int:
        """How often something came."""
        return self._count

    @property
    def awaited(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def announce(self) -> None:
        """Something came: wake all who wait."""
        with self._lock:
            self._count += 1
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            loop.call_soon_threadsafe(_wake, future)

    async def after(self, count: int, *, seconds: float) -> None:
        """Wait until more than ``count`` came, or the time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiting = (loop, future)
        with self._lock:
            if self._count != count:
                return
            self._waiting.append(waiting)
        try:
            await asyncio.wait((future,), timeout=seconds)
        finally:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)


class Held:
    """A layer of a server that holds requests for which there is no news.

    Args:
        app: The next layer.
        held: By path, the news for which its requests wait.
        announced: By path, what there may be once one of its requests is done.
        seconds: How long a request is held at most.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        held: Mapping[str, News],
        announced: Mapping[str, Collection[News]],
        seconds: float = HELD_SECONDS,
    ) -> None:
        self._app = app
        self._held = held
        self._announced = announced
        self._seconds = seconds
        self._seen: OrderedDict[object, int] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, held or not, and say what it may have brought."""
        path = scope["path"] if scope["type"] == "http" else ""
        if path in self._held:
            body = await _body(receive)
            hold = self._hold((path, scope.get("client")), self._held[path])
            if not await _before_the_end(hold, receive):
                return  # it would be given what nobody receives
            receive = _again(body, receive)
        await self._app(scope, receive, send)
        for news in self._announced.get(path, ()):
            news.announce()

    async def _hold(self, who: object, news: News) -> None:
        """Wait, unless something came since this connection last asked."""
        seen = self._seen.pop(who, None)
        if seen == news.count and news.awaited < _MOST:
            await news.after(seen, seconds=self._seconds)
        if seen is not None and seen != news.count:
            await asyncio.sleep(_SETTLE_SECONDS)
        self._seen[who] = news.count  # before it looks: what comes meanwhile is news to it
        while len(self._seen) > _MOST:
            self._seen.popitem(last=False)


async def _body(receive: Receive) -> list[Message]:
    """The body of a request, in the parts in which it came."""
    parts = [await receive()]
    while parts[-1]["type"] == "http.request" and parts[-1].get("more_body", False):
        parts.append(await receive())
    return parts


async def _before_the_end(waiting: Coroutine[Any, Any, None], receive: Receive) -> bool:
    """Wait as long as the connection stands; whether it still does.

    After its body, all that comes of a request is that its sender is gone.
    """
    wait, end = asyncio.create_task(waiting), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((wait, end), return_when=asyncio.FIRST_COMPLETED)
        return not end.done()
    finally:
        for task in (wait, end):
            task.cancel()
        await asyncio.gather(wait, end, return_exceptions=True)


def _again(parts: list[Message], receive: Receive) -> Receive:
    """Receive what was received already, and then what comes."""
    left = iter(parts)

    async def received() -> Message:
        part = next(left, None)
        return await receive() if part is None else part

    return received


def held_by_superlink() -> Middleware:
    """The layer for a SuperLink: nodes wait for instructions, ServerApps for replies, workers."""
    instructions, replies, tasks = News(), News(), News()
    return Middleware(
        Held,
        held={
            "/v1/fleet/pull-messages": instructions,
            "/v1/runtime/pull-messages": replies,
            _ACQUIRE: tasks,
        },
        announced={
            "/v1/runtime/push-messages": (instructions,),
            "/v1/runtime/push-object": (instructions,),
            "/v1/fleet/push-messages": (replies,),
            "/v1/fleet/push-object": (replies,),
            "/v1/control/start-run": (tasks,),
        },
    )


def held_by_supernode(tasks: News) -> Middleware:
    """The layer for a SuperNode: its worker waits until a message has come."""
    return Middleware(Held, held={_ACQUIRE: tasks}, announced={})


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
