"""A fingerprint of a data set that reveals nothing about its records.

HMAC-SHA256 under a random salt that stays in the owner's ledger. Without the salt nobody can test a
guess about the records against the fingerprint, and two ledgers of the same data have unrelated
fingerprints.
"""

from __future__ import annotations

import hmac
import struct
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Part: TypeAlias = bytes | bytearray | memoryview | NDArray[Any]

SALT_BYTES = 32
_FIXED_SIZE_KINDS = "biufcSUmM"


def fingerprint(salt: bytes, *parts: Part) -> str:
    """The fingerprint of ``parts``, as hexadecimal digits.

    Args:
        salt: the ledger's secret.
        parts: the data set in a fixed order: bytes-like objects, or arrays, of which type, shape
            and content matter, and memory layout and byte order do not.
    """
    if not parts:
        raise ValueError("parts must hold the data set, got nothing.")
    digest = hmac.new(salt, b"fedpriv data 1\0", "sha256")
    for part in parts:
        header, content = _canonical(part)
        digest.update(struct.pack(">QQ", len(header), content.nbytes))
        digest.update(header)
        digest.update(content)
    return digest.hexdigest()


def _canonical(part: Part) -> tuple[bytes, memoryview]:
    """The kind of value, and its content as bytes."""
    if not isinstance(part, np.ndarray):
        return b"bytes", memoryview(part).cast("B")
    if part.dtype.kind not in _FIXED_SIZE_KINDS:
        raise ValueError(
            f"an array of a data set must have numbers, dates or fixed-size text, got dtype "
            f"{part.dtype}. Pass its columns one by one."
        )
    array = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
    header = f"array {array.dtype.str} {part.shape}".encode()
    return header, array.reshape(-1).view(np.uint8).data
