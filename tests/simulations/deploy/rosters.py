"""Rosters in memory: chains of epochs whose keys a test holds, without a disk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, derive_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.simulations.deploy.keys import node_public
from fedpriv.simulations.deploy.members.roster import Member, Roster
from fedpriv.simulations.deploy.members.rotation import rotation


def node_line(number: int) -> str:
    """A public node key."""
    return node_public(derive_private_key(number + 1, SECP384R1()))


@dataclass
class Chain:
    """A federation as its coordinator would lead it; ``rosters`` has every epoch."""

    rosters: list[Roster] = field(default_factory=list)
    _keys: dict[str, Ed25519PrivateKey] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        members = tuple(self.member(name) for name in ("north", "south", "west"))
        self.rosters.append(Roster(server=self.public(""), members=members))

    @property
    def last(self) -> Roster:
        return self.rosters[-1]

    def public(self, name: str) -> bytes:
        """The identity of a party, or of the server, made if it has none."""
        return self._keys.setdefault(name, self._key()).public_key().public_bytes_raw()

    def member(self, name: str) -> Member:
        return Member(name=name, identity=self.public(name), node=self._node(), records=10)

    def add(self) -> None:
        self._append(self.last.successor(self.member(f"party{self._made}")))

    def expel(self, name: str) -> None:
        row = replace(self.last.row(name), expelled=self.last.epoch + 1)
        self._append(self.last.successor(row))

    def state(self, name: str, records: int) -> None:
        self._append(self.last.successor(replace(self.last.row(name), records=records)))

    def rotate(self, name: str, *, lost: bool = False) -> None:
        row, node = self.last.row(name), self._node()
        new, old = self._key(), self._keys[name]
        stated = rotation(
            name, replaced=row.identity, new=new, node=node, old=None if lost else old
        )
        self._keys[name] = new
        rotated = replace(
            row,
            identity=self.public(name),
            node=node,
            rotation=replace(stated, epoch=self.last.epoch + 1),
        )
        self._append(self.last.successor(rotated))

    def rotate_server(self, *, lost: bool = False) -> None:
        new, old = self._key(), self._keys[""]
        stated = rotation("", replaced=self.last.server, new=new, old=None if lost else old)
        self._keys[""] = new
        stated = replace(stated, epoch=self.last.epoch + 1)
        self._append(self.last.successor(server=self.public(""), server_rotation=stated))

    def _append(self, roster: Roster) -> None:
        self.rosters.append(roster)

    def _key(self) -> Ed25519PrivateKey:
        self._made += 1
        return Ed25519PrivateKey.from_private_bytes(self._made.to_bytes(32, "big"))

    def _node(self) -> str:
        self._made += 1
        return node_line(self._made)
