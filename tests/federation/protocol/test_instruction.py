"""Signed instructions and replies: no bit of them can be changed, and none is heard twice."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.federation.protocol.instruction import (
    Heard,
    Instruction,
    Misdirected,
    Place,
    Replayed,
    TooLate,
    opened,
    opened_reply,
    reply_body,
    require_in_time,
    signed_reply,
)
from fedpriv.federation.protocol.wire import pack, unpack
from fedpriv.secagg.errors import BadSignature, MalformedMessage

SERVER, PARTY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2, 3))
BODY = b"what is asked"
HERE: dict[str, Any] = {
    "roster": b"r" * 32,
    "flower": 2**64 - 1,
    "node": 7,
    "party": 2,
    "config": b"c" * 32,
}
INSTRUCTION = Instruction(
    **HERE, run=b"s" * 32, number=5, until=1_700_000_000_000, body=sha256(BODY).digest()
)
SENT = INSTRUCTION.signed(BODY, SERVER)
OTHERS: dict[str, Any] = {
    "roster": b"R" * 32,
    "flower": 1,
    "node": 8,
    "party": 1,
    "config": b"C" * 32,
}


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def flips(data: bytes) -> list[bytes]:
    """The data with each of its bits changed, one at a time."""
    return [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]


def test_what_the_server_signs_is_opened_with_its_key() -> None:
    assert opened(SENT, server=public(SERVER)) == (INSTRUCTION, BODY)


def test_every_bit_of_an_instruction_is_under_the_signature() -> None:
    for changed in flips(SENT):
        with pytest.raises((BadSignature, MalformedMessage)):
            opened(changed, server=public(SERVER))


def test_every_field_of_an_instruction_is_under_the_signature() -> None:
    """One bit of each, in a head that is well-formed, with the signature of the head before it."""
    head, signature, body = unpack(SENT)
    changed = [flip for flip in flips(head) if flip[:2] == head[:2]]
    assert len(changed) == 8 * (len(head) - 2)
    for each in changed:
        assert Instruction.from_bytes(each) != INSTRUCTION
        with pytest.raises(BadSignature, match="not signed by the server"):
            opened(pack([each, signature, body]), server=public(SERVER))


@pytest.mark.parametrize("key", [PARTY, OTHER])
def test_nobody_but_the_server_signs_instructions(key: Ed25519PrivateKey) -> None:
    with pytest.raises(BadSignature, match="not signed by the server"):
        opened(INSTRUCTION.signed(BODY, key), server=public(SERVER))


def test_an_instruction_is_signed_with_one_body() -> None:
    with pytest.raises(BadSignature, match="another body"):
        opened(INSTRUCTION.signed(b"another", SERVER), server=public(SERVER))


@pytest.mark.parametrize(
    "parts", [[], [b""], [BODY], [SENT], [b"", b"", b""], unpack(SENT)[:2], [*unpack(SENT), b""]]
)
def test_what_is_no_instruction_is_refused_before_anything_else(parts: list[bytes]) -> None:
    with pytest.raises(MalformedMessage):
        opened(pack(parts), server=public(SERVER))


@pytest.mark.parametrize("field", OTHERS)
def test_an_instruction_for_another_place_is_refused(field: str) -> None:
    INSTRUCTION.require_at(Place(**HERE))
    with pytest.raises(Misdirected, match=f"its {field} is not this party's"):
        INSTRUCTION.require_at(Place(**{**HERE, field: OTHERS[field]}))


def test_several_things_that_differ_are_all_named() -> None:
    with pytest.raises(Misdirected, match="its roster and party are not"):
        INSTRUCTION.require_at(Place(**{**HERE, "roster": b"R" * 32, "party": 1}))


# Time.


def test_an_instruction_holds_until_its_time_is_over_and_no_longer() -> None:
    until = INSTRUCTION.until
    deadline = INSTRUCTION.deadline(received=until - 1000, most=900.0)
    assert deadline == until
    require_in_time(until, deadline=deadline)
    with pytest.raises(TooLate, match=r"passed 0\.5 s ago"):
        require_in_time(until + 500, deadline=deadline)


def test_a_party_gives_an_instruction_no_more_time_than_its_policy_says() -> None:
    assert INSTRUCTION.deadline(received=0, most=900.0) == 900_000


# Numbers.


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([BODY, b"another"])), min_size=1, max_size=12
    )
)
def test_an_instruction_is_heard_if_it_is_later_or_the_very_same(
    sequence: list[tuple[int, bytes]],
) -> None:
    """Against a list of all that was heard: nothing goes back, and no number has two meanings."""
    last: Heard | None = None
    heard: list[tuple[int, bytes]] = []
    for number, body in sequence:
        instruction = replace(INSTRUCTION, number=number, body=sha256(body).digest())
        allowed = not heard or number > max(n for n, _ in heard) or (number, body) == heard[-1]
        try:
            instruction.require_next(last)
        except Replayed:
            assert not allowed
        else:
            assert allowed
            last = instruction.heard
            heard.append((number, body))


# Replies.

DIGEST = INSTRUCTION.digest
REPLY = signed_reply(b"done", to=DIGEST, key=PARTY)


def test_a_reply_is_opened_with_the_key_of_the_party_that_was_asked() -> None:
    assert opened_reply(REPLY, to=DIGEST, party=public(PARTY)) == b"done"
    assert reply_body(REPLY) == b"done"
    assert signed_reply(b"done", to=DIGEST, key=PARTY) == REPLY


def test_every_bit_of_a_reply_is_under_the_signature() -> None:
    for changed in flips(REPLY):
        with pytest.raises(BadSignature):
            opened_reply(changed, to=DIGEST, party=public(PARTY))


def test_a_reply_answers_one_instruction_for_one_party() -> None:
    with pytest.raises(BadSignature):
        opened_reply(REPLY, to=DIGEST, party=public(OTHER))
    for other in flips(INSTRUCTION.to_bytes()):
        with pytest.raises(BadSignature):
            opened_reply(REPLY, to=sha256(other).digest(), party=public(PARTY))


@pytest.mark.parametrize("data", [b"", b"done", pack([b"done"]), pack([b"", b"done"])])
def test_a_reply_without_a_signature_is_none(data: bytes) -> None:
    with pytest.raises(BadSignature, match="not signed"):
        opened_reply(data, to=DIGEST, party=public(PARTY))


def test_a_signature_for_one_purpose_is_none_for_the_other() -> None:
    """Even under one key, which no roster allows."""
    head, _, body = unpack(SENT)
    replied = unpack(signed_reply(body, to=DIGEST, key=SERVER))[0]
    with pytest.raises(BadSignature):
        opened(pack([head, replied, body]), server=public(SERVER))
    with pytest.raises(BadSignature):
        opened_reply(pack([unpack(SENT)[1], body]), to=DIGEST, party=public(SERVER))
