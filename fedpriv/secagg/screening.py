"""The server's screening of messages: invalid ones are rejected, and the round continues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from fedpriv.secagg.errors import (
    BadKey,
    BadList,
    MalformedMessage,
    OutOfOrder,
    SecureAggregationError,
)
from fedpriv.secagg.messages import Message
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.keys import KEY_BYTES, require_signature, require_sound
from fedpriv.secagg.server_state import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    import numpy as np

    from fedpriv.secagg.messages import Advertise, Confirm, MaskedAnswer, Reveal, Share
    from fedpriv.secagg.round import Round

Sent = TypeVar("Sent", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The screening of messages in one step.

    Attributes:
        announced: The round.
        expected: Who may still send something in this step.
        rejected: The messages rejected so far; grows.
    """

    announced: Round
    expected: AbstractSet[int]
    rejected: list[Rejection] = field(default_factory=list)

    def accepted(
        self, inbox: Iterable[Message], kind: type[Sent], check: Callable[[Sent], None]
    ) -> Iterator[Sent]:
        """The first message of each expected party that is of ``kind`` and passes ``check``."""
        seen: set[int] = set()
        for message in inbox:
            try:
                if not isinstance(message, kind):
                    raise OutOfOrder(f"{type(message).__name__} belongs to another step.")
                self.announced.require_here(message)
                if message.party not in self.expected:
                    raise OutOfOrder("The party dropped out in an earlier step.")
                if message.party in seen:
                    raise OutOfOrder("The party has already been heard in this step.")
                check(message)
            except SecureAggregationError as error:
                reason = f"{type(error).__name__}: {error}"
                self.rejected.append(Rejection(party=message.party, reason=reason))
            else:
                seen.add(message.party)
                yield message


def check_advertisement(announced: Round, message: Advertise, owners: Mapping[bytes, int]) -> None:
    """Signed by the pinned identity, with sound, unused keys and the holders of the round."""
    keys = message.keys[: 2 * KEY_BYTES]
    content = binding.advertisement(announced, message.party, keys)
    identity = announced.roster[message.party]
    require_signature(identity, message.keys[2 * KEY_BYTES :], content, signer=message.party)
    channel_key, mask_key = keys[:KEY_BYTES], keys[KEY_BYTES:]
    taken = any(owners.get(key, message.party) != message.party for key in (channel_key, mask_key))
    if channel_key == mask_key or taken:
        raise BadKey("A public key occurs twice.")
    require_sound(channel_key)
    require_sound(mask_key)
    others = set(announced.cohort) - {message.party}
    holders = set(message.holders)
    if announced.parameters.complete:
        agreed = message.holders == announced.cohort
    else:
        agreed = holders <= others and len(holders) == announced.parameters.holders
    if not agreed:
        raise BadList("The holders are not as many, or not those, that the round asks for.")


def check_share(message: Share, holders: AbstractSet[int]) -> None:
    """One ciphertext for every holder that advertised, except the sender."""
    if set(message.ciphertexts) != holders - {message.party}:
        raise BadList("The ciphertexts are not for exactly the holders that were listed.")


def check_answer(message: MaskedAnswer, dimension: int, dtype: np.dtype[np.generic]) -> None:
    """The answer has the length and the ring of the query."""
    if message.vector.shape != (dimension,) or message.vector.dtype != dtype:
        raise MalformedMessage(f"The answer must have {dimension} elements of type {dtype}.")


def check_consent(announced: Round, message: Confirm, survivors: AbstractSet[int]) -> None:
    """A signature on the one set of survivors."""
    content = binding.consent(announced, message.party, survivors)
    identity = announced.roster[message.party]
    require_signature(identity, message.signature, content, signer=message.party)


def check_reveal(message: Reveal, owners: AbstractSet[int], survivors: AbstractSet[int]) -> None:
    """Shares of survivors' seeds and of others' mask keys, all held by the sender."""
    seeds, keys = set(message.seed_shares), set(message.key_shares)
    if not (seeds <= owners & survivors and keys <= owners - survivors):
        raise BadList("A share is of the wrong kind, or of a party that chose other holders.")
