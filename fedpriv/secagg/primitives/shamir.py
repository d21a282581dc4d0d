"""Shamir's secret sharing over GF(65537), all shares of all secrets in one matrix product.

A 32-byte secret is 16 limbs of 16 bits; each is the constant term of its own polynomial of degree
t - 1, and the holder with point x gets its value there. Any t shares determine the secret; t - 1
are uniform whatever the secret is. Entries are below 2^17 and a product of matrices sums at most
2^16 of them, below 2^51, so that float64 products are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Entropy = Callable[[int], bytes]
    """A source of random bytes such as `os.urandom`."""

PRIME = 65_537
LIMBS = 16
SHARE_BYTES = 2 * LIMBS + LIMBS // 8
"""16 low bits per limb, and one bit each for the value 65536, which needs a seventeenth."""


def limbs(secrets: bytes) -> NDArray[np.int64]:
    """Secrets as elements of the field, 16 for every 32 bytes."""
    return np.frombuffer(secrets, dtype="<u2").astype(np.int64)


def points(holders: Sequence[int]) -> NDArray[np.int64]:
    """The holders' points: party 0 is at 1, since a share at 0 would be the secret."""
    return np.array(holders, dtype=np.int64) + 1


def split(
    secrets: NDArray[np.int64], points: NDArray[np.int64], threshold: int, entropy: Entropy
) -> NDArray[np.int64]:
    """The share of every secret for every holder.

    Args:
        secrets: Field elements, of shape (s,): the limbs of any number of secrets.
        points: The holders' points, of shape (h,): distinct and non-zero modulo `PRIME`.
        threshold: How many shares determine a secret.
        entropy: The source of the polynomials' coefficients.

    Returns:
        Field elements of shape (h, s).
    """
    count = (threshold - 1) * secrets.size
    coefficients = _uniform(count, entropy).reshape(threshold - 1, secrets.size)
    powers = np.empty((points.size, threshold), dtype=np.int64)
    powers[:, 0] = 1
    for degree in range(1, threshold):
        powers[:, degree] = powers[:, degree - 1] * points % PRIME
    return _product(powers, np.concatenate([secrets[np.newaxis], coefficients]))


def weights(points: NDArray[np.int64], at: NDArray[np.int64] | int = 0) -> NDArray[np.int64]:
    """Lagrange weights: Σ_j weights[…, j]·f(points[…, j]) = f(at) for polynomials of degree < t.

    Batched over the leading axes of ``points``, of shape (…, t), and of ``at``, of shape (…, 1),
    which must not be among the points.
    """
    denominators = np.ones_like(points)
    for j in range(points.shape[-1]):
        difference = (points - points[..., j : j + 1]) % PRIME
        difference[..., j] = 1
        denominators = denominators * difference % PRIME
    gaps = (at - points) % PRIME
    product = np.ones_like(points[..., :1])
    for j in range(points.shape[-1]):
        product = product * gaps[..., j : j + 1] % PRIME
    return product * inverse(gaps * denominators % PRIME) % PRIME


def combine(weights: NDArray[np.int64], shares: NDArray[np.int64]) -> NDArray[np.int64]:
    """The polynomials' values at the point of ``weights`` (…, t), from shares (…, t, s)."""
    return _product(weights[..., np.newaxis, :], shares)[..., 0, :]


def secret_bytes(values: NDArray[np.int64]) -> bytes | None:
    """The 32 bytes that 16 field elements encode; None if they encode no secret."""
    return None if (values >= 1 << 16).any() else values.astype("<u2").tobytes()


def pack(shares: NDArray[np.int64]) -> list[bytes]:
    """Shares of shape (h, 16) as `SHARE_BYTES` bytes each."""
    low = (shares & 0xFFFF).astype("<u2").view(np.uint8)
    high = np.packbits((shares >> 16).astype(np.uint8), axis=-1)
    return [row.tobytes() for row in np.concatenate([low, high], axis=-1)]


def unpack(packed: list[bytes]) -> NDArray[np.int64]:
    """Invert `pack`. Values up to 2^17 - 1 can be written: `in_field` tells which are shares."""
    rows = np.frombuffer(b"".join(packed), dtype=np.uint8).reshape(-1, SHARE_BYTES)
    low = np.ascontiguousarray(rows[:, : 2 * LIMBS]).view("<u2").astype(np.int64)
    return low + (np.unpackbits(rows[:, 2 * LIMBS :], axis=-1).astype(np.int64) << 16)


def in_field(shares: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows of ``shares`` consist of field elements only."""
    return np.asarray((shares < PRIME).all(axis=-1))


def _product(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    exact: NDArray[np.float64] = np.matmul(left.astype(np.float64), right.astype(np.float64))
    return exact.astype(np.int64) % PRIME


def inverse(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """1/v, element by element: v^(p - 2) = v^(2^16 - 1) = Π_i v^(2^i), i < 16."""
    result, square = np.ones_like(values), values
    for _ in range(16):
        result = result * square % PRIME
        square = square * square % PRIME
    return result


def _uniform(count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Uniform field elements. 2^32 - 1 = 65535·PRIME: only the largest 32-bit word is biased."""
    kept = np.empty(0, dtype=np.int64)
    while kept.size < count:
        words = np.frombuffer(entropy(4 * (count - kept.size)), dtype="<u4").astype(np.int64)
        kept = np.concatenate([kept, words[words != 0xFFFF_FFFF] % PRIME])
    return kept
