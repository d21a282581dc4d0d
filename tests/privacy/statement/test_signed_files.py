"""Signed files: one text, and one signature that nothing can be moved under."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedpriv.privacy.ledger.storage.chain import canonical_json
from fedpriv.privacy.statement.signed import NotCanonical
from fedpriv.privacy.statement.signed_files import (
    SignedFiles,
    hash_of,
    read_signed_files,
    sign_files,
)

KEY = Ed25519PrivateKey.generate()
FILES = {"a.json": b"{}", "b/c.txt": b"text"}
ABOUT = {"run": "study-1", "ledger": None}


def signed() -> SignedFiles:
    return sign_files(FILES, KEY, about=ABOUT)


def test_it_reads_back_and_its_signature_is_good() -> None:
    again = read_signed_files(signed().to_text().encode())
    assert again == signed()
    assert again.signed
    assert again.files == {name: hash_of(data) for name, data in FILES.items()}
    assert again.signer == KEY.public_key().public_bytes_raw().hex()


@pytest.mark.parametrize(
    "change",
    [
        {"about": {"run": "study-2", "ledger": None}},
        {"files": {"a.json": hash_of(b"{}")}},
        {"files": {"a.json": hash_of(b"[]"), "b/c.txt": hash_of(b"text")}},
        {"signer": Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()},
        {"signature": "00" * 64},
    ],
)
def test_a_signature_is_for_everything(change: dict[str, Any]) -> None:
    values = json.loads(signed().to_text()) | change
    assert not read_signed_files((canonical_json(values) + "\n").encode()).signed


@pytest.mark.parametrize(
    "change",
    [
        {"format": "fedpriv signed files 2"},
        {"more": 1},
        {"files": []},
        {"files": {"a": "AB" * 32}},
        {"files": {"a": 3}},
        {"about": "x"},
        {"signer": "ab"},
        {"signature": "00" * 63},
        {"signature": None},
    ],
)
def test_other_texts_are_refused(change: dict[str, Any]) -> None:
    values = json.loads(signed().to_text()) | change
    with pytest.raises(NotCanonical):
        read_signed_files((canonical_json(values) + "\n").encode())
    with pytest.raises(NotCanonical):
        read_signed_files(signed().to_text().encode() + b" ")
