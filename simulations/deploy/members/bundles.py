"""Invitations and bundles: how a party joins with keys of its own, and no secret travels.

The invitation has the server's address, its public identity, the CA's certificate and the proposed
policy. The bundle has the party's public keys and its number of records, signed with its identity:
nobody can enter the key of somebody else as their own.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import Encoding

from fedpriv._toml import read_toml, to_toml
from fedpriv.simulations.deploy.certificates import read_certificate
from fedpriv.simulations.deploy.federation import FederationFile, parse_federation
from fedpriv.simulations.deploy.keys import identity_public, read_identity
from fedpriv.simulations.deploy.members.roster import VERSION, Member

if TYPE_CHECKING:
    from pathlib import Path

    from fedpriv.simulations.deploy.folders import ServerFolder

_CONTEXT = b"fedpriv bundle 2\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a party needs in order to join; nothing of it is secret.

    Attributes:
        federation: The federation file, without paths of the coordinator.
        ca: The CA's certificate, in PEM.
        identity: The server's public identity.
        schema: The text of the schema, if there is one yet.
    """

    federation: FederationFile
    ca: str
    identity: bytes
    schema: str | None = None

    def to_toml(self) -> str:
        """The invitation as a file."""
        identity = b64encode(self.identity).decode()
        values = {"version": VERSION, "ca": self.ca, "identity": identity, "schema": self.schema}
        known = {key: value for key, value in values.items() if value is not None}
        return to_toml({**known, "federation": _without_paths(self.federation)})


def invitation(federation: FederationFile, folder: ServerFolder) -> Invitation:
    """The invitation to a federation whose server's directory is made."""
    return Invitation(
        federation=parse_federation(_without_paths(federation)),
        ca=read_certificate(folder.ca).public_bytes(Encoding.PEM).decode(),
        identity=identity_public(read_identity(folder.identity)),
        schema=folder.schema.read_text() if folder.schema.exists() else None,
    )


def read_invitation(path: Path) -> Invitation:
    """Read an invitation; `ValueError` says what is wrong with it."""
    values = _read("invitation", path, {"version", "ca", "identity", "schema", "federation"})
    try:
        identity = b64decode(values["identity"], validate=True)
        Ed25519PublicKey.from_public_bytes(identity)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"invitation {str(path)!r} has no public identity of a server.") from None
    try:
        x509.load_pem_x509_certificate(str(values["ca"]).encode())
    except (KeyError, ValueError):
        raise ValueError(f"invitation {str(path)!r} has no certificate of a CA.") from None
    federation = parse_federation(values.get("federation", {}))
    return Invitation(
        federation=federation, ca=values["ca"], identity=identity, schema=values.get("schema")
    )


def write_bundle(member: Member, identity: Ed25519PrivateKey, *, federation: str) -> str:
    """A bundle: the public part of a party, and proof that it holds the private one."""
    proof = identity.sign(_signed(member, federation))
    values = {"version": VERSION, "federation": federation, "proof": b64encode(proof).decode()}
    return to_toml({**values, "party": member.to_dict()})


def read_bundle(path: Path, *, federation: str) -> Member:
    """The party of a bundle that is meant for this federation.

    Raises:
        ValueError: It is no bundle, is for another federation, or was changed on its way.
    """
    values = _read("bundle", path, {"version", "federation", "proof", "party"})
    if values.get("federation") != federation:
        raise ValueError(
            f"bundle {str(path)!r} is for the federation {values.get('federation')!r}, not for "
            f"{federation!r}."
        )
    member = Member.from_dict(values.get("party", {}))
    if member.expelled is not None or (member.rotation is not None and member.rotation.epoch):
        raise ValueError(f"bundle {str(path)!r} states an epoch, which only a roster does.")
    try:
        key = Ed25519PublicKey.from_public_bytes(member.identity)
        key.verify(b64decode(values["proof"], validate=True), _signed(member, federation))
    except (KeyError, TypeError, ValueError, InvalidSignature):
        raise ValueError(
            f"bundle {str(path)!r} is not signed by the identity in it: ask the party for it again."
        ) from None
    return member


def _signed(member: Member, federation: str) -> bytes:
    return _CONTEXT + to_toml({"federation": federation, **member.to_dict()}).encode()


def _without_paths(federation: FederationFile) -> dict[str, Any]:
    values = federation.to_dict()
    values.pop("schema", None)
    return values


def _read(what: str, path: Path, known: set[str]) -> dict[str, Any]:
    values = read_toml(path, what)
    if values.get("version") != VERSION or values.keys() - known:
        raise ValueError(f"{str(path)!r} is no {what} of version {VERSION}.")
    return values
