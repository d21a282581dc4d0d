"""The roster: the parties and their public keys. The same file at every member.

Every member pins it: an identity that is not in the roster signs nothing that a party accepts. So
the file must reach each party through a channel that the server does not control;
`Roster.fingerprint` is short enough to be compared by telephone.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fedpriv._durable import replace_file
from fedpriv._toml import read_toml, to_toml
from fedpriv._validate import require_count

if TYPE_CHECKING:
    from pathlib import Path

VERSION = 1
IDENTITY_BYTES = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NODE_KEY = "ecdsa-sha2-nistp"


def require_name(name: str) -> str:
    """Refuse a name that could not be a directory, a host label and a TOML value alike."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a party's name must be lower-case letters, digits, '-' and '_', at most 63 and not "
            f"beginning with a sign; got {name!r}."
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A party as all others know it.

    Attributes:
        name: Its name.
        identity: Its public Ed25519 key, which signs its messages of secure aggregation.
        node: Its public node key, one OpenSSH line, by which the SuperLink admits it.
        records: How many records it holds, which is public; None until it has said so.
    """

    name: str
    identity: bytes
    node: str
    records: int | None = None

    def __post_init__(self) -> None:
        require_name(self.name)
        if len(self.identity) != IDENTITY_BYTES:
            raise ValueError(
                f"identity of {self.name!r} must be a public Ed25519 key of {IDENTITY_BYTES} "
                f"bytes, got {len(self.identity)}."
            )
        if not self.node.startswith(_NODE_KEY) or "\n" in self.node:
            raise ValueError(
                f"node of {self.name!r} must be one line of a public EC key in OpenSSH format, "
                f"beginning with {_NODE_KEY!r}."
            )
        if self.records is not None:
            require_count(records=self.records)

    def to_dict(self) -> dict[str, Any]:
        """The member as a table of TOML."""
        values = {
            "name": self.name,
            "identity": b64encode(self.identity).decode(),
            "node": self.node,
            "records": self.records,
        }
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Member:
        """Read a member; `ValueError` for anything that `to_dict` would not write."""
        unknown = values.keys() - {"name", "identity", "node", "records"}
        if unknown:
            raise ValueError(f"{sorted(unknown)[0]!r} is not a known key of a party.")
        try:
            identity = b64decode(values["identity"], validate=True)
            return cls(
                name=values["name"],
                identity=identity,
                node=values["node"],
                records=values.get("records"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a party needs name, identity and node as text: {error}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All parties; a party's number in secure aggregation is its position."""

    members: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        for what in ("name", "identity", "node"):
            seen = [getattr(member, what) for member in self.members]
            if len(set(seen)) != len(seen):
                raise ValueError(f"two parties of the roster have the same {what}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The parties in order."""
        return tuple(member.name for member in self.members)

    @property
    def identities(self) -> tuple[bytes, ...]:
        """Every party's identity in order."""
        return tuple(member.identity for member in self.members)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The public number of records of every party.

        Raises:
            ValueError: A party has not said it yet.
        """
        silent = [member.name for member in self.members if member.records is None]
        if silent:
            raise ValueError(
                f"records of {', '.join(silent)} are not in the roster: state them with "
                "`fedpriv deploy join --records` and `fedpriv deploy add`."
            )
        return tuple(member.records or 0 for member in self.members)

    @property
    def fingerprint(self) -> str:
        """A fingerprint: equal at two members exactly if they pin the same parties, keys, sizes."""
        pinned = [member.to_dict() for member in self.members]
        return sha256(to_toml({"party": pinned}).encode()).hexdigest()[:32]

    def number(self, name: str) -> int:
        """The position of a party."""
        if name not in self.names:
            raise ValueError(
                f"{name!r} is not in the roster, which has {', '.join(self.names) or 'nobody'}."
            )
        return self.names.index(name)

    def with_member(self, member: Member) -> Roster:
        """The roster with a party added at the end, or replaced where it stands."""
        if member.name not in self.names:
            return Roster(members=(*self.members, member))
        changed = list(self.members)
        changed[self.number(member.name)] = member
        return Roster(members=tuple(changed))


def read_roster(path: Path) -> Roster:
    """Read a roster file; `ValueError` says what is wrong with it."""
    values = read_toml(path, "roster")
    if values.get("version") != VERSION:
        raise ValueError(
            f"roster {str(path)!r} must have version = {VERSION}, got {values.get('version')!r}."
        )
    parties = values.get("party", [])
    if values.keys() - {"version", "party"} or not isinstance(parties, list):
        raise ValueError(f"roster {str(path)!r} must have [[party]] tables and nothing else.")
    return Roster(members=tuple(map(Member.from_dict, parties)))


def write_roster(path: Path, roster: Roster) -> None:
    """Write a roster file, whole or not at all."""
    tables = [f"[[party]]\n{to_toml(member.to_dict())}" for member in roster.members]
    replace_file(path, "\n".join([f"version = {VERSION}\n", *tables]))
