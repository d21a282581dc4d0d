"""Faults that a test orders for the nursery's processes, at named moments.

The product has no switches for this: a process of the nursery wraps what the modules of a
deployment call. A test leaves orders in a member's directory, each to be carried out once, in turn:

    at a party   ``STEP unread VICTIM``      before the server sends the messages of an exchange
                 ``STEP journalled VICTIM``  when its reply is in the journal, and has not left
                 ``STEP hangs fork``         then, too: nobody is killed, and it never leaves
    at a server  ``STEP asked VICTIM``       when the messages of an exchange are with the SuperLink
                 ``release committed VICTIM``  when it is in the ledger, and the model has not moved

What is killed, with SIGKILL, is the member's ``worker``, with the fork that carries out a task, or
its ``supernode`` or ``superlink``.

A message whose reply is lost with a process has none, and the server would wait for it until its
patience ends. Here it does not wait for whoever died after being asked.
"""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv.federation.engines.courier import Courier, Patience, opened
from fedpriv.federation.queries import encoding as codec
from fedpriv.privacy.ledger import Ledger
from fedpriv.simulations.deploy.flower import supernode, tasks, worker
from fedpriv.simulations.deploy.run import server as deployed_server
from fedpriv.simulations.run.files import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from fedpriv.federation.protocol.wire import Request

_ORDERS, _DEATHS, _LIES, _PATIENCE = "orders.json", "deaths.json", "lies.json", "patience.json"
_NODE = "node.json"
_SECONDS = 60.0


def give(root: Path, *orders: str, gone: bool = False) -> None:
    """Leave orders for a member, in place of those that are left.

    Who is ``gone`` when one was carried out is not waited for until the next ones are given.
    """
    write_json(root / _DEATHS, [])
    write_json(root / _ORDERS, [{"order": each, "gone": gone} for each in orders])


def deaths(root: Path) -> list[dict[str, Any]]:
    """The orders that were carried out since the last were given, and when."""
    events: list[dict[str, Any]] = _read(root / _DEATHS)
    return events


def node(root: Path) -> tuple[int, int]:
    """Flower's numbers of the run that a party was last asked in, and of its node."""
    flower, node = _read(root / _NODE)
    return int(flower), int(node)


def lie(root: Path, *lies: str) -> None:
    """What the server's next exchanges of answers ask of a party; "" is the honest question."""
    write_json(root / _LIES, lies)


def patience(root: Path, *, attempts: int, seconds: float = _SECONDS) -> None:
    """How often the server asks for a sum, and how long it waits for a reply."""
    write_json(root / _PATIENCE, [attempts, seconds])


def rule(root: Path) -> None:
    """From here on this process, and every fork of it, is ruled by the orders in ``root``."""
    supernode.POLL_SECONDS, worker._RETRY_SECONDS = 0.3, 0.2
    for owner, name, wrapper in (
        (tasks, "pull_task_input", _pull_task_input),
        (tasks, "push_message", _push_message),
        (Courier, "exchange", _exchange),
        (Courier, "_push", _push),
        (Ledger, "commit", _commit),
        (deployed_server, "serve", _serve),
    ):
        setattr(owner, name, wrapper(getattr(owner, name), root))


def _fall(root: Path, moment: str) -> None:
    """Carry out the member's next order, if this is its moment."""
    orders = _read(root / _ORDERS)
    if not orders or orders[0]["order"].rpartition(" ")[0] != moment:
        return
    victim = orders[0]["order"].rpartition(" ")[2]
    write_json(root / _ORDERS, orders[1:])
    write_json(root / _DEATHS, [*deaths(root), {**orders[0], "time": time.time()}])
    pid = json.loads((root / "processes" / f"{victim}.pid").read_text())["pid"]
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
        while True:  # the nursery keeps no child that ended
            os.killpg(pid, 0)
            time.sleep(0.01)


def _hang(root: Path, order: str) -> None:
    """Carry out an order to do nothing for ever."""
    orders = _read(root / _ORDERS)
    if orders and orders[0]["order"] == order:
        write_json(root / _ORDERS, orders[1:])
        hung(root).write_text(str(os.getpid()))
        while True:
            time.sleep(600)


def hung(root: Path) -> Path:
    """Where the process that hangs by order says which one it is."""
    return root / "hung"


# At a party.


def _pull_task_input(pull: Callable[..., Any], root: Path) -> Callable[..., Any]:
    def pulled(client: Any) -> Any:
        inputs = pull(client)
        message, context = inputs[:2]
        (root / "request").write_bytes(opened(message))
        write_json(root / _NODE, [context.run_id, context.node_id])
        return inputs

    return pulled


def _push_message(push: Callable[..., None], root: Path) -> Callable[..., None]:
    def pushed(client: Any, reply: Any, context: Any) -> None:
        step = reply.metadata.message_type.removeprefix("query.")
        if not reply.has_error():
            (root / "reply").write_bytes(opened(reply))
        _fall(root, f"{step} journalled")
        _hang(root, f"{step} hangs fork")
        push(client, reply, context)

    return pushed


# At the server.


def _serve(serve: Callable[..., Any], root: Path) -> Callable[..., Any]:
    def served(*arguments: Any, **more: Any) -> Any:
        deployed_server._ATTEMPTS, seconds = _read(root / _PATIENCE)
        waiting = Patience(arrival=_SECONDS, reply=seconds, poll=0.15)
        return serve(*arguments, patience=waiting, **more)

    return served


def homes(root: Path) -> dict[int, Path]:
    """The directory of the party behind every node."""
    return {
        int(json.loads(note.read_text())["node"]): root.parent / "parties" / note.stem
        for note in (root / "nodes").glob("*.json")
    }


class _Unawaited:
    """Who is not waited for, besides those who would not be: whoever died after being asked."""

    def __init__(self, nodes: Collection[int], homes: Mapping[int, Path]) -> None:
        self._nodes, self._homes, self._asked = nodes, homes, time.time()

    def __iter__(self) -> Iterator[int]:
        yield from self._nodes
        for node, home in self._homes.items():
            if any(
                death["gone"] or (death["time"] > self._asked and " journalled " in death["order"])
                for death in deaths(home)
            ):
                yield node


def _exchange(exchange: Callable[..., Any], root: Path) -> Callable[..., Any]:
    def exchanged(
        self: Courier, step: str, requests: Mapping[int, Request], *, unawaited: Any = ()
    ) -> Any:
        where = homes(root)
        if step == "answer":
            requests = {node: _told(where[node], each) for node, each in requests.items()}
        return exchange(self, step, requests, unawaited=_Unawaited(unawaited, where))

    return exchanged


def _push(push: Callable[..., Any], root: Path) -> Callable[..., Any]:
    def pushed(self: Courier, step: str, requests: Mapping[int, Request]) -> Any:
        where = homes(root)
        for node in requests:
            _fall(where[node], f"{step} unread")
        sent = push(self, step, requests)
        _fall(root, f"{step} asked")
        return sent

    return pushed


def _commit(commit: Callable[..., Any], root: Path) -> Callable[..., Any]:
    def committed(self: Ledger, reservation: Any, release: bytes) -> Any:
        done = commit(self, reservation, release)
        _fall(root, "release committed")
        return done

    return committed


_TAMPERED: dict[str, Callable[[Any], Any]] = {
    "": lambda query: query,
    "less noise": lambda query: replace(query, event=replace(query.event, relative_noise=1e-4)),
    "larger clip": lambda query: replace(
        query,
        clip_norm=2 * query.clip_norm,
        grid=replace(query.grid, step=2 * query.grid.step),
    ),
    "more noise": lambda query: replace(
        query, event=replace(query.event, relative_noise=2 * query.event.relative_noise)
    ),
    "other model": lambda query: replace(query, theta=query.theta + 1.0),
}


def _told(home: Path, request: Request) -> Request:
    """The request as the server's next lie to this party has it."""
    lies = _read(home / _LIES)
    if not lies:
        return request
    write_json(home / _LIES, lies[1:])
    query = _TAMPERED[lies[0]](codec.from_bytes(request.query))
    return replace(request, query=codec.to_bytes(query))


def _read(path: Path) -> list[Any]:
    try:
        entries: list[Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return []
    return entries
