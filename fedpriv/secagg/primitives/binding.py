"""Context binding: every byte string that is signed, authenticated, committed to, or in a key.

Each starts with its purpose and the digest of the round, which covers run, round, cohort, roster
and parameters; then come the parties, sender before receiver. Nothing made for one purpose, run,
round, pair or direction is accepted for another.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.secagg.primitives.keys import derive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.secagg.round import Round


def advertisement(announced: Round, party: int, keys: bytes) -> bytes:
    """What a party signs at step 0: its channel key and its mask key."""
    return _label("advertise", announced, party) + keys


def consent(announced: Round, party: int, survivors: Iterable[int]) -> bytes:
    """What a party signs at step 3: a set of survivors, in increasing order."""
    listed = np.asarray(sorted(survivors), dtype=">u2").tobytes()
    return _label("survivors", announced, party) + sha256(listed).digest()


def channel(announced: Round, sender: int, receiver: int) -> bytes:
    """What a sealed share authenticates, and names its key."""
    return _label("channel", announced, sender, receiver)


def commitment(announced: Round, party: int, seed: bytes) -> bytes:
    """SHA-256 of a self-mask seed: binding, and hiding because the seed has 256 random bits."""
    return sha256(_label("commitment", announced, party) + seed).digest()


def self_mask(announced: Round, party: int, seed: bytes) -> bytes:
    """The key of a party's self-mask."""
    return derive(seed, _label("self-mask", announced, party))


def question(about: bytes) -> bytes:
    """SHA-256 of the query that a party answers."""
    return sha256(about).digest()


def pair_mask(announced: Round, one: int, other: int, secret: bytes, question: bytes) -> bytes:
    """The key of the mask that two parties share, from the secret that their mask keys agree on.

    The party with the smaller number adds the mask, the other one subtracts it. ``question`` is the
    `question` that each received: if they differ, the masks do not cancel, and the sum stays
    masked.
    """
    label = _label("pair-mask", announced, min(one, other), max(one, other))
    return derive(secret, label + question)


def _label(purpose: str, announced: Round, *parties: int) -> bytes:
    ends = b"".join(party.to_bytes(2, "big") for party in parties)
    return b"fedpriv/secagg/1/" + purpose.encode() + b"\0" + announced.context + ends
