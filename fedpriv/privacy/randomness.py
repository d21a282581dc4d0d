"""The one source of randomness of the privacy core: an AES-256-CTR keystream.

There are three ways to open a stream, never mixed. `RandomStream.from_os` takes its key from the
operating system and is what a real release uses. `RandomStream.from_secret` derives the key from a
secret that the operating system drew earlier, for a release that must come out the same if it is
computed again. `RandomStream.seeded` derives the key from a seed, so that a simulation can be
repeated; whoever knows the seed can subtract the noise, so it protects nothing. All have the same
interface, and `secure` is false for the last one only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy.special import ndtri

from fedpriv._validate import require_count

if TYPE_CHECKING:
    import builtins

    from numpy.typing import NDArray

_KEY_BYTES = 32
SECRET_BYTES = 32
# One entry for every fork that led to this process: a child can have its parent's process number,
# in its own process namespace or after the parent's end.
_FORKS: list[None] = []
os.register_at_fork(after_in_child=lambda: _FORKS.append(None))
_ZEROS = memoryview(bytes(1 << 17))  # encrypted a block at a time: it stays in the cache


class RandomStream:
    """A cryptographically strong, non-repeating stream of random numbers.

    Guarantee. Under the assumption that AES-256 is a pseudo-random permutation, n blocks of 16
    bytes are within n²/2^129 of uniform for any bounded observer: 2^-65 after 64 GiB.

    A stream cannot be copied or pickled, because a copy would repeat its output, and noise that
    is used twice cancels. For the same reason a fork re-keys a stream of the operating system, and
    a repeatable stream refuses to continue after one. Not covered: a snapshot of the whole machine,
    or other code reading this process's memory. Give each thread its own stream.
    """

    __slots__ = ("_keystream", "_process", "_repeatable", "_secure")

    def __init__(
        self, key: builtins.bytes, *, secure: bool, repeatable: bool | None = None
    ) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"key must have {_KEY_BYTES} bytes, got {len(key)}.")
        self._secure = secure
        self._repeatable = not secure if repeatable is None else repeatable
        self._start(key)

    @classmethod
    def from_os(cls) -> RandomStream:
        """A fresh stream, keyed by the operating system: for every real release."""
        return cls(os.urandom(_KEY_BYTES), secure=True)

    @classmethod
    def from_secret(cls, secret: builtins.bytes, *labels: str | int) -> RandomStream:
        """The stream of a secret that the operating system drew, the same whenever it is opened.

        For a release that must have only one draw of noise whatever happens: the secret is stored
        before anything is computed, and erased when the release is stored. As strong as
        `from_os` while nobody else has the secret. The key is HKDF-SHA256 of it, with the labels as
        its context: different labels give independent streams.

        Args:
            secret: 32 bytes of `os.urandom`, used for one release and nothing else.
            labels: What the stream is for.
        """
        if type(secret) is not bytes or len(secret) != SECRET_BYTES:
            raise ValueError(f"secret must be {SECRET_BYTES} bytes of the operating system.")
        if secret == bytes(SECRET_BYTES):
            raise ValueError("secret must not be all zeros: it was erased, or never drawn.")
        return cls(_derived(secret, b"fedpriv secret stream", labels), secure=True, repeatable=True)

    @classmethod
    def seeded(cls, seed: int, *labels: str | int) -> RandomStream:
        """A repeatable stream for simulation; different labels give independent streams.

        The key is HKDF-SHA256 of the seed, with the labels as its context.

        >>> first = RandomStream.seeded(7, "noise", 1).words(2)
        >>> bool((first == RandomStream.seeded(7, "noise", 1).words(2)).all())
        True
        >>> bool((first == RandomStream.seeded(7, "noise", 2).words(2)).any())
        False
        """
        return cls(_derived(_encode(seed), b"fedpriv seeded stream", labels), secure=False)

    @property
    def secure(self) -> bool:
        """Whether the operating system drew the key: only then does noise protect."""
        return self._secure

    @property
    def repeatable(self) -> bool:
        """Whether the same stream can be opened again: from a seed, or from a stored secret."""
        return self._repeatable

    def bytes(self, count: int) -> builtins.bytes:
        """``count`` random bytes."""
        return self._fill(np.empty(_size(count), dtype=np.uint8)).tobytes()

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit integers."""
        words = np.empty(_size(count), dtype=np.uint64)
        self._fill(words.view(np.uint8))
        return words

    def uniform(self, count: int) -> NDArray[np.float64]:
        """``count`` numbers uniform on the midpoints of 2^52 equal cells of (0, 1).

        52 bits, because a midpoint then needs 53 and is exact: with 53 bits the last one would
        round to 1. Zero and one never occur.
        """
        cells = (self.words(count) >> np.uint64(12)).astype(np.float64)
        return (cells + 0.5) * 2.0**-52

    def exponential(self, count: int) -> NDArray[np.float64]:
        """``count`` standard exponentials, -ln of `uniform`: at most 53·ln 2 = 36.7."""
        return -np.log(self.uniform(count))

    def normal(self, count: int) -> NDArray[np.float64]:
        """``count`` standard normals, Φ⁻¹ of `uniform`: within ±8.3.

        For directions and simulation. Noise on a sum comes from `fedpriv.privacy.samplers`, whose
        tails are exact.
        """
        normals: NDArray[np.float64] = ndtri(self.uniform(count))
        return normals

    def integers(self, below: int, count: int) -> NDArray[np.int64]:
        """``count`` integers uniform on 0 … below - 1, without bias, by rejection."""
        if below != 2**63:  # one more than the largest count
            require_count(below=below)
        size = _size(count)
        highest = 2**64 - 2**64 % below - 1
        kept = np.empty(0, dtype=np.uint64)
        while kept.size < size:
            words = self.words(size - kept.size)
            kept = np.concatenate([kept, words[words <= np.uint64(highest)]])
        return (kept % np.uint64(below)).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A uniform ordering of 0 … count - 1: the order of random keys, redrawn if two tie."""
        while True:
            keys = self.words(count)
            order = np.argsort(keys)
            ranked = keys[order]
            if not (ranked[1:] == ranked[:-1]).any():
                return order.astype(np.int64)

    def _start(self, key: builtins.bytes) -> None:
        # The nonce may be constant: a key is used for one stream only.
        self._keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._process = _this_process()

    def _fill(self, buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if _this_process() != self._process:
            self._leave_parent()
        view = buffer.data
        for start in range(0, len(view), len(_ZEROS)):
            block = view[start : start + len(_ZEROS)]
            self._keystream.update_into(_ZEROS[: len(block)], block)
        return buffer

    def _leave_parent(self) -> None:
        if self._repeatable:
            raise RuntimeError(
                "A seeded stream must not cross a fork: parent and child would draw the same "
                "noise. Open RandomStream.seeded(seed, ..., worker) in the child instead."
            )
        self._start(os.urandom(_KEY_BYTES))

    def __repr__(self) -> str:
        return f"RandomStream(secure={self._secure})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "A RandomStream cannot be copied or pickled: the copy would repeat its noise. "
            "Open another stream where it is needed."
        )


def _this_process() -> tuple[int, int]:
    return len(_FORKS), os.getpid()


def _size(count: object) -> int:
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
        raise ValueError(f"count must be an integer of at least 0, got {count!r}.")
    return int(count)


def _derived(secret: bytes, purpose: bytes, labels: tuple[str | int, ...]) -> bytes:
    context = purpose + b"".join(_encode(label) for label in labels)
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=context).derive(secret)


def _encode(label: object) -> bytes:
    """One label, encoded so that no two lists of labels collide: kind, length, content."""
    if isinstance(label, str):
        kind, content = b"s", label.encode()
    elif isinstance(label, int) and not isinstance(label, bool):
        kind, content = b"i", label.to_bytes(label.bit_length() // 8 + 1, "big", signed=True)
    else:
        raise TypeError(f"a seed is an int and a label a str or int, got {label!r}.")
    return kind + len(content).to_bytes(8, "big") + content
