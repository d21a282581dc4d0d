"""Directory layout of a member: one directory each, which is all that its machine needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv._toml import read_toml

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory of a member.

    Attributes:
        root: The directory.
    """

    root: Path

    @property
    def ca(self) -> Path:
        """The certificate that everybody trusts."""
        return self.root / "ca.crt"

    @property
    def roster(self) -> Path:
        """The parties' public keys."""
        return self.root / "roster.toml"

    @property
    def schema(self) -> Path:
        """The schema of the records."""
        return self.root / "schema.toml"

    @property
    def secret(self) -> Path:
        """The secret that the node and its worker share."""
        return self.root / "worker.secret"

    @property
    def identity(self) -> Path:
        """The private identity, which signs what the member says."""
        return self.root / "identity.key"

    @property
    def identity_public(self) -> Path:
        """Its public part, which the roster has."""
        return self.root / "identity.pub"

    @property
    def pending(self) -> Path:
        """New keys, until the roster has them."""
        return self.root / "pending"

    @property
    def flower(self) -> Path:
        """Flower's home: nothing is read from or written to the user's own."""
        return self.root / "flower"

    @property
    def processes(self) -> Path:
        """Process ids and logs."""
        return self.root / "processes"

    @property
    def start(self) -> Path:
        """The script that starts the member."""
        return self.root / "start.sh"

    @property
    def checklist(self) -> Path:
        """The checklist of what a person has to do."""
        return self.root / "CHECKLIST.md"


@dataclass(frozen=True, slots=True)
class ServerFolder(Folder):
    """The directory of the server."""

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.root / "server.crt"

    @property
    def key(self) -> Path:
        """Its private key."""
        return self.root / "server.key"

    @property
    def federation(self) -> Path:
        """The federation file."""
        return self.root / "federation.toml"

    @property
    def invitation(self) -> Path:
        """The invitation, which a party needs in order to join: public."""
        return self.root / "invitation.toml"

    @property
    def rosters(self) -> Path:
        """The rosters of all epochs, for a party that has missed some."""
        return self.root / "rosters"

    @property
    def nodes(self) -> Path:
        """The public node keys to register."""
        return self.root / "nodes"

    @property
    def runs(self) -> Path:
        """One directory per run."""
        return self.root / "runs"

    @property
    def database(self) -> Path:
        """Flower's own memory: registered nodes and runs."""
        return self.root / "flower" / "superlink.sqlite"

    @property
    def unit(self) -> Path:
        """A unit for systemd."""
        return self.root / "fedpriv-server.service"


@dataclass(frozen=True, slots=True)
class PartyFolder(Folder):
    """The directory of a party."""

    @property
    def policy(self) -> Path:
        """The party's own file: policy, budget and paths."""
        return self.root / "party.toml"

    @property
    def node(self) -> Path:
        """The node's settings: where the server is, and which port the node uses."""
        return self.root / "node.toml"

    @property
    def node_key(self) -> Path:
        """The private node key."""
        return self.root / "node.key"

    @property
    def node_public(self) -> Path:
        """Its public part."""
        return self.root / "node.pub"

    @property
    def bundle(self) -> Path:
        """The bundle, which the coordinator needs to add the party: public."""
        return self.root / "bundle.toml"

    @property
    def unit(self) -> Path:
        """A unit for systemd."""
        return self.root / "fedpriv-party.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """How a party's node reaches the server.

    Attributes:
        server: Host and port of the server.
        port: Of the node itself, on the loopback of its machine.
    """

    server: str
    port: int


def server_folder(path: Path) -> ServerFolder:
    """The server's directory, given itself or what `fedpriv deploy init` made."""
    for root in (path, path / "server"):
        if (root / "federation.toml").is_file() and (root / "server.crt").is_file():
            return ServerFolder(root.resolve())
    raise ValueError(f"{str(path)!r} is no server's directory: `fedpriv deploy init` makes one.")


def party_folder(path: Path) -> PartyFolder:
    """A party's directory, given itself or its party.toml."""
    root = path.parent if path.is_file() else path
    folder = PartyFolder(root.resolve())
    if not folder.policy.is_file():
        raise ValueError(
            f"{str(path)!r} is no party's directory: `fedpriv deploy init` or `fedpriv deploy "
            "join` makes one."
        )
    return folder


def member_folder(path: Path) -> ServerFolder | PartyFolder:
    """The directory of a member, whichever it is."""
    try:
        return server_folder(path)
    except ValueError:
        return party_folder(path)


def read_node(folder: PartyFolder) -> Node:
    """How this party's node reaches the server."""
    values = read_toml(folder.node, "node file")
    try:
        node = Node(server=values["server"], port=values["port"])
    except KeyError as error:
        raise ValueError(
            f"{str(folder.node)!r} must have server = 'host:port' and port: {error}."
        ) from None
    host, colon, port = str(node.server).rpartition(":")
    if not (host and colon and port.isdigit() and isinstance(node.port, int)):
        raise ValueError(f"{str(folder.node)!r}: server must be 'host:port' and port a number.")
    return node
