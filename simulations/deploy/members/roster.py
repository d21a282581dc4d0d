"""The roster: the parties, the server and their public keys. The same file at every member.

Every member pins it: an identity that is not in the roster signs nothing that a party accepts. So
the file must reach each party through a channel that the server does not control, and its
`Roster.fingerprint` is compared by telephone.

A roster belongs to one epoch and names the digest of the one before: `fedpriv deploy add`, `expel`
and `rotate` make the next, and `epochs` says which a party accepts. The row of a party keeps its
place for ever, expelled or not; a run is bound to one epoch, and the seats in it are the parties
that are not expelled, in order.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from fedpriv._durable import replace_file
from fedpriv._toml import read_toml, to_toml_value
from fedpriv._validate import require_count
from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.simulations.deploy.members.rotation import IDENTITY_BYTES, Rotation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VERSION = 2
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NODE_KEY = "ecdsa-sha2-nistp"
_CONTEXT = b"fedpriv roster 2\x00"
_DIGEST_BYTES = 32
_DIGITS = re.compile(r"[0-9a-f]{64}")


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
        expelled: The epoch in which it was expelled; None as long as it belongs.
        rotation: How it came by these keys; None if they are its first.
    """

    name: str
    identity: bytes
    node: str
    records: int | None = None
    expelled: int | None = None
    rotation: Rotation | None = None

    def __post_init__(self) -> None:
        require_name(self.name)
        _require_identity(f"identity of {self.name!r}", self.identity)
        if not _is_node_key(self.node):
            raise ValueError(
                f"node of {self.name!r} must be one line of a public EC key in OpenSSH format, "
                f"beginning with {_NODE_KEY!r}, and without a comment."
            )
        if self.records is not None:
            require_count(records=self.records)
        if self.expelled is not None:
            require_count(expelled=self.expelled)

    def to_dict(self) -> dict[str, Any]:
        """The member as a table of TOML."""
        values = {
            "name": self.name,
            "identity": b64encode(self.identity).decode(),
            "node": self.node,
            "records": self.records,
            "expelled": self.expelled,
            "rotation": self.rotation and self.rotation.to_dict(),
        }
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Member:
        """Read a member; `ValueError` for anything that `to_dict` would not write."""
        known = {"name", "identity", "node", "records", "expelled", "rotation"}
        try:
            if unknown := values.keys() - known:
                raise ValueError(f"{sorted(unknown)[0]!r} is not a known key of a party.")
            stated = values.get("rotation")
            return cls(
                name=values["name"],
                identity=b64decode(values["identity"], validate=True),
                node=values["node"],
                records=values.get("records"),
                expelled=values.get("expelled"),
                rotation=None if stated is None else Rotation.from_dict(stated),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a party needs name, identity and node as text: {error}.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All parties that ever belonged, and the server, in one epoch.

    Attributes:
        epoch: Which roster of the federation this is, from 1.
        previous: The digest of the one before; empty in the first.
        server: The public Ed25519 key of the server, which signs its instructions.
        server_rotation: How the server came by it; None if it is its first.
        members: The parties; the position of one is its permanent number.
    """

    server: bytes
    members: tuple[Member, ...] = ()
    epoch: int = 1
    previous: bytes = b""
    server_rotation: Rotation | None = None

    def __post_init__(self) -> None:
        require_count(epoch=self.epoch)
        _require_identity("server", self.server)
        if len(self.previous) != (_DIGEST_BYTES if self.epoch > 1 else 0):
            raise ValueError(
                f"previous of epoch {self.epoch} must be the digest of the roster before it, and "
                "is empty in epoch 1 only."
            )
        for what in ("name", "identity", "node"):
            seen = [getattr(member, what) for member in self.members]
            if len(set(seen)) != len(seen):
                raise ValueError(f"two parties of the roster have the same {what}.")
        self._require_times()

    def _require_times(self) -> None:
        rotations = [each.rotation for each in self.members] + [self.server_rotation]
        made = [each for each in rotations if each is not None]
        used = {self.server, *(member.identity for member in self.members)}
        if len(used) != len(self.members) + 1:
            raise ValueError("server must not be the identity of a party.")
        if any(each.replaced in used for each in made):
            raise ValueError("an identity that was replaced is in the roster again.")
        times = [each.epoch for each in made]
        times += [member.expelled for member in self.members if member.expelled is not None]
        if any(not 1 < time <= self.epoch for time in times):
            raise ValueError(
                f"a party of the roster was expelled or has new keys since an epoch that is not "
                f"among 2 to {self.epoch}."
            )

    @property
    def seats(self) -> tuple[Member, ...]:
        """The parties that are not expelled, in order: those of a run in this epoch."""
        return tuple(member for member in self.members if member.expelled is None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the seats in order."""
        return tuple(member.name for member in self.seats)

    @property
    def identities(self) -> tuple[bytes, ...]:
        """The identities of the seats in order."""
        return tuple(member.identity for member in self.seats)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The public number of records of every seat.

        Raises:
            ValueError: A party has not said it yet.
        """
        silent = [member.name for member in self.seats if member.records is None]
        if silent:
            raise ValueError(
                f"records of {', '.join(silent)} are not in the roster: state them with "
                "`fedpriv deploy join --records` and `fedpriv deploy add`."
            )
        return tuple(member.records or 0 for member in self.seats)

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that the roster says: what a run and the next epoch are bound to."""
        return sha256(_CONTEXT + canonical_json(self.to_dict()).encode()).digest()

    @property
    def fingerprint(self) -> str:
        """The digest, all of it, for reading over the telephone: 16 groups of four digits."""
        return grouped(self.digest)

    def row(self, name: str) -> Member:
        """The row of a party, expelled or not."""
        for member in self.members:
            if member.name == name:
                return member
        raise ValueError(
            f"{name!r} is not in the roster, which has {', '.join(self.names) or 'nobody'}."
        )

    def number(self, name: str) -> int:
        """The number of a party in a run of this epoch: its place among the seats."""
        member = self.row(name)
        if member.expelled is not None:
            raise ValueError(f"{name!r} was expelled in epoch {member.expelled} of the roster.")
        return self.names.index(name)

    def permanent_number(self, name: str) -> int:
        """The number of a party in all epochs: its place among all that ever belonged."""
        return self.members.index(self.row(name))

    def successor(self, *rows: Member, **changes: Any) -> Roster:
        """The roster of the next epoch: rows replaced where they stand, new ones at the end."""
        changed = {member.name: member for member in (*self.members, *rows)}
        return replace(
            self,
            members=tuple(changed.values()),
            epoch=self.epoch + 1,
            previous=self.digest,
            **changes,
        )

    def to_dict(self) -> dict[str, Any]:
        """The roster as its file has it."""
        rotated = self.server_rotation
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "previous": self.previous.hex(),
            "server": b64encode(self.server).decode(),
            **({} if rotated is None else {"server_rotation": rotated.to_dict()}),
            "party": [member.to_dict() for member in self.members],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Roster:
        """Read a roster; `ValueError` for anything that `to_dict` would not write."""
        if values.get("version") != VERSION:
            raise ValueError(f"version must be {VERSION}, got {values.get('version')!r}.")
        known = {"version", "epoch", "previous", "server", "server_rotation", "party"}
        parties = values.get("party", [])
        if values.keys() - known or not isinstance(parties, list):
            raise ValueError(f"it must have {', '.join(sorted(known))} and nothing else.")
        try:
            stated = values.get("server_rotation")
            return cls(
                epoch=values["epoch"],
                previous=bytes.fromhex(values["previous"]),
                server=b64decode(values["server"], validate=True),
                server_rotation=None if stated is None else Rotation.from_dict(stated),
                members=tuple(map(Member.from_dict, parties)),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it needs epoch, previous and server: {error}.") from None


def grouped(digest: bytes) -> str:
    """A digest in groups of four hexadecimal digits."""
    text = digest.hex()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def is_fingerprint_of(text: str, digest: bytes) -> bool:
    """Whether a text shows a whole digest: in any groups, of small or capital letters."""
    digits = re.sub(r"[\s:.-]", "", text).lower()
    return bool(_DIGITS.fullmatch(digits)) and digits == digest.hex()


def identity_fingerprint(identity: bytes) -> str:
    """``sha256:`` and the digest of a public identity: ``policy.server_identity`` pins one."""
    return f"sha256:{sha256(identity).hexdigest()}"


def read_roster(path: Path) -> Roster:
    """Read a roster file; `ValueError` says what is wrong with it."""
    values = read_toml(path, "roster")
    try:
        return Roster.from_dict(values)
    except ValueError as error:
        raise ValueError(f"roster {str(path)!r}: {error}") from None


def write_roster(path: Path, roster: Roster, *, mode: int | None = None) -> None:
    """Write a roster file, whole or not at all, with the permissions ``mode`` if it is given."""
    values = roster.to_dict()
    tables = [f"[[party]]\n{_lines(party)}" for party in values.pop("party")]
    replace_file(path, "\n".join([_lines(values), *tables]), mode=mode)


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {to_toml_value(value, key=key)}\n" for key, value in values.items())


def _is_node_key(line: str) -> bool:
    """Whether a line has the one form of a node key: else two rows could have the same key.

    A certificate in OpenSSH format is read as the key that it is about: anybody can make one for
    the key of another party, would be taken for the owner of its node, and that party had no seat.
    """
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm, NotImplementedError):  # the last: a compressed point
        return False
    canonical = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return isinstance(key, EllipticCurvePublicKey) and line == canonical


def _require_identity(what: str, value: bytes) -> None:
    if len(value) != IDENTITY_BYTES:
        raise ValueError(
            f"{what} must be a public Ed25519 key of {IDENTITY_BYTES} bytes, got {len(value)}."
        )
