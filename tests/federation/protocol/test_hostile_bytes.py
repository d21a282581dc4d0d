"""Bytes that no honest server sends: a party refuses them, and nothing of it breaks or changes."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.federation.party.memory import MemoryStore
from fedpriv.federation.protocol.wire import Announce, Ask, Join, Reply, Request
from fedpriv.federation.queries import encoding as codec
from fedpriv.secagg.errors import MalformedMessage
from fedpriv.secagg.messages import Delivery, KeyList, Survivors
from tests.federation.engines.grids import SIZES, gradient_query, host

if TYPE_CHECKING:
    from fedpriv.federation.party.host import PartyHost
    from fedpriv.federation.protocol.level import Level

RUN = b"b" * 32
COHORT = tuple(range(len(SIZES)))


def joined(level: Level = "semi-honest") -> PartyHost:
    member = replace(host(0, level), store=MemoryStore())
    member.handle(Request(messages=(Join(run=RUN, round=0, party=0),)).to_bytes())
    return member


def refused(data: bytes) -> bool:
    """Whether a party takes no step for these bytes, and remembers nothing but its reply."""
    member = joined()
    try:
        reply = member.handle(data)
    except MalformedMessage:
        return True
    return Reply.from_bytes(reply).messages == () and member.store.memory(RUN).rounds == {}


REQUEST = Request(
    messages=(Announce(run=RUN, round=1, party=0, cohort=COHORT, minimum=4),),
    query=codec.to_bytes(gradient_query(0)),
).to_bytes()


@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert refused(data)


@settings(max_examples=200)
@given(position=st.integers(0, len(REQUEST) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_never_breaks_a_party(position: int, bit: int) -> None:
    """It may be another valid request; it is answered or refused, and never fails otherwise."""
    changed = bytearray(REQUEST)
    changed[position] ^= 1 << bit
    with suppress(MalformedMessage):
        joined().handle(bytes(changed))


@pytest.mark.parametrize(
    "record",
    [
        Announce(run=RUN, round=0, party=0, cohort=COHORT, minimum=0),
        Announce(run=RUN, round=1, party=0, cohort=(), minimum=0),
        Announce(run=RUN, round=1, party=0, cohort=(0,), minimum=0),
        Announce(run=RUN, round=1, party=0, cohort=COHORT, minimum=2**32 - 1),
        Announce(run=RUN, round=1, party=0, cohort=tuple(range(65_536)), minimum=0),
        KeyList(run=RUN, round=1, party=0, keys={}),
        Delivery(run=RUN, round=1, party=0, sharers=COHORT, ciphertexts={}),
        Survivors(run=RUN, round=1, party=0, survivors=COHORT),
        Ask(run=RUN, round=1, party=0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_step_that_is_not_due_or_impossible_is_refused(record: Any) -> None:
    query = codec.to_bytes(gradient_query(0))
    assert refused(Request(messages=(record,), query=query).to_bytes())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run", [1]),
        ("run", {"a": 1}),
        ("run", 7),
        ("clip_norm", 10**400),
        ("clip_norm", "1"),
        ("sampling_rate", None),
        ("theta", [-1]),
        ("theta", [10**9]),
        ("grid", None),
        ("event", []),
        ("share", {"law": "polya"}),
        ("weights", ["equal"]),
        ("round", -1),
        ("round", True),
        ("kind", ["gradient"]),
    ],
)
def test_a_query_with_a_field_of_another_type_is_refused(name: str, value: Any) -> None:
    data = codec.to_bytes(gradient_query(0))
    prefix = codec._PREFIX
    magic, version, length = prefix.unpack_from(data)
    fields = json.loads(data[prefix.size : prefix.size + length]) | {name: value}
    header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    odd = prefix.pack(magic, version, len(header)) + header + data[prefix.size + length :]
    member = joined("off")
    request = Request(messages=(Ask(run=RUN, round=1, party=0),), query=odd)
    answered = Reply.from_bytes(member.handle(request.to_bytes()))
    assert answered.messages == ()
    assert answered.refusal.startswith("QueryRefused")
    assert member.store.given("run") is None
