"""Public-key operations of a party: key agreement and the verification of signatures.

Nearly all of a party's processor time in a round goes into them. Parties that are simulated in one
process all verify the same signatures, and the two ends of a pair agree on the same secret: for
them `SharedPublicKeys` does each operation once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from fedpriv.secagg.primitives.keys import agree, require_signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_Key = TypeVar("_Key")

_MOST_RESULTS = 1 << 18  # some 80 MB


class PublicKeys:
    """The operations of one party, each computed on request."""

    def agree(self, private: X25519PrivateKey, public: bytes) -> bytes:
        """`fedpriv.secagg.primitives.keys.agree`."""
        return agree(private, public)

    def require_signature(
        self, identity: bytes, signature: bytes, content: bytes, *, signer: int
    ) -> None:
        """`fedpriv.secagg.primitives.keys.require_signature`."""
        require_signature(identity, signature, content, signer=signer)


class SharedPublicKeys(PublicKeys):
    """The operations of many simulated parties, each computed once for all of them.

    Results and refusals are the same as with `PublicKeys`. It holds secrets of all its parties, so
    it is for simulations only: see `LocalGrid`.
    """

    def __init__(self) -> None:
        self._secrets: OrderedDict[frozenset[bytes], bytes] = OrderedDict()
        self._verified: OrderedDict[tuple[bytes, bytes, bytes], bytes] = OrderedDict()

    def agree(self, private: X25519PrivateKey, public: bytes) -> bytes:
        """Of both ends of a pair: x·(y·G) = y·(x·G)."""
        pair = frozenset((private.public_key().public_bytes_raw(), public))
        return _once(self._secrets, pair, lambda: agree(private, public))

    def require_signature(
        self, identity: bytes, signature: bytes, content: bytes, *, signer: int
    ) -> None:
        """Of whoever verifies it."""

        def verified() -> bytes:
            require_signature(identity, signature, content, signer=signer)
            return b""

        _once(self._verified, (identity, signature, content), verified)


def _once(results: OrderedDict[_Key, bytes], key: _Key, compute: Callable[[], bytes]) -> bytes:
    """The cached result for ``key``, computed if missing; the oldest results are evicted."""
    if key not in results:
        results[key] = compute()
        if len(results) > _MOST_RESULTS:
            results.popitem(last=False)
    return results[key]
