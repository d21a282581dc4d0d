"""A hostile server's survivors: no list of them, and no consent, opens what could expose one."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from fedpriv.secagg import Mode
from fedpriv.secagg.errors import (
    BadList,
    BadSignature,
    MalformedMessage,
    OutOfOrder,
    SecureAggregationError,
    TooFewParties,
)
from fedpriv.secagg.messages import Confirmations
from fedpriv.secagg.primitives import binding
from tests.secagg.cohort import BOTH, ME, Play, play, refused, survivor_step

# ---- survivors


@BOTH
@pytest.mark.parametrize(
    ("survivors", "error", "rule"),
    [
        ((0, 2, 3, 4), BadList, "leaves its receiver out"),  # I am listed as dead
        ((0, 1, 2, 9), BadList, "has a stranger in it"),
        ((1, 2), TooFewParties, "2 parties remain of the 3 required"),
        ((), BadList, "leaves its receiver out"),
    ],
)
def test_a_dishonest_list_of_survivors_is_refused(
    mode: Mode, survivors: tuple[int, ...], error: type[SecureAggregationError], rule: str
) -> None:
    game = play(mode).until("survivors")
    box = replace(game.outboxes[ME], survivors=survivors)
    refused(error, rule, game, survivor_step(mode), box)


@BOTH
def test_a_survivor_that_never_shared_is_refused(mode: Mode) -> None:
    game = play(mode)
    game.collect_keys(game.advertise())
    game.collect_shares(game.share(gone={4}))
    game.collect_answers(game.answer())
    box = replace(game.outboxes[ME], survivors=(0, 1, 2, 3, 4))
    refused(BadList, "stranger", game, survivor_step(mode), box)


@BOTH
def test_one_party_cannot_be_listed_twice(mode: Mode) -> None:
    game = play(mode).until("survivors")
    with pytest.raises(MalformedMessage, match="repeated"):
        replace(game.outboxes[ME], survivors=(0, 1, 1, 2))


@BOTH
def test_each_peer_gets_one_share_of_one_kind_for_every_possible_list(mode: Mode) -> None:
    """There is one list, so that nobody can be alive and dead at once; the kind follows from it."""
    for size in (3, 4, 5):
        for survivors in combinations(range(5), size):
            if ME not in survivors:
                continue
            game = play(mode).until("survivors")
            for i in survivors:
                game.outboxes[i] = replace(game.outboxes[i], survivors=survivors)
            game.outboxes = {i: game.outboxes[i] for i in survivors}
            if mode is Mode.ACTIVE:
                signatures = {m.party: m.signature for m in game.confirm()}  # type: ignore[attr-defined]
                box: Any = Confirmations(run=b"r" * 32, round=1, party=ME, signatures=signatures)
            else:
                box = game.outboxes[ME]
            _, message = game.parties[ME].reveal(game.states[ME], box)
            assert set(message.seed_shares) == set(survivors)
            assert set(message.key_shares) == set(range(5)) - set(survivors)


# ---- consent


def consented() -> Play:
    game = play().until("survivors")
    game.collect_consent(game.confirm())
    return game


def test_missing_signatures_are_refused() -> None:
    game = consented()
    box = game.outboxes[ME]
    few = replace(box, signatures={i: box.signatures[i] for i in (0, ME)})
    refused(TooFewParties, "2 holders remain of the 3", game, "reveal", few)
    refused(TooFewParties, "0 holders", game, "reveal", replace(box, signatures={}))


def test_a_forged_signature_is_refused_even_among_enough_good_ones() -> None:
    game = consented()
    box = game.outboxes[ME]
    forged = replace(box, signatures={**box.signatures, 3: bytes(64)})
    refused(BadSignature, "party 3", game, "reveal", forged)
    copied = replace(box, signatures={**box.signatures, 3: box.signatures[2]})
    refused(BadSignature, "party 3", game, "reveal", copied)


def test_signatures_of_another_round_are_refused() -> None:
    game, other = consented(), play(number=2).until("survivors")
    other.collect_consent(other.confirm())
    stale = replace(game.outboxes[ME], signatures=other.outboxes[ME].signatures)
    refused(BadSignature, "party 0", game, "reveal", stale)


def test_signatures_of_strangers_and_of_the_dead_do_not_count() -> None:
    game = play()
    game.collect_keys(game.advertise())
    game.collect_shares(game.share())
    game.collect_answers(game.answer(gone={4}))
    game.collect_consent(game.confirm())
    box = game.outboxes[ME]
    dead = game.parties[4].identity.sign(
        binding.consent(game.parties[4].announced, 4, (0, 1, 2, 3))
    )
    for stranger in (4, 9):
        lie = replace(box, signatures={**box.signatures, stranger: dead})
        refused(BadList, "no holder or has not survived", game, "reveal", lie)


def test_different_survivors_for_different_parties_open_nothing() -> None:
    """Party 4 is alive to some and dead to others. Whoever signs is bound to what it was told."""
    game = play().until("survivors")
    everyone, without = (0, 1, 2, 3, 4), (0, 1, 2, 3)
    told = {0: everyone, 1: everyone, 2: without, 3: without, 4: everyone}
    signatures = {}
    for i, survivors in told.items():
        box = replace(game.outboxes[i], survivors=survivors)
        game.states[i], consent = game.parties[i].confirm(game.states[i], box)
        signatures[i] = consent.signature
    # Parties 0, 1 and 4 agree, which is the threshold; nobody else will ever reveal anything.
    for i in (2, 3):
        for chosen in (everyone, without, (2, 3)):
            listed = {j: signatures[j] for j in chosen}
            lie = Confirmations(run=b"r" * 32, round=1, party=i, signatures=listed)
            with pytest.raises(SecureAggregationError):
                game.parties[i].reveal(game.states[i], lie)
    _, message = game.parties[0].reveal(
        game.states[0],
        Confirmations(
            run=b"r" * 32, round=1, party=0, signatures={j: signatures[j] for j in (0, 1, 4)}
        ),
    )
    assert set(message.seed_shares) == set(everyone)
    assert not message.key_shares


def test_a_party_signs_one_set_only() -> None:
    game = play().until("survivors")
    box = game.outboxes[ME]
    state, _ = game.parties[ME].confirm(game.states[ME], box)
    for survivors in ((0, 1, 2, 3, 4), (0, 1, 2)):
        with pytest.raises(OutOfOrder, match="Answered is expected now, got Confirmed"):
            game.parties[ME].confirm(state, replace(box, survivors=survivors))  # type: ignore[arg-type]


def test_in_active_mode_nothing_is_revealed_without_consent() -> None:
    game = play().until("survivors")
    with pytest.raises(OutOfOrder, match="Confirmed is expected now, got Answered"):
        game.parties[ME].reveal(game.states[ME], game.outboxes[ME])
    state, _ = game.parties[ME].confirm(game.states[ME], game.outboxes[ME])
    with pytest.raises(OutOfOrder, match="Confirmations is expected now, got Survivors"):
        game.parties[ME].reveal(state, game.outboxes[ME])


def test_in_semi_honest_mode_there_is_no_consent() -> None:
    game = play("semi-honest").until("survivors")
    with pytest.raises(OutOfOrder, match="active mode only"):
        game.parties[ME].confirm(game.states[ME], game.outboxes[ME])
