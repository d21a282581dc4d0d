"""Forgeries that a test orders for the nursery's processes: words in somebody else's mouth.

On the real wire, with the means of whoever gets Flower to carry a message: everything that is
public, every message that has passed, and the keys of a party, but not those of whom it speaks for.

    `inject`   before the next set-up of a round, instructions to a party as if from the server
    `pretend`  at a party's next reply of a step: as another one, or in the name of another one
"""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from flwr.app import Message

from fedpriv.federation.engines.courier import Courier, envelope, opened
from fedpriv.federation.protocol.instruction import Instruction, reply_body, signed_reply
from fedpriv.federation.protocol.wire import Announce, Joined, Reply, Request, unpack
from fedpriv.simulations.deploy.flower import tasks
from fedpriv.simulations.deploy.keys import read_identity
from fedpriv.simulations.deploy.members.roster import read_roster
from fedpriv.simulations.run.files import read_json, write_json
from tests.simulations.deploy import fates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_INJECTED, _FATES, _PRETENDED = "injected.json", "injections.json", "pretended.json"
_LAST_ROUND = 2**32 - 1
_SECONDS = 60.0


def inject(victim: Path, *kinds: str) -> None:
    """Order instructions to a party that lock it out of every later round, if it hears them."""
    write_json(victim / _INJECTED, kinds)
    write_json(victim / _FATES, {})


def injected(victim: Path) -> dict[str, str]:
    """What became of them."""
    became: dict[str, str] = read_json(victim / _FATES)
    return became


def pretend(party: Path, step: str, kind: str, other: str) -> None:
    """Order a reply that is forged: "signed" by another party, or a "claim" to be one."""
    write_json(party / _PRETENDED, [step, kind, other])


def rule(root: Path) -> None:
    """From here on this process, and every fork of it, carries out the orders in ``root``."""
    for owner, name, wrapper in (
        (Courier, "_push", _push),
        (tasks, "push_message", _push_message),
    ):
        setattr(owner, name, wrapper(getattr(owner, name), root))


# At the server.


def _push(push: Callable[..., Any], root: Path) -> Callable[..., Any]:
    def pushed(self: Courier, step: str, requests: Mapping[int, Request]) -> Any:
        homes = fates.homes(root)
        for node, request in requests.items():
            orders = homes[node] / _INJECTED
            if step == "advertise" and orders.exists():
                kinds = read_json(orders)
                orders.unlink()
                others = [each for each in requests if each != node]
                became = {
                    kind: _sent(self, node, _FORGED[kind](self, node, others[0], request, homes))
                    for kind in kinds
                }
                write_json(homes[node] / _FATES, became)
        return push(self, step, requests)

    return pushed


def _last(request: Request) -> bytes:
    """The invitation to a round after which there is none."""
    (invited,) = request.messages
    assert isinstance(invited, Announce)
    return Request(messages=(replace(invited, round=_LAST_ROUND),)).to_bytes()


def _unsigned(_courier: Courier, _node: int, _other: int, request: Request, _homes: Any) -> bytes:
    return _last(request)


def _by_a_peer(
    courier: Courier, node: int, other: int, request: Request, homes: Mapping[int, Path]
) -> bytes:
    body = _last(request)
    genuine = courier._seal.sealed(node, body, run=request.run, seconds=_SECONDS)[1]
    head = Instruction.from_bytes(unpack(genuine)[0])
    return head.signed(body, read_identity(homes[other] / "identity.key"))


def _for_a_peer(courier: Courier, _node: int, other: int, request: Request, _homes: Any) -> bytes:
    return courier._seal.sealed(other, _last(request), run=request.run, seconds=_SECONDS)[1]


_FORGED: dict[str, Callable[..., bytes]] = {
    "unsigned": _unsigned,
    "signed by a peer": _by_a_peer,
    "meant for a peer": _for_a_peer,
}


def _sent(courier: Courier, node: int, data: bytes) -> str:
    """Send it, wait until the party has dealt with it, and tell how."""
    message = Message(envelope(data), node, "query.advertise", ttl=_SECONDS)
    names = list(courier._grid.push_messages([message]))
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        for reply in courier._grid.pull_messages(names):
            if reply.has_error():
                return "error"
            said = Reply.from_bytes(reply_body(opened(reply)))
            return "obeyed" if said.messages else said.refusal.partition(":")[0]
        time.sleep(0.1)
    return "lost"


# At a party.


def _push_message(push: Callable[..., None], root: Path) -> Callable[..., None]:
    def pushed(client: Any, reply: Any, context: Any) -> None:
        orders, step = root / _PRETENDED, reply.metadata.message_type.removeprefix("query.")
        if orders.exists() and read_json(orders)[0] == step:
            _, kind, other = read_json(orders)
            orders.unlink()
            body = reply_body(opened(reply))
            if kind == "claim":
                body, signer = _claim(root, body, other), root
            else:
                signer = root.parent / other
            asked = sha256(unpack((root / "request").read_bytes())[0]).digest()
            key = read_identity(signer / "identity.key")
            reply.content = envelope(signed_reply(body, to=asked, key=key))
        push(client, reply, context)

    return pushed


def _claim(root: Path, body: bytes, other: str) -> bytes:
    """The place of another party, with all that is known of it."""
    roster = read_roster(root / "roster.toml")
    number = roster.number(other)
    (joined,) = Reply.from_bytes(body).messages
    assert isinstance(joined, Joined)
    claimed = replace(joined, party=number, size=roster.sizes[number])
    return Reply(messages=(claimed,)).to_bytes()
