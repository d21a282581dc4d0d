"""The binary form is strict: what was not written by `to_bytes` is not read by `read`."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.secagg import messages, party_state
from fedpriv.secagg.errors import MalformedMessage
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
    read,
)
from fedpriv.secagg.party_state import Advertised, Answered, Confirmed, Enrolled, Revealed, Shared
from fedpriv.secagg.primitives.codec import Fixed, Ids, Number, Packed, Table, Vector, Wire

MESSAGES: list[type[Packed]] = [
    Advertise,
    KeyList,
    Share,
    Delivery,
    MaskedAnswer,
    Survivors,
    Confirm,
    Confirmations,
    Reveal,
]
STATES: list[type[Packed]] = [Enrolled, Advertised, Shared, Answered, Confirmed, Revealed]


def values(wire: Wire) -> st.SearchStrategy[Any]:
    """Everything that a field of this form can hold."""
    ids = st.sets(st.integers(0, 65_535), max_size=5).map(lambda s: tuple(sorted(s)))
    match wire:
        case Number(size=size):
            return st.integers(0, 256**size - 1)
        case Fixed(size=size):
            return st.binary(min_size=size, max_size=size)
        case Ids():
            return ids
        case Table(size=size):
            row = st.binary(min_size=size, max_size=size)
            return st.dictionaries(st.integers(0, 65_535), row, max_size=4)
        case Vector():
            words = st.lists(st.integers(0, 2**32 - 1), max_size=6)
            return st.tuples(words, st.sampled_from(["<u4", "<u8"])).map(lambda p: np.array(*p))
    raise AssertionError(wire)


def packed(kind: type[Packed]) -> st.SearchStrategy[Packed]:
    return st.builds(kind, **{name: values(wire) for name, wire in kind.wires().items()})


def one_of_each() -> list[Packed]:
    bound: dict[str, Any] = {"run": bytes(range(32)), "round": 258, "party": 3}
    return [
        Advertise(**bound, keys=bytes(128), holders=(0, 3, 7)),
        KeyList(**bound, keys={1: b"k" * 128, 2: b"l" * 128}),
        Share(**bound, commitment=bytes(32), salt=bytes(16), ciphertexts={0: bytes(84)}),
        Delivery(**bound, sharers=(1, 3), ciphertexts={1: bytes(100)}),
        MaskedAnswer(**bound, vector=np.arange(3, dtype=np.uint32)),
        Survivors(**bound, survivors=(1, 2, 3)),
        Confirm(**bound, signature=bytes(64)),
        Confirmations(**bound, signatures={5: bytes(64)}),
        Reveal(**bound, seed_shares={1: bytes(34)}, key_shares={2: bytes(34)}),
    ]


@pytest.mark.parametrize("kind", MESSAGES + STATES)
def test_every_field_has_a_form_and_every_form_a_field(kind: type[Packed]) -> None:
    assert list(kind.wires()) == [field.name for field in fields(kind)]


def test_every_kind_of_message_and_state_is_tried() -> None:
    exported = [*vars(messages).values(), *vars(party_state).values()]
    known = {r for r in exported if isinstance(r, type) and issubclass(r, Packed)}
    assert {r for r in known if hasattr(r, "kind")} == set(MESSAGES + STATES)


@given(st.data())
def test_reading_inverts_writing(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(MESSAGES + STATES))
    value = data.draw(packed(kind))
    written = value.to_bytes()
    again = read(written) if kind in MESSAGES else kind.from_bytes(written)
    assert type(again) is kind
    assert again.to_bytes() == written
    for name in kind.wires():
        assert np.array_equal(getattr(again, name), getattr(value, name))


@pytest.mark.parametrize("message", one_of_each(), ids=lambda m: type(m).__name__)
def test_a_missing_or_an_extra_byte_is_refused(message: Packed) -> None:
    written = message.to_bytes()
    for end in range(len(written)):
        with pytest.raises(MalformedMessage):
            read(written[:end])
    with pytest.raises(MalformedMessage, match="after its end"):
        read(written + b"\0")


@pytest.mark.parametrize("message", one_of_each(), ids=lambda m: type(m).__name__)
def test_an_unknown_version_or_kind_is_refused(message: Packed) -> None:
    written = message.to_bytes()
    for version in (0, 2, 255):
        with pytest.raises(MalformedMessage, match=f"got version {version}"):
            read(bytes([version]) + written[1:])
    for kind in (0, 10, 64, 255):
        with pytest.raises(MalformedMessage, match="known kind"):
            read(written[:1] + bytes([kind]) + written[2:])


@given(st.binary(max_size=300))
def test_random_bytes_never_crash_the_reader(data: bytes) -> None:
    for attempt in (data, bytes([1, 1 + len(data) % 9]) + data):
        try:
            message = read(attempt)
        except MalformedMessage:
            continue
        assert message.to_bytes() == attempt


@given(st.data())
def test_a_flipped_bit_is_refused_or_changes_the_message(data: st.DataObject) -> None:
    written = data.draw(st.sampled_from(one_of_each())).to_bytes()
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    flipped = bytearray(written)
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        message = read(bytes(flipped))
    except MalformedMessage:
        return
    assert message.to_bytes() == bytes(flipped)


def test_a_repeated_or_unordered_party_is_refused() -> None:
    bound: dict[str, Any] = {"run": bytes(32), "round": 1, "party": 0}
    for bad in ((1, 1), (2, 1), (-1, 2), (0, 65_536)):
        with pytest.raises(MalformedMessage):
            Survivors(**bound, survivors=bad)
    good = Survivors(**bound, survivors=(1, 2)).to_bytes()
    for pair in ((1, 1), (2, 1)):
        tail = b"".join(number.to_bytes(2, "big") for number in pair)
        with pytest.raises(MalformedMessage, match="repeated or out of order"):
            read(good[:-4] + tail)
    table = Confirmations(**bound, signatures={1: bytes(64), 2: bytes(64)}).to_bytes()
    start = len(table) - 2 * 64 - 4
    with pytest.raises(MalformedMessage, match="repeated or out of order"):
        read(table[:start] + b"\0\1\0\1" + table[start + 4 :])


def test_fields_of_the_wrong_size_are_refused_when_made() -> None:
    bound: dict[str, Any] = {"run": bytes(32), "round": 1, "party": 0}
    with pytest.raises(MalformedMessage, match="64 bytes has 63"):
        Confirm(**bound, signature=bytes(63))
    with pytest.raises(MalformedMessage, match="128 bytes has 127"):
        KeyList(**bound, keys={1: bytes(127)})
    with pytest.raises(MalformedMessage, match="does not fit 4 bytes"):
        Confirm(run=bytes(32), round=2**32, party=0, signature=bytes(64))
    with pytest.raises(MalformedMessage, match="does not fit 2 bytes"):
        Confirm(run=bytes(32), round=1, party=-1, signature=bytes(64))


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros((2, 2), np.uint32),
        np.zeros(2, np.int32),
        np.zeros(2, np.float64),
        np.zeros(2, np.uint16),
        np.zeros(2, ">u4"),
    ],
)
def test_a_vector_of_another_shape_or_type_is_refused(vector: Any) -> None:
    with pytest.raises(MalformedMessage, match="one-dimensional array of uint32 or uint64"):
        MaskedAnswer(run=bytes(32), round=1, party=0, vector=vector)


def test_a_message_cannot_be_changed_after_it_was_checked() -> None:
    signatures = {1: bytes(64)}
    message = Confirmations(run=bytes(32), round=1, party=0, signatures=signatures)
    signatures[2] = bytes(64)
    assert list(message.signatures) == [1]
    with pytest.raises(TypeError):
        message.signatures[3] = bytes(64)  # type: ignore[index]
    vector = read(
        MaskedAnswer(run=bytes(32), round=1, party=0, vector=np.zeros(2, np.uint32)).to_bytes()
    ).vector  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1


def test_an_answer_costs_four_bytes_a_coordinate() -> None:
    bound: dict[str, Any] = {"run": bytes(32), "round": 1, "party": 0}
    answer = MaskedAnswer(**bound, vector=np.zeros(10**6, np.uint32))
    assert len(answer.to_bytes()) == 4 * 10**6 + 45


@pytest.mark.parametrize("kind", MESSAGES + STATES)
@given(data=st.data())
def test_every_value_is_as_wide_as_its_layout_says(kind: type[Packed], data: st.DataObject) -> None:
    value = data.draw(packed(kind))
    sizes = {
        name: content.nbytes if isinstance(wire, Vector) else len(content)
        for name, wire in kind.wires().items()
        if isinstance(wire, Ids | Table | Vector) and (content := getattr(value, name)) is not None
    }
    assert kind.width(**sizes) == len(value.to_bytes())


def test_a_width_of_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="has no fields"):
        Survivors.width(holders=3)
