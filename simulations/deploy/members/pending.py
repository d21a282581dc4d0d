"""Pending keys: made by `fedpriv deploy rotate`, in use from the epoch of the roster that has them.

Until then the old ones answer: a party that rotates does not drop out of the epoch that it is in.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv._durable import replace_file, synchronise
from fedpriv.simulations.deploy import keys
from fedpriv.simulations.deploy.folders import PartyFolder

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from fedpriv.simulations.deploy.folders import ServerFolder


def new_identity(folder: ServerFolder | PartyFolder) -> Ed25519PrivateKey:
    """The identity that waits to be used, made if there is none."""
    path = keys.private_folder(folder.pending) / folder.identity.name
    if not path.exists():
        keys.write_private(path, keys.identity_private(Ed25519PrivateKey.generate()))
    return keys.read_identity(path)


def new_node_key(folder: PartyFolder) -> EllipticCurvePrivateKey:
    """The node key that waits to be used, made if there is none."""
    path = keys.private_folder(folder.pending) / folder.node_key.name
    if not path.exists():
        keys.write_private(path, keys.node_private(keys.new_node_key()))
    return keys.read_node_key(path)


def pending_identity(folder: ServerFolder | PartyFolder) -> bytes | None:
    """The public part of the identity that waits to be used; None if there is none."""
    path = folder.pending / folder.identity.name
    return keys.identity_public(keys.read_identity(path)) if path.exists() else None


def install(folder: ServerFolder | PartyFolder, identity: bytes, place: Path) -> bool:
    """Take the pending keys into use, if the roster has this identity; again after a crash.

    The identity comes last: as long as it waits, what else waits belongs to it.

    Args:
        folder: The member's.
        identity: Its public identity, as the roster has it.
        place: Where its private identity is kept.

    Returns:
        Whether there were any.
    """
    if pending_identity(folder) != identity:
        return False
    if isinstance(folder, PartyFolder):
        node = folder.pending / folder.node_key.name
        if node.exists():
            public = keys.node_public(keys.read_node_key(node))
            _move(node, folder.node_key)
            replace_file(folder.node_public, f"{public}\n")
    replace_file(folder.identity_public, f"{b64encode(identity).decode()}\n")
    _move(folder.pending / folder.identity.name, place)
    return True


def _move(source: Path, target: Path) -> None:
    source.replace(target)
    synchronise(target.parent)
