"""A party's rules, which hold whatever the server sends. Each rule raises or does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fedpriv.secagg.errors import BadKey, BadList, OutOfOrder, TooFewParties, WrongRound
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.keys import KEY_BYTES
from fedpriv.secagg.round import Bound

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from fedpriv.secagg.messages import Confirmations, Delivery, Survivors
    from fedpriv.secagg.party_state import Answered, Confirmed, PartyState, Shared
    from fedpriv.secagg.primitives.public_keys import PublicKeys
    from fedpriv.secagg.round import Round

Kind = TypeVar("Kind", bound=Bound)


def expect(value: Bound, kind: type[Kind], announced: Round, party: int) -> Kind:
    """The message or state, if it is of this kind, this round and this party."""
    if not isinstance(value, kind):
        raise OutOfOrder(f"{kind.__name__} is expected now, got {type(value).__name__}.")
    announced.require_here(value, party=party)
    return value


def require_new(announced: Round, party: int, last: PartyState) -> None:
    """A round is joined once, and rounds only go forward: earlier mask keys may be revealed."""
    if (last.run, last.party) != (announced.run, party):
        raise WrongRound("The last state is of another run or party.")
    if announced.number <= last.round:
        raise WrongRound(f"Round {announced.number} is not after round {last.round}.")


def require_keys(
    announced: Round,
    party: int,
    own: bytes,
    listed: Mapping[int, bytes],
    public_keys: PublicKeys,
) -> None:
    """Keys come from the announced cohort, signed for this round, and no key occurs twice."""
    if party in listed or not set(listed) <= set(announced.cohort):
        raise BadList("The list of keys has a stranger in it, or its receiver.")
    for peer, signed in listed.items():
        keys, signature = signed[: 2 * KEY_BYTES], signed[2 * KEY_BYTES :]
        content = binding.advertisement(announced, peer, keys)
        public_keys.require_signature(announced.roster[peer], signature, content, signer=peer)
    everyone = [own, *listed.values()]
    seen = {keys[start : start + KEY_BYTES] for keys in everyone for start in (0, KEY_BYTES)}
    if len(seen) != 2 * len(everyone):
        raise BadKey("A public key occurs twice.")


def require_delivery(announced: Round, state: Shared, inbox: Delivery) -> None:
    """Sharers are in the cohort and include this party; ciphertexts come from known sharers."""
    sharers = set(inbox.sharers)
    if state.party not in sharers or not sharers <= set(announced.cohort):
        raise BadList("The list of sharers leaves its receiver out, or has a stranger in it.")
    if not sharers & set(state.holders) <= {*state.links, state.party}:
        raise BadList("A holder has shared although its keys were not listed.")
    if not set(inbox.ciphertexts) <= sharers & set(state.links):
        raise BadList("A ciphertext is from a party that is unknown or has not shared.")
    require_enough(announced, state.holders, sharers)


def require_survivors(announced: Round, state: Answered, inbox: Survivors) -> None:
    """Survivors have shared, include this party, and are enough."""
    survivors = set(inbox.survivors)
    if state.party not in survivors or not survivors <= set(state.sharers):
        raise BadList("The list of survivors leaves its receiver out, or has a stranger in it.")
    require_enough(announced, state.holders, survivors)


def require_consent(
    announced: Round, state: Confirmed, inbox: Confirmations, public_keys: PublicKeys
) -> None:
    """At least ``threshold`` holders signed this party's set; all signatures verify."""
    signers = set(inbox.signatures)
    if not signers <= set(state.holders) & set(state.survivors):
        raise BadList("A signature is from a party that is no holder or has not survived.")
    for signer, signature in inbox.signatures.items():
        content = binding.consent(announced, signer, state.survivors)
        public_keys.require_signature(announced.roster[signer], signature, content, signer=signer)
    require_threshold(announced, signers)


def require_enough(announced: Round, holders: tuple[int, ...], present: AbstractSet[int]) -> None:
    """The agreed minimum of parties, and ``threshold`` of one's own holders."""
    if len(present) < announced.parameters.minimum:
        raise TooFewParties(
            f"{len(present)} parties remain of the {announced.parameters.minimum} required."
        )
    require_threshold(announced, present & set(holders))


def require_threshold(announced: Round, holders: AbstractSet[int]) -> None:
    """Enough holders to open a secret."""
    if len(holders) < announced.parameters.threshold:
        raise TooFewParties(
            f"{len(holders)} holders remain of the {announced.parameters.threshold} required."
        )
