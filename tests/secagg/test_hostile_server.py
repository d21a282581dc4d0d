"""A hostile server's keys, deliveries and order: a party refuses what could expose anybody."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.secagg import Mode, Parameters, Party
from fedpriv.secagg.errors import (
    BadKey,
    BadList,
    BadSignature,
    MalformedMessage,
    OutOfOrder,
    TooFewParties,
    WrongRound,
)
from fedpriv.secagg.messages import Delivery, KeyList, Reveal, Survivors
from fedpriv.secagg.party_state import Confirmed, Revealed
from fedpriv.secagg.primitives import binding
from fedpriv.secagg.primitives.keys import public_key
from tests.secagg.cohort import (
    BOTH,
    ME,
    Cohort,
    Dice,
    Play,
    play,
    random_answers,
    refused,
    small,
    survivor_step,
)


def signed(game: Play, peer: int, keys: bytes) -> bytes:
    """Keys with a valid signature of ``peer``: a corrupt party signs what it likes."""
    content = binding.advertisement(game.parties[peer].announced, peer, keys)
    return keys + game.parties[peer].identity.sign(content)


def with_key(game: Play, peer: int, keys: bytes) -> KeyList:
    box: KeyList = game.outboxes[ME]
    return replace(box, keys={**box.keys, peer: keys})


# ---- keys


def test_a_forged_signature_on_keys_is_refused() -> None:
    game = play().until("share")
    good = game.outboxes[ME].keys[2]
    for i in (0, 31, 32, 63, 64, 127):
        forged = good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :]
        refused(BadSignature, "party 2", game, "share", with_key(game, 2, forged))


def test_keys_signed_by_another_party_are_refused() -> None:
    game = play().until("share")
    swapped = with_key(game, 2, game.outboxes[ME].keys[3])
    refused(BadSignature, "party 2", game, "share", swapped)


@pytest.mark.parametrize(("number", "run"), [(2, b"r" * 32), (1, b"s" * 32)])
def test_keys_of_another_round_or_run_are_refused(number: int, run: bytes) -> None:
    game, old = play().until("share"), play(number=number, run=run).until("share")
    refused(BadSignature, "party 3", game, "share", with_key(game, 3, old.outboxes[ME].keys[3]))
    refused(WrongRound, "not of round 1 of this run", game, "share", old.outboxes[ME])


def test_one_key_of_two_parties_is_refused() -> None:
    game = play().until("share")
    theirs = game.outboxes[ME].keys[2]
    channel, mask = theirs[:32], theirs[32:64]
    own = game.parties[ME].channel_key.public_key().public_bytes_raw()
    fresh = public_key(Dice("fresh")(32))
    for keys in (channel + fresh, fresh + mask, mask + fresh, fresh + own, fresh + fresh):
        refused(BadKey, "twice", game, "share", with_key(game, 3, signed(game, 3, keys)))


@pytest.mark.parametrize("bad", [bytes(32), b"\1" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_a_key_of_low_order_is_refused_even_if_signed(bad: bytes) -> None:
    game = play().until("share")
    fresh = public_key(Dice("fresh")(32))
    for keys in (bad + fresh, fresh + bad):
        refused(BadKey, "low order", game, "share", with_key(game, 3, signed(game, 3, keys)))


def test_a_key_of_the_wrong_size_cannot_be_sent() -> None:
    game = play().until("share")
    with pytest.raises(MalformedMessage):
        with_key(game, 3, game.outboxes[ME].keys[3][:-1])


@BOTH
def test_keys_of_too_few_holders_are_refused(mode: Mode) -> None:
    game = play(mode).until("share")
    box = game.outboxes[ME]
    refused(
        TooFewParties,
        "2 holders remain of the 3",
        game,
        "share",
        replace(box, keys={0: box.keys[0]}),
    )
    enough = replace(box, keys={0: box.keys[0], 4: box.keys[4]})
    _, shares = game.parties[ME].share(game.states[ME], enough, Dice("share"))
    assert set(shares.ciphertexts) == {0, 4}


def test_a_stranger_or_oneself_among_the_keys_is_refused() -> None:
    game = play().until("share")
    some = game.outboxes[ME].keys[2]
    refused(BadList, "stranger", game, "share", with_key(game, 77, some))
    refused(BadList, "its receiver", game, "share", with_key(game, ME, game.outboxes[0].keys[ME]))


def test_in_a_sparse_graph_only_holders_of_ones_own_choice_count() -> None:
    """Other partners are listed, but only three of the six holders that the party drew itself."""
    parameters = Parameters(
        mode=Mode.SEMI_HONEST,
        roster=30,
        colluders=0,
        parties=30,
        holders=6,
        threshold=4,
        minimum=20,
    )
    game = Play(Cohort(parameters), random_answers(range(30), 3, 32)).until("share")
    mine = set(game.states[ME].holders)
    hidden = set(sorted(mine)[:3])
    box = game.outboxes[ME]
    assert mine <= set(box.keys)
    lie = replace(box, keys={i: k for i, k in box.keys.items() if i not in hidden})
    refused(TooFewParties, "3 holders remain of the 4", game, "share", lie)


# ---- deliveries


def test_a_delivery_without_me_or_with_a_stranger_is_refused() -> None:
    game = play().until("answer")
    box = game.outboxes[ME]
    for sharers in ((0, 2, 3, 4), (0, 1, 2, 3, 4, 9)):
        refused(BadList, "leaves its receiver out", game, "answer", replace(box, sharers=sharers))


@BOTH
def test_a_delivery_of_too_few_is_refused(mode: Mode) -> None:
    game = play(mode).until("answer")
    few = replace(game.outboxes[ME], sharers=(0, 1), ciphertexts={0: bytes(100)})
    refused(TooFewParties, "2 parties remain of the 3", game, "answer", few)


def test_a_ciphertext_from_one_who_has_not_shared_is_refused() -> None:
    game = play().until("answer")
    refused(
        BadList, "unknown or has not", game, "answer", replace(game.outboxes[ME], sharers=(0, 1, 2))
    )


def test_a_holder_whose_keys_were_hidden_cannot_appear_later() -> None:
    game = play().until("share")
    box = game.outboxes[ME]
    game.outboxes[ME] = replace(box, keys={i: k for i, k in box.keys.items() if i != 3})
    game.states[ME], message = game.parties[ME].share(game.states[ME], game.outboxes[ME], Dice("s"))
    others = {
        i: game.parties[i].share(game.states[i], game.outboxes[i], Dice(i)) for i in (0, 2, 4)
    }
    assert 3 not in message.ciphertexts
    sealed = {i: m.salt + m.ciphertexts[ME] for i, (_, m) in others.items()}
    lie = Delivery(run=b"r" * 32, round=1, party=ME, sharers=(0, 1, 2, 3, 4), ciphertexts=sealed)
    with pytest.raises(BadList, match="keys were not listed"):
        game.parties[ME].answer(game.states[ME], lie, game.answers[ME])


def tampered(game: Play, mischief: str) -> dict[int, bytes]:
    sealed = dict(game.outboxes[ME].ciphertexts)
    if mischief == "swapped":
        sealed[0], sealed[2] = sealed[2], sealed[0]
    elif mischief == "misaddressed":
        sealed[0], sealed[2] = game.outboxes[3].ciphertexts[0], game.outboxes[3].ciphertexts[2]
    elif mischief == "reflected":
        sealed[0], sealed[2] = (game.outboxes[i].ciphertexts[ME] for i in (0, 2))
    elif mischief == "broken":
        sealed[0], sealed[2] = bytes(100), sealed[2][:-1] + bytes([sealed[2][-1] ^ 1])
    elif mischief == "replayed":
        old = play(number=2).until("answer").outboxes[ME].ciphertexts
        sealed[0], sealed[2] = old[0], old[2]
    return sealed


@BOTH
@pytest.mark.parametrize("mischief", ["swapped", "misaddressed", "reflected", "broken", "replayed"])
def test_a_ciphertext_that_is_not_for_me_now_is_left_out(mode: Mode, mischief: str) -> None:
    """The round goes on: the two senders have one share fewer, and the sum is still exact."""
    game = play(mode).until("answer")
    game.outboxes[ME] = replace(game.outboxes[ME], ciphertexts=tampered(game, mischief))
    game.collect_answers(game.answer(gone={4}))
    assert set(game.states[ME].held) == {1, 3, 4}
    if mode is Mode.ACTIVE:
        game.collect_consent(game.confirm())
    total = game.finish(game.reveal())
    assert (total.vector == sum(game.answers[i] for i in range(4))).all()


def test_a_truncated_ciphertext_cannot_be_sent() -> None:
    game = play().until("answer")
    sealed = {0: game.outboxes[ME].ciphertexts[0][:-1]}
    with pytest.raises(MalformedMessage):
        replace(game.outboxes[ME], ciphertexts=sealed)


@pytest.mark.parametrize(
    "answer", [np.zeros((3, 1), np.uint32), np.zeros(3), np.zeros(3, np.int32)]
)
def test_an_answer_that_is_no_ring_vector_is_not_masked(answer: Any) -> None:
    game = play().until("answer")
    with pytest.raises(MalformedMessage, match="uint32 or uint64"):
        game.parties[ME].answer(game.states[ME], game.outboxes[ME], answer)


def test_masking_leaves_the_answer_itself_alone() -> None:
    game = play().until("answer")
    answer = np.arange(3, dtype=np.uint32)
    _, message = game.parties[ME].answer(game.states[ME], game.outboxes[ME], answer)
    assert answer.tolist() == [0, 1, 2]
    assert (message.vector != answer).all()


# ---- order and identity


@BOTH
def test_a_second_request_to_unmask_is_refused(mode: Mode) -> None:
    game = play(mode).until("reveal")
    before = dict(game.outboxes)
    game.reveal()
    assert isinstance(game.states[ME], Revealed)
    others: list[Any] = [
        before[ME],
        Survivors(run=b"r" * 32, round=1, party=ME, survivors=(0, 1, 2)),
    ]
    for box in others:
        with pytest.raises(OutOfOrder, match="got Revealed"):
            game.parties[ME].reveal(game.states[ME], box)


@BOTH
def test_steps_out_of_order_are_refused(mode: Mode) -> None:
    game = play(mode)
    states, boxes = {}, {}
    game.collect_keys(game.advertise())
    states["share"], boxes["share"] = game.states[ME], game.outboxes[ME]
    game.collect_shares(game.share())
    states["answer"], boxes["answer"] = game.states[ME], game.outboxes[ME]
    game.collect_answers(game.answer())
    last = "reveal" if mode is Mode.SEMI_HONEST else "confirm"
    states[last], boxes[last] = game.states[ME], game.outboxes[ME]
    more: dict[str, list[Any]] = {"share": [Dice(0)], "answer": [game.answers[ME]]}
    for step, state_of in ((a, b) for a in states for b in states):
        for box_of, box in boxes.items():
            if (step, step) != (state_of, box_of):
                with pytest.raises(OutOfOrder):
                    getattr(game.parties[ME], step)(states[state_of], box, *more.get(step, []))


@BOTH
@pytest.mark.parametrize("step", ["share", "answer", "survivors"])
def test_a_message_for_another_party_is_refused(mode: Mode, step: str) -> None:
    game = play(mode).until(step)
    method = survivor_step(mode) if step == "survivors" else step
    refused(WrongRound, "not of a party expected here", game, method, game.outboxes[2])


def test_a_state_of_another_round_is_refused() -> None:
    game, other = play().until("share"), play(number=2).until("share")
    with pytest.raises(WrongRound):
        game.parties[ME].share(other.states[ME], game.outboxes[ME], Dice(0))


def test_a_party_that_trusts_other_parameters_accepts_nothing() -> None:
    """The server announced a smaller threshold to the others: their signatures do not verify."""
    game = play().until("share")
    stricter = Cohort(small("active", threshold=4)).parties()[ME]
    state, _ = stricter.advertise(game.cohort.enrolled(ME), Dice(0))
    with pytest.raises(BadSignature):
        stricter.share(state, game.outboxes[ME], Dice(0))


def test_another_identity_key_or_a_stranger_cannot_be_a_party() -> None:
    cohort = Cohort(small("active"))
    announced = cohort.announced()
    channel = X25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(ValueError, match="entry in the roster"):
        Party(number=1, announced=announced, identity=cohort.identity(2), channel_key=channel)
    with pytest.raises(ValueError, match="in the cohort"):
        Party(number=7, announced=announced, identity=cohort.identity(2), channel_key=channel)


def test_a_round_of_another_run_cannot_follow() -> None:
    other = Cohort(small("active"), run=b"q" * 32)
    with pytest.raises(WrongRound, match="another run or party"):
        play().parties[ME].advertise(other.enrolled(ME), Dice(0))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"run": b"short"}, "run must have 32 bytes"),
        ({"number": 0}, "number must be"),
        ({"cohort": (0, 1, 2, 3)}, "cohort must have parameters.parties = 5"),
        ({"cohort": (0, 1, 1, 2, 3)}, "cohort must increase"),
        ({"cohort": (0, 1, 2, 3, 9)}, "positions in the roster"),
        ({"roster": (bytes(31),) * 5}, "keys of 32 bytes"),
        ({"roster": (bytes(32),) * 5}, "must not repeat"),
    ],
)
def test_a_round_that_makes_no_sense_is_refused(change: dict[str, Any], rule: str) -> None:
    announced = Cohort(small("active")).announced()
    values = {name: getattr(announced, name) for name in ("run", "number", "cohort", "roster")}
    with pytest.raises(ValueError, match=rule):
        type(announced)(**{**values, **change}, parameters=announced.parameters)


def test_the_states_carry_no_more_secrets_than_they_need() -> None:
    game = play().until("survivors")
    seed, mask_key = Dice("share", 1, ME)(32), Dice("advertise", 1, ME)(32)
    written = game.states[ME].to_bytes()
    assert seed not in written
    assert mask_key not in written
    game.collect_consent(game.confirm())
    assert isinstance(game.states[ME], Confirmed)
    revealed = game.reveal()
    assert isinstance(revealed[ME], Reveal)
    assert len(game.states[ME].to_bytes()) == 2 + 32 + 4 + 2
