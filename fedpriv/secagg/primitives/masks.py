"""Masks: the keystream of AES-256-CTR, added to ring vectors in place.

Every key is used for one mask in one round (`fedpriv.secagg.primitives.keys.derive` binds it to
both), so the counter may start at zero. Under the assumption that AES-256 is a pseudo-random
permutation, a mask of n blocks of 16 bytes is within n²/2^129 of uniform for any bounded observer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.ciphers import CipherContext

    from fedpriv.secagg.numbers.fixed_point import Ring

KEY_BYTES = 32
_BLOCK = 1 << 17  # bytes: a block of keystream and its part of the vector share the cache
_ZEROS = memoryview(bytes(_BLOCK))
_GROUP = 256  # ciphers open at a time, whatever the number of masks


def apply_masks(vector: Ring, *, add: Iterable[bytes] = (), subtract: Iterable[bytes] = ()) -> None:
    """Add, and subtract, the masks of these keys to ``vector``, in place, modulo 2^32 or 2^64.

    ``vector`` must be one-dimensional, contiguous, and little-endian unsigned. Its blocks are the
    outer loop: they are read from memory once per group of keys, not once per key.
    """
    signed = [(key, np.add) for key in add] + [(key, np.subtract) for key in subtract]
    keystream = np.empty(_BLOCK, dtype=np.uint8)
    words = keystream.view(vector.dtype)
    per_block = words.size
    for first in range(0, len(signed), _GROUP):
        group = [(_cipher(key), apply) for key, apply in signed[first : first + _GROUP]]
        for start in range(0, vector.size, per_block):
            part = vector[start : start + per_block]
            source, sink = _ZEROS[: part.nbytes], keystream.data[: part.nbytes]
            mask = words[: part.size]
            for cipher, apply in group:
                cipher.update_into(source, sink)
                apply(part, mask, out=part)


def _cipher(key: bytes) -> CipherContext:
    if len(key) != KEY_BYTES:
        raise ValueError(f"key must have {KEY_BYTES} bytes, got {len(key)}.")
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
