"""A party's side of the protocol: five pure steps, ``(state, inbox) -> (state, outbox)``.

Whatever the server sends, an honest party that moves from state to state

- releases for each peer a share of its seed *or* of its mask key, never both: the kind follows
  from the one set of survivors that it accepted, and after step 4 it has no share left;
- reveals nothing unless that set has the agreed minimum of answers, itself among them, and at least
  ``threshold`` of its own holders; in active mode, unless that many holders signed the same set;
- uses a mask key and a seed in one round only.

A refused step raises a `SecureAggregationError`, reveals nothing, and leaves the state as it was.

Never take a step twice from one state: two answers under the same masks reveal their difference.
Store the new state before the message leaves; to repeat a message, resend the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.secagg import rules
from fedpriv.secagg.errors import OutOfOrder
from fedpriv.secagg.graph import choose_holders
from fedpriv.secagg.messages import (
    Advertise,
    Confirm,
    Confirmations,
    Delivery,
    KeyList,
    MaskedAnswer,
    Reveal,
    Share,
    Survivors,
)
from fedpriv.secagg.party_state import Advertised, Answered, Confirmed, Revealed, Shared
from fedpriv.secagg.primitives import binding, shamir
from fedpriv.secagg.primitives.codec import Vector
from fedpriv.secagg.primitives.keys import (
    KEY_BYTES,
    SALT_BYTES,
    derive,
    public_key,
    seal,
    unseal,
)
from fedpriv.secagg.primitives.masks import apply_masks
from fedpriv.secagg.primitives.public_keys import PublicKeys
from fedpriv.secagg.primitives.shamir import LIMBS, SHARE_BYTES
from fedpriv.secagg.thresholds import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.party_state import PartyState
    from fedpriv.secagg.primitives.shamir import Entropy
    from fedpriv.secagg.round import Bound, Round
    from fedpriv.secagg.rules import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One party in one round.

    Attributes:
        number: The party's position in the roster.
        announced: The round, with the roster and the parameters that this party trusts.
        identity: The private Ed25519 key that the roster pins for this party.
        channel_key: A private X25519 key, which may live for a run.
        public_keys: Agrees on secrets and verifies signatures.
    """

    number: int
    announced: Round
    identity: Ed25519PrivateKey = field(repr=False)
    channel_key: X25519PrivateKey = field(repr=False)
    public_keys: PublicKeys = field(default_factory=PublicKeys, repr=False)

    def __post_init__(self) -> None:
        if self.number not in self.announced.cohort:
            raise ValueError(f"number must be in the cohort, got {self.number}.")
        if self.identity.public_key().public_bytes_raw() != self.announced.roster[self.number]:
            raise ValueError("identity must be the private key of the party's entry in the roster.")

    def advertise(self, last: PartyState, entropy: Entropy) -> tuple[Advertised, Advertise]:
        """Step 0: a fresh mask key, signed together with the channel key.

        Args:
            last: The latest state of the latest round that this party joined in this run, or
                `Enrolled`. No round is joined twice: its keys may already be revealed.
            entropy: A source of secret random bytes: `os.urandom`.
        """
        rules.require_new(self.announced, self.number, last)
        mask_key = entropy(KEY_BYTES)
        holders = choose_holders(self.announced, self.number, entropy)
        keys = self._public_keys(mask_key)
        signature = self.identity.sign(binding.advertisement(self.announced, self.number, keys))
        return (
            Advertised(**self._bound(), mask_key=mask_key, holders=holders),
            Advertise(**self._bound(), keys=keys + signature, holders=holders),
        )

    def share(self, state: Advertised, inbox: KeyList, entropy: Entropy) -> tuple[Shared, Share]:
        """Step 1: agree on secrets with all partners, and give the holders their shares."""
        state, inbox = self._expect(state, Advertised), self._expect(inbox, KeyList)
        own = self._public_keys(state.mask_key)
        rules.require_keys(self.announced, self.number, own, inbox.keys, self.public_keys)
        present = {*inbox.keys, self.number} & set(state.holders)
        rules.require_threshold(self.announced, present)
        mask_key = X25519PrivateKey.from_private_bytes(state.mask_key)
        agree = self.public_keys.agree
        links = {
            peer: agree(self.channel_key, keys[:KEY_BYTES])
            + agree(mask_key, keys[KEY_BYTES : 2 * KEY_BYTES])
            for peer, keys in inbox.keys.items()
        }
        seed, salt = entropy(KEY_BYTES), entropy(SALT_BYTES)
        shares = self._split(seed + state.mask_key, sorted(present), entropy)
        sealed = {}
        for holder in present - {self.number}:
            info = binding.channel(self.announced, self.number, holder)
            key = derive(links[holder][:KEY_BYTES], info, salt)
            sealed[holder] = seal(key, shares[holder], info)
        kept = {self.number: shares[self.number]} if self.number in present else {}
        commitment = binding.commitment(self.announced, self.number, seed)
        return (
            Shared(**self._bound(), holders=state.holders, seed=seed, links=links, held=kept),
            Share(**self._bound(), commitment=commitment, salt=salt, ciphertexts=sealed),
        )

    def answer(
        self, state: Shared, inbox: Delivery, answer: Ring, *, about: bytes = b""
    ) -> tuple[Answered, MaskedAnswer]:
        """Step 2: the answer, as ring elements, under its self-mask and all pairwise masks.

        A ciphertext that does not open is dropped; the only effect is one share fewer for its
        sender.

        Args:
            state: After step 1.
            inbox: From the server.
            answer: The ring elements.
            about: The query. Masks cancel only between parties that were asked the same query: a
                server that asks all others for nothing learns nothing about one party.
        """
        state, inbox = self._expect(state, Shared), self._expect(inbox, Delivery)
        rules.require_delivery(self.announced, state, inbox)
        masked = Vector().checked(answer).copy()
        question = binding.question(about)  # once: a query may be long
        pairs = {
            peer: binding.pair_mask(
                self.announced, self.number, peer, state.links[peer][KEY_BYTES:], question
            )
            for peer in state.links.keys() & set(inbox.sharers)
        }
        own = binding.self_mask(self.announced, self.number, state.seed)
        apply_masks(
            masked,
            add=[own, *(key for peer, key in pairs.items() if self.number < peer)],
            subtract=[key for peer, key in pairs.items() if self.number > peer],
        )
        held = {**state.held, **self._opened(state.links, inbox.ciphertexts)}
        return (
            Answered(**self._bound(), holders=state.holders, sharers=inbox.sharers, held=held),
            MaskedAnswer(**self._bound(), vector=masked),
        )

    def confirm(self, state: Answered, inbox: Survivors) -> tuple[Confirmed, Confirm]:
        """Step 3, active mode only: sign, once, the set of survivors."""
        if self.announced.parameters.mode is not Mode.ACTIVE:
            raise OutOfOrder("Survivors are confirmed in active mode only.")
        state, inbox = self._expect(state, Answered), self._expect(inbox, Survivors)
        rules.require_survivors(self.announced, state, inbox)
        content = binding.consent(self.announced, self.number, inbox.survivors)
        return (
            Confirmed(
                **self._bound(), holders=state.holders, survivors=inbox.survivors, held=state.held
            ),
            Confirm(**self._bound(), signature=self.identity.sign(content)),
        )

    def reveal(
        self, state: Answered | Confirmed, inbox: Survivors | Confirmations
    ) -> tuple[Revealed, Reveal]:
        """Step 4: one share for each peer, of its seed if it survived, else of its mask key.

        From `Answered` and `Survivors`; in active mode from `Confirmed` and `Confirmations`.
        """
        if self.announced.parameters.mode is Mode.ACTIVE:
            confirmed = self._expect(state, Confirmed)
            signed = self._expect(inbox, Confirmations)
            rules.require_consent(self.announced, confirmed, signed, self.public_keys)
            survivors = confirmed.survivors
        else:
            listed = self._expect(inbox, Survivors)
            rules.require_survivors(self.announced, self._expect(state, Answered), listed)
            survivors = listed.survivors
        alive = state.held.keys() & set(survivors)
        seeds = {peer: state.held[peer][:SHARE_BYTES] for peer in alive}
        keys = {peer: state.held[peer][SHARE_BYTES:] for peer in state.held.keys() - alive}
        return (
            Revealed(**self._bound()),
            Reveal(**self._bound(), seed_shares=seeds, key_shares=keys),
        )

    def _bound(self) -> dict[str, Any]:
        return {"run": self.announced.run, "round": self.announced.number, "party": self.number}

    def _expect(self, value: Bound, kind: type[Kind]) -> Kind:
        return rules.expect(value, kind, self.announced, self.number)

    def _public_keys(self, mask_key: bytes) -> bytes:
        return self.channel_key.public_key().public_bytes_raw() + public_key(mask_key)

    def _split(self, secrets: bytes, holders: list[int], entropy: Entropy) -> dict[int, bytes]:
        """Both secrets' shares, one after the other, for every holder."""
        shares = shamir.split(
            shamir.limbs(secrets),
            shamir.points(holders),
            self.announced.parameters.threshold,
            entropy,
        )
        seeds, keys = shamir.pack(shares[:, :LIMBS]), shamir.pack(shares[:, LIMBS:])
        return {holder: seeds[i] + keys[i] for i, holder in enumerate(holders)}

    def _opened(
        self, links: Mapping[int, bytes], ciphertexts: Mapping[int, bytes]
    ) -> dict[int, bytes]:
        """The shares that can be unsealed, by their senders."""
        opened = {}
        for sender, salted in ciphertexts.items():
            info = binding.channel(self.announced, sender, self.number)
            key = derive(links[sender][:KEY_BYTES], info, salted[:SALT_BYTES])
            if (shares := unseal(key, salted[SALT_BYTES:], info)) is not None:
                opened[sender] = shares
        return opened
