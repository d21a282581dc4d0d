"""Protocol messages between a party and the server: frozen, and checked when made.

`read` turns bytes into a message. ``party`` is the sender of a message to the server, or the
receiver of one from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedpriv.secagg.errors import MalformedMessage
from fedpriv.secagg.primitives.codec import Fixed, Ids, Layout, Table, Vector
from fedpriv.secagg.primitives.keys import KEY_BYTES, SALT_BYTES, SIGNATURE_BYTES, TAG_BYTES
from fedpriv.secagg.primitives.kinds import Kind
from fedpriv.secagg.primitives.shamir import SHARE_BYTES
from fedpriv.secagg.round import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedpriv.secagg.numbers.fixed_point import Ring

SIGNED_KEYS_BYTES = 2 * KEY_BYTES + SIGNATURE_BYTES
"""Channel key, mask key, and the signature on both."""
BOTH_SHARES_BYTES = 2 * SHARE_BYTES
"""A share of the self-mask seed and one of the mask key."""
CIPHERTEXT_BYTES = BOTH_SHARES_BYTES + TAG_BYTES


class Message(Bound):
    """A protocol message; ``party`` is its sender or receiver."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advertise(Message):
    """Step 0, party to server: signed public keys, and the holders of the party's shares."""

    kind: ClassVar[int] = Kind.ADVERTISE
    layout: ClassVar[Layout] = {
        "keys": Fixed(SIGNED_KEYS_BYTES),
        "holders": Ids(),
    }
    keys: bytes
    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyList(Message):
    """Step 1, server to party: the signed keys of its partners."""

    kind: ClassVar[int] = Kind.KEY_LIST
    layout: ClassVar[Layout] = {"keys": Table(SIGNED_KEYS_BYTES)}
    keys: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Share(Message):
    """Step 1, party to server: a commitment to the seed, and sealed shares for the holders."""

    kind: ClassVar[int] = Kind.SHARE
    layout: ClassVar[Layout] = {
        "commitment": Fixed(KEY_BYTES),
        "salt": Fixed(SALT_BYTES),
        "ciphertexts": Table(CIPHERTEXT_BYTES),
    }
    commitment: bytes
    salt: bytes
    ciphertexts: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Delivery(Message):
    """Step 2, server to party: the sharers, and the shares sealed for it, each after its salt."""

    kind: ClassVar[int] = Kind.DELIVERY
    layout: ClassVar[Layout] = {
        "sharers": Ids(),
        "ciphertexts": Table(SALT_BYTES + CIPHERTEXT_BYTES),
    }
    sharers: tuple[int, ...]
    ciphertexts: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class MaskedAnswer(Message):
    """Step 2, party to server: the answer under all its masks."""

    kind: ClassVar[int] = Kind.MASKED_ANSWER
    layout: ClassVar[Layout] = {"vector": Vector()}
    vector: Ring


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Survivors(Message):
    """Step 3, server to party: whose answers have arrived."""

    kind: ClassVar[int] = Kind.SURVIVORS
    layout: ClassVar[Layout] = {"survivors": Ids()}
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Confirm(Message):
    """Step 3, party to server, active mode: a signature on the set of survivors."""

    kind: ClassVar[int] = Kind.CONFIRM
    layout: ClassVar[Layout] = {"signature": Fixed(SIGNATURE_BYTES)}
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Confirmations(Message):
    """Step 4, server to party, active mode: the signatures of its holders on that set."""

    kind: ClassVar[int] = Kind.CONFIRMATIONS
    layout: ClassVar[Layout] = {"signatures": Table(SIGNATURE_BYTES)}
    signatures: Mapping[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Reveal(Message):
    """Step 4, party to server: one share for every peer, of the seed or of the mask key."""

    kind: ClassVar[int] = Kind.REVEAL
    layout: ClassVar[Layout] = {
        "seed_shares": Table(SHARE_BYTES),
        "key_shares": Table(SHARE_BYTES),
    }
    seed_shares: Mapping[int, bytes]
    key_shares: Mapping[int, bytes]


_KINDS: dict[int, type[Message]] = {
    message.kind: message
    for message in (
        Advertise,
        KeyList,
        Share,
        Delivery,
        MaskedAnswer,
        Survivors,
        Confirm,
        Confirmations,
        Reveal,
    )
}


def read(data: bytes) -> Message:
    """The message that ``data`` stands for, whatever its kind.

    Raises:
        MalformedMessage: If ``data`` is not exactly one message of this version.
    """
    kind = _KINDS.get(data[1]) if len(data) > 1 else None
    if kind is None:
        raise MalformedMessage("These bytes are no message of a known kind.")
    return kind.from_bytes(data)
