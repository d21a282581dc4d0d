"""Long polling: who is held, who is woken, and that nothing that came is missed."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from fedpriv.simulations.deploy.flower.held import Held, News

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

ASK, BRING = "/ask", "/bring"
LONG, SHORT = 60.0, 0.01  # seconds: never waited for, and waited for in vain


class _App:
    """Notes which requests reach it."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert [await receive(), await receive()] == [_part(b"first", more=True), _part(b"second")]
        self.reached.append(scope["path"])


class _Server:
    """A held application, and the requests that clients put to it."""

    def __init__(self, *, seconds: float = LONG) -> None:
        self.app, self.news = _App(), News()
        self._layer = Held(
            self.app, held={ASK: self.news}, announced={BRING: (self.news,)}, seconds=seconds
        )

    async def request(self, path: str, client: int = 1, gone: asyncio.Event | None = None) -> None:
        """A request of two parts, whose sender is gone when ``gone`` is set."""
        scope = {"type": "http", "path": path, "client": ("127.0.0.1", client)}
        parts = [_part(b"first", more=True), _part(b"second")]

        async def receive() -> Message:
            if parts:
                return parts.pop(0)
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        await self._layer(scope, receive, _ignore)

    async def held(self, client: int = 1) -> asyncio.Task[None]:
        """A request that waits: the task of it, once it does."""
        before = self.news.awaited
        task = asyncio.create_task(self.request(ASK, client))
        while self.news.awaited == before:
            await asyncio.sleep(0)
        return task


def _part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def _ignore(_message: Message) -> None:
    return


def test_the_first_request_of_a_connection_is_not_held() -> None:
    server = _Server()
    asyncio.run(server.request(ASK))
    assert server.app.reached == [ASK]


def test_a_request_is_held_until_something_is_brought() -> None:
    async def story(server: _Server) -> None:
        await server.request(ASK)
        waiting = await server.held()
        assert server.app.reached == [ASK]
        await server.request(BRING, client=2)
        await waiting

    server = _Server()
    asyncio.run(story(server))
    assert server.app.reached == [ASK, BRING, ASK]


def test_what_came_between_two_requests_is_not_missed() -> None:
    async def story(server: _Server) -> None:
        await server.request(ASK)
        await server.request(BRING, client=2)
        await server.request(ASK)  # would take a minute

    server = _Server()
    asyncio.run(story(server))
    assert server.app.reached == [ASK, BRING, ASK]


def test_one_piece_of_news_wakes_every_connection_once() -> None:
    async def story(server: _Server) -> None:
        for client in (1, 2):
            await server.request(ASK, client)
        both = [await server.held(client) for client in (1, 2)]
        server.news.announce()
        await asyncio.gather(*both)
        again = await server.held(1)
        assert server.news.awaited == 1
        again.cancel()
        with pytest.raises(asyncio.CancelledError):
            await again
        assert server.news.awaited == 0

    asyncio.run(story(_Server()))


def test_without_news_a_request_goes_on_when_its_time_is_up() -> None:
    async def story(server: _Server) -> None:
        for _ in range(3):
            await server.request(ASK)

    server = _Server(seconds=SHORT)
    asyncio.run(story(server))
    assert server.app.reached == [ASK] * 3
    assert server.news.awaited == 0


def test_news_of_another_thread_wakes_a_request() -> None:
    async def story(server: _Server) -> None:
        await server.request(ASK)
        waiting = await server.held()
        Thread(target=server.news.announce).start()
        await waiting

    server = _Server()
    asyncio.run(story(server))
    assert server.app.reached == [ASK, ASK]


def test_a_request_whose_sender_is_gone_takes_nothing_from_those_who_come_back() -> None:
    """A node that was killed while it was held lost the message that its successor came for."""

    async def story(server: _Server) -> None:
        await server.request(ASK)
        gone = asyncio.Event()
        waiting = asyncio.create_task(server.request(ASK, gone=gone))
        while not server.news.awaited:
            await asyncio.sleep(0)
        gone.set()
        await waiting
        server.news.announce()
        assert server.news.awaited == 0
        await server.request(ASK, client=2)

    server = _Server()
    asyncio.run(story(server))
    assert server.app.reached == [ASK, ASK]


def test_other_requests_are_left_alone() -> None:
    async def story(server: _Server) -> None:
        for _ in range(2):
            await server.request("/other")

    server = _Server()
    asyncio.run(story(server))
    assert (server.app.reached, server.news.count) == (["/other"] * 2, 0)
