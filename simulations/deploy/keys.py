"""Private keys on the disk, and who may read them.

A private key is made where it stays, is readable by its owner alone, and is never printed.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from fedpriv._durable import create_file, synchronise

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
_SECRET_BYTES = 32


def private_folder(path: Path) -> Path:
    """Make a directory that only its owner may enter."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(PRIVATE_FOLDER)
    return path


def write_private(path: Path, data: bytes, *, force: bool = False) -> None:
    """Write a secret file that at no moment anyone but its owner may read.

    Raises:
        ValueError: The file is there and ``force`` is not given.
    """
    if force:
        path.unlink(missing_ok=True)
    try:
        create_file(path, data, mode=PRIVATE_FILE)
    except FileExistsError:
        raise ValueError(
            f"{str(path)!r} exists: a key is replaced with --force only, and the old one is gone."
        ) from None
    synchronise(path.parent)


def too_open(path: Path) -> str | None:
    """What is wrong with the permissions of a secret file or its directory; None if nothing is."""
    for place, allowed in ((path, PRIVATE_FILE), (path.parent, PRIVATE_FOLDER)):
        mode = stat.S_IMODE(place.stat().st_mode)
        if mode & ~allowed:
            return f"{str(place)!r} has mode {mode:04o}: chmod {allowed:o} {place}"
    return None


def new_secret() -> bytes:
    """Random bytes that two processes of one machine share."""
    return os.urandom(_SECRET_BYTES)


def new_node_key() -> EllipticCurvePrivateKey:
    """A key by which the SuperLink knows a node."""
    return generate_private_key(SECP384R1())


def node_private(key: EllipticCurvePrivateKey) -> bytes:
    """A private node key in OpenSSH format, which Flower reads."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def node_public(key: EllipticCurvePrivateKey) -> str:
    """A public node key as one OpenSSH line."""
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def read_node_key(path: Path) -> EllipticCurvePrivateKey:
    """Read a node key.

    Raises:
        ValueError: It is not an EC key in OpenSSH format.
    """
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ValueError(f"{str(path)!r} is not a private key in OpenSSH format.") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{str(path)!r} must be an EC key: Flower accepts no other.")
    return key


def identity_private(key: Ed25519PrivateKey) -> bytes:
    """A private identity in PEM, PKCS 8."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def identity_public(key: Ed25519PrivateKey) -> bytes:
    """A public identity: the 32 bytes that a roster pins."""
    return key.public_key().public_bytes_raw()


def read_identity(path: Path) -> Ed25519PrivateKey:
    """Read an identity.

    Raises:
        ValueError: It is not an Ed25519 key in PEM.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError):
        raise ValueError(f"{str(path)!r} is not a private key in PEM without password.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{str(path)!r} must be an Ed25519 key.")
    return key
