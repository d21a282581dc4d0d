"""Keys of simulated parties, derived from a seed: whoever knows it has all; none is kept secret.

A deployment pins identities that parties made themselves; see docs/secure-aggregation.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.federation.party.host import Keys
from fedpriv.privacy.randomness import RandomStream
from fedpriv.secagg.primitives.public_keys import PublicKeys

if TYPE_CHECKING:
    from collections.abc import Callable

_BYTES = 32


def simulated_roster(seed: int, parties: int) -> tuple[bytes, ...]:
    """The identity keys of all parties, the same wherever they are derived."""
    return tuple(
        Ed25519PrivateKey.from_private_bytes(_secret(seed, "identity", party))
        .public_key()
        .public_bytes_raw()
        for party in range(parties)
    )


def simulated_keys(
    seed: int, party: int, roster: tuple[bytes, ...], *, operations: PublicKeys | None = None
) -> Keys:
    """The keys of one party; parties of one process may share cached operations."""
    return Keys(
        identity=Ed25519PrivateKey.from_private_bytes(_secret(seed, "identity", party)),
        roster=roster,
        operations=operations or PublicKeys(),
    )


def simulated_sampling(
    stream: Callable[[int], RandomStream], sizes: tuple[int, ...], party: int
) -> Callable[[int], RandomStream]:
    """One party's part of the stream from which all parties' samples are drawn.

    `VectorizedFederation` draws one word per record, party by party. A single party skips the words
    of the parties before it, and so draws the same sample. ``sizes`` are the true numbers of
    records: two parties must never read the same word.
    """
    before = sum(sizes[:party])

    def sampling(round_: int) -> RandomStream:
        whole = stream(round_)
        whole.words(before)
        return whole

    return sampling


def simulated_coin(
    stream: Callable[[int], RandomStream], party: int
) -> Callable[[int], RandomStream]:
    """One party's part of the stream of all parties' coins, one word per party."""

    def coin(round_: int) -> RandomStream:
        whole = stream(round_)
        whole.words(party)
        return whole

    return coin


def _secret(seed: int, purpose: str, party: int) -> bytes:
    return RandomStream.seeded(seed, "simulated key", purpose, party).bytes(_BYTES)
