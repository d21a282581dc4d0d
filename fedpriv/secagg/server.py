"""The server's side of the protocol: pure steps, ``(state, inbox) -> (state, outboxes)``.

An inbox is any iterable of messages and is read once: a generator may yield them as they arrive and
stop at a time limit. A party without an acceptable message by then has dropped out. Other messages
are recorded as a `Rejection`; the round goes on while enough parties remain. The transport must
ensure that a message comes from the party it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.secagg import screening
from fedpriv.secagg.errors import OutOfOrder, TooFewParties
from fedpriv.secagg.graph import owners_of, partners
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
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.keys import KEY_BYTES, agree, public_key
from fedpriv.secagg.primitives.masks import apply_masks
from fedpriv.secagg.recovery import Puzzle, recover
from fedpriv.secagg.screening import Screen
from fedpriv.secagg.server_state import (
    AnswersCollected,
    ConsentCollected,
    KeysCollected,
    SharesCollected,
    Total,
)
from fedpriv.secagg.thresholds import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from fedpriv.secagg.messages import Message
    from fedpriv.secagg.numbers.fixed_point import Ring
    from fedpriv.secagg.round import Round

_State = TypeVar("_State")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server in one round.

    Attributes:
        announced: The round. The parties build their own, from what they trust themselves.
    """

    announced: Round

    def collect_keys(
        self, inbox: Iterable[Message], *, known: Mapping[bytes, int] | None = None
    ) -> tuple[KeysCollected, dict[int, KeyList]]:
        """Step 0: gather signed keys; send every party those of its partners.

        ``known`` maps keys of earlier rounds to their owners. Advertising a key does not prove its
        possession: without ``known``, the first of two parties that advertise the same key would
        shut the other out.
        """
        screen = Screen(announced=self.announced, expected=set(self.announced.cohort))
        keys: dict[int, bytes] = {}
        holders: dict[int, frozenset[int]] = {}
        owners = dict(known or {})

        def check(message: Advertise) -> None:
            screening.check_advertisement(self.announced, message, owners)

        for message in screen.accepted(inbox, Advertise, check):
            keys[message.party] = message.keys
            holders[message.party] = frozenset(message.holders)
            for start in (0, KEY_BYTES):
                owners[message.keys[start : start + KEY_BYTES]] = message.party
        self._require_minimum(keys)
        outboxes = {
            party: KeyList(**self._to(party), keys={peer: keys[peer] for peer in peers})
            for party, peers in partners(holders, keys.keys()).items()
        }
        return KeysCollected(keys=keys, holders=holders, rejected=tuple(screen.rejected)), outboxes

    def collect_shares(
        self, state: KeysCollected, inbox: Iterable[Message]
    ) -> tuple[SharesCollected, dict[int, Delivery]]:
        """Step 1: gather sealed shares; send them to their holders, with the list of sharers."""
        state = _expect(state, KeysCollected)
        screen = Screen(announced=self.announced, expected=state.keys.keys())

        def check(message: Share) -> None:
            screening.check_share(message, state.holders[message.party] & state.keys.keys())

        sent = {message.party: message for message in screen.accepted(inbox, Share, check)}
        self._require_minimum(sent)
        addressed: dict[int, dict[int, bytes]] = {party: {} for party in sent}
        for sender, message in sent.items():
            for holder in message.ciphertexts.keys() & sent.keys():
                addressed[holder][sender] = message.salt + message.ciphertexts[holder]
        sharers = tuple(sorted(sent))
        after = SharesCollected(
            keys={party: state.keys[party] for party in sharers},
            holders={party: state.holders[party] for party in sharers},
            commitments={party: message.commitment for party, message in sent.items()},
            rejected=state.rejected + tuple(screen.rejected),
        )
        return after, {
            party: Delivery(**self._to(party), sharers=sharers, ciphertexts=ciphertexts)
            for party, ciphertexts in addressed.items()
        }

    def collect_answers(
        self,
        state: SharesCollected,
        inbox: Iterable[Message],
        *,
        dimension: int,
        bits: int,
        about: bytes = b"",
    ) -> tuple[AnswersCollected, dict[int, Survivors]]:
        """Step 2: add up masked answers as they arrive; send the survivors their list.

        ``about`` is the query to all parties: see `Party.answer`.
        """
        state = _expect(state, SharesCollected)
        screen = Screen(announced=self.announced, expected=state.keys.keys())
        masked = np.zeros(dimension, dtype=f"<u{bits // 8}")

        def check(message: MaskedAnswer) -> None:
            screening.check_answer(message, dimension, masked.dtype)

        survivors = set()
        for message in screen.accepted(inbox, MaskedAnswer, check):
            masked += message.vector
            survivors.add(message.party)
        self._require_minimum(survivors)
        after = AnswersCollected(
            shares=state,
            survivors=frozenset(survivors),
            masked=masked,
            about=about,
            rejected=state.rejected + tuple(screen.rejected),
        )
        listed = tuple(sorted(survivors))
        return after, {party: Survivors(**self._to(party), survivors=listed) for party in listed}

    def collect_consent(
        self, state: AnswersCollected, inbox: Iterable[Message]
    ) -> tuple[ConsentCollected, dict[int, Confirmations]]:
        """Step 3, active mode: gather signatures; send every signer those of its holders."""
        state = _expect(state, AnswersCollected)
        screen = Screen(announced=self.announced, expected=state.survivors)

        def check(message: Confirm) -> None:
            screening.check_consent(self.announced, message, state.survivors)

        signatures = {
            message.party: message.signature for message in screen.accepted(inbox, Confirm, check)
        }
        after = ConsentCollected(
            answers=state,
            confirmed=frozenset(signatures),
            rejected=state.rejected + tuple(screen.rejected),
        )
        return after, {
            party: Confirmations(
                **self._to(party),
                signatures={
                    holder: signatures[holder]
                    for holder in state.shares.holders[party] & signatures.keys()
                },
            )
            for party in signatures
        }

    def finish(self, state: AnswersCollected | ConsentCollected, inbox: Iterable[Message]) -> Total:
        """Step 4: open the seeds of survivors and the mask keys of the others; remove all masks.

        From `AnswersCollected`; in active mode from `ConsentCollected`.

        Raises:
            TooFewParties: If a secret cannot be opened. Nothing but masked sums is known then.
                `WronglyShared` names the party that shared it, if its holders replied.
        """
        if self.announced.parameters.mode is Mode.ACTIVE:
            consent = _expect(state, ConsentCollected)
            answers, expected = consent.answers, consent.confirmed
        else:
            answers = _expect(state, AnswersCollected)
            expected = answers.survivors
        shares, survivors = answers.shares, answers.survivors
        screen = Screen(announced=self.announced, expected=expected)

        owners = owners_of(shares.holders)

        def check(message: Reveal) -> None:
            screening.check_reveal(message, owners[message.party], survivors)

        revealed: dict[int, dict[int, bytes]] = {owner: {} for owner in shares.keys}
        heard = set()
        for message in screen.accepted(inbox, Reveal, check):
            heard.add(message.party)
            for owner, share in (*message.seed_shares.items(), *message.key_shares.items()):
                revealed[owner][message.party] = share
        puzzles = [
            Puzzle(
                owner=owner,
                shares=parts,
                fits=self._recogniser(answers, owner),
                heard=len(heard & shares.holders[owner]),
            )
            for owner, parts in revealed.items()
        ]
        parameters = self.announced.parameters
        secrets, wrong = recover(puzzles, parameters.threshold, colluders=parameters.colluders)
        return Total(
            vector=self._unmasked(answers, secrets),
            parties=tuple(sorted(survivors)),
            rejected=state.rejected + tuple(screen.rejected),
            wrong=wrong,
        )

    def _recogniser(self, answers: AnswersCollected, owner: int) -> Callable[[bytes], bool]:
        """Whether 32 bytes are the owner's seed, if it survived, or else its mask key."""
        if owner in answers.survivors:
            commitment = answers.shares.commitments[owner]
            return lambda seed: binding.commitment(self.announced, owner, seed) == commitment
        mask_key = _mask_key(answers.shares, owner)
        return lambda private: public_key(private) == mask_key

    def _unmasked(self, answers: AnswersCollected, secrets: Mapping[int, bytes]) -> Ring:
        """The masked sum without self-masks and without the masks shared with absent parties."""
        shares, survivors = answers.shares, answers.survivors
        add: list[bytes] = []
        subtract = [binding.self_mask(self.announced, party, secrets[party]) for party in survivors]
        linked = partners(shares.holders, shares.keys.keys())
        question = binding.question(answers.about)
        for gone in secrets.keys() - survivors:
            private = X25519PrivateKey.from_private_bytes(secrets[gone])
            for party in linked[gone] & survivors:
                secret = agree(private, _mask_key(shares, party))
                key = binding.pair_mask(self.announced, party, gone, secret, question)
                (subtract if party < gone else add).append(key)
        vector = answers.masked.copy()
        apply_masks(vector, add=add, subtract=subtract)
        return vector

    def _to(self, party: int) -> dict[str, Any]:
        return {"run": self.announced.run, "round": self.announced.number, "party": party}

    def _require_minimum(self, present: Collection[int]) -> None:
        minimum = self.announced.parameters.minimum
        if len(present) < minimum:
            raise TooFewParties(f"{len(present)} parties remain of the {minimum} required.")


def _mask_key(shares: SharesCollected, party: int) -> bytes:
    return shares.keys[party][KEY_BYTES : 2 * KEY_BYTES]


def _expect(state: object, kind: type[_State]) -> _State:
    if not isinstance(state, kind):
        raise OutOfOrder(f"{kind.__name__} is expected now, got {type(state).__name__}.")
    return state
