"""Signed statements: one text for each document, and signatures that nothing can be moved under."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.statement.signed import (
    NotCanonical,
    PartySignature,
    SignedStatement,
    read_canonical,
    read_signed,
    sign_as_party,
    sign_as_server,
)

SERVER, PARTY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
DOCUMENT = {"roster": "ab" * 32, "epsilon": 1.5, "who": "Köln", "rounds": [1, 2.5e-7, None, True]}
HEAD = "5f" * 32

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def signed() -> SignedStatement:
    party = sign_as_party(DOCUMENT, PARTY, number=1, name="north", head=HEAD, rows=7, releases=3)
    return sign_as_server(DOCUMENT, SERVER).with_party(party)


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_document_has_one_text(document: dict[str, Any]) -> None:
    text = canonical_json(document).encode()
    assert read_canonical(text) == document
    for other in (text + b" ", b" " + text, text.replace(b",", b", ", 1), text + b"\n"):
        if other != text:
            with pytest.raises(NotCanonical):
                read_canonical(other)


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1,"a":1}',
        '{"a":1,"a":1}',
        '{"a":1.50}',
        '{"a":1e0}',
        '{"a":0.1000000000000000055511151231257827}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":"é"}',
        '{"a":"\\u00E9"}',
        '{"a":"\\/"}',
        "[1]",
        '"a"',
        '{"a":' + "[" * 5000 + "]" * 5000 + "}",
        '{"a":' + "[" * 50 + "]" * 50 + "}",
    ],
)
def test_other_texts_of_the_same_values_are_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        read_canonical(text.encode())


def test_a_signed_statement_reads_back() -> None:
    again = read_signed(signed().to_text().encode())
    assert again == signed().with_party(again.parties[0])
    assert again.signed_by_server(public(SERVER))
    assert again.signed_by_party(again.parties[0], public(PARTY))


def valid(data: bytes) -> bool:
    """Whether bytes are a statement that both have signed."""
    try:
        read = read_signed(data)
    except NotCanonical:
        return False
    return (
        read.signed_by_server(public(SERVER))
        and len(read.parties) == 1
        and read.signed_by_party(read.parties[0], public(PARTY))
    )


def test_any_changed_byte_is_caught() -> None:
    data = signed().to_text().encode()
    assert valid(data)
    for place in range(len(data)):
        for flipped in (1, 2, 16, 32, 128):
            changed = bytearray(data)
            changed[place] ^= flipped
            assert not valid(bytes(changed)), (place, flipped)
        assert not valid(data[:place] + data[place + 1 :]), place


@settings(max_examples=200)
@given(st.data())
def test_any_inserted_byte_is_caught(data: st.DataObject) -> None:
    text = signed().to_text().encode()
    place = data.draw(st.integers(0, len(text)))
    byte = data.draw(st.binary(min_size=1, max_size=3))
    assert not valid(text[:place] + byte + text[place:])


@pytest.mark.parametrize(
    ("field", "value"),
    [("number", 2), ("name", "south"), ("head", "60" * 32), ("rows", 8), ("releases", 4)],
)
def test_a_party_signs_everything_that_it_says(field: str, value: Any) -> None:
    given_ = signed()
    values = {
        name: getattr(given_.parties[0], name) for name in PartySignature.__dataclass_fields__
    }
    assert given_.signed_by_party(PartySignature(**values), public(PARTY))
    assert not given_.signed_by_party(PartySignature(**{**values, field: value}), public(PARTY))


def test_a_signature_is_good_for_one_document_and_one_kind() -> None:
    given_ = signed()
    other = SignedStatement(
        document={**DOCUMENT, "epsilon": 1.0}, server=given_.server, parties=given_.parties
    )
    assert not other.signed_by_server(public(SERVER))
    assert not other.signed_by_party(other.parties[0], public(PARTY))
    # One identity in both places: neither signature is of use in the other's.
    both = sign_as_server(DOCUMENT, PARTY)
    party = given_.parties[0]
    moved = SignedStatement(document=DOCUMENT, server=party.signature)
    assert both.signed_by_server(public(PARTY))
    assert not moved.signed_by_server(public(PARTY))
    swapped = PartySignature(
        number=1, name="north", head=HEAD, rows=7, releases=3, signature=both.server
    )
    assert not both.signed_by_party(swapped, public(PARTY))


@pytest.mark.parametrize("name", ["format", "document", "signatures"])
def test_a_part_that_is_missing_is_refused(name: str) -> None:
    values = json.loads(signed().to_text())
    del values[name]
    with pytest.raises(NotCanonical):
        read_signed(f"{canonical_json(values)}\n".encode())


def test_signatures_are_in_order_and_once() -> None:
    values = json.loads(signed().to_text())
    (party,) = values["signatures"]["parties"]
    values["signatures"]["parties"] = [party, party]
    with pytest.raises(NotCanonical, match="in order"):
        read_signed(f"{canonical_json(values)}\n".encode())
