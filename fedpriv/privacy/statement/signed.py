r"""Signed statement: what a run guarantees, signed by its server and by every party that was there.

**Canonical JSON.** A document has one text, the only one that is signed, written and read: objects
with their keys sorted and each key once, no white space, ASCII (everything else as ``\\uXXXX``,
lower-case), integers as digits, floats in the shortest form that reads back as the same 64 bits
(Python's ``repr``), no NaN and no infinity. Reading writes the document again and refuses any other
bytes, so that two readers cannot see two documents behind one signature.

**Signatures.** Ed25519, each over a context of its own and the canonical JSON of a small table:

    server     "fedpriv statement: server\\0"   statement, roster
    party      "fedpriv statement: party\\0"    statement, roster, number, name, ledger, releases

where ``statement`` is the SHA-256 of the document's canonical JSON, ``roster`` the digest of the
roster that the run was of, ``ledger`` the head and the length of the party's own ledger when it
signed, and ``releases`` how many releases of the run that ledger had paid for. The contexts keep a
signature from being taken for one of another kind, there and in the protocol.

What a party has checked before it signs is in `fedpriv.federation.deployed.statements.attesting`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedpriv.privacy.ledger.storage.chain import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "fedpriv signed statement 1"
_SERVER, _PARTY = b"fedpriv statement: server\0", b"fedpriv statement: party\0"
_SIGNATURE_BYTES, _HASH_BYTES = 64, 32
MOST_BYTES = 1 << 22
"""Of a document."""
_MOST_DEPTH = 32  # far more than a document has; Python's own reader gives up at a thousand


class NotCanonical(ValueError):
    """Bytes that no canonical document, or no signed statement, has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartySignature:
    """A party's word on a statement.

    Attributes:
        number: Which party.
        name: What the roster calls it.
        head: Hash of the last row of its ledger, 64 hexadecimal digits.
        rows: How many rows its ledger had.
        releases: How many releases of the run that ledger had paid for.
        signature: Over all that, the statement and the roster.
    """

    number: int
    name: str
    head: str
    rows: int
    releases: int
    signature: bytes

    def __post_init__(self) -> None:
        for name in ("number", "rows", "releases"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value < 1 << 63:
                raise NotCanonical(f"{name} of a party's signature must be a whole number.")
        if not isinstance(self.name, str):
            raise NotCanonical("name of a party's signature must be text.")
        from_hex(self.head, _HASH_BYTES)
        if len(self.signature) != _SIGNATURE_BYTES:
            raise NotCanonical(f"a signature must have {_SIGNATURE_BYTES} bytes.")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "number": self.number,
            "name": self.name,
            "ledger": {"head": self.head, "rows": self.rows},
            "releases": self.releases,
            "signature": self.signature.hex(),
        }


@dataclass(frozen=True, kw_only=True)
class SignedStatement:
    """A document with the signatures that it has so far.

    Attributes:
        document: What is signed: JSON-ready values, of which ``roster`` must be the roster's digest
            in hexadecimal digits.
        server: The server's signature.
        parties: The parties' signatures, by number.
    """

    document: Mapping[str, Any]
    server: bytes
    parties: tuple[PartySignature, ...] = ()

    def __post_init__(self) -> None:
        if "roster" not in self.document:
            raise NotCanonical("the document of a signed statement must name its roster.")
        if len(self.server) != _SIGNATURE_BYTES:
            raise NotCanonical(f"a signature must have {_SIGNATURE_BYTES} bytes.")
        numbers = [each.number for each in self.parties]
        if numbers != sorted(set(numbers)):
            raise NotCanonical("the parties' signatures must be in order, one of each.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the document, in hexadecimal digits."""
        return digest_of(self.document)

    def with_party(self, signature: PartySignature) -> SignedStatement:
        """With one more signature, or with a newer one of the same party."""
        others = [each for each in self.parties if each.number != signature.number]
        parties = sorted([*others, signature], key=lambda each: each.number)
        return SignedStatement(document=self.document, server=self.server, parties=tuple(parties))

    def signed_by_server(self, key: bytes) -> bool:
        """Whether the owner of the public ``key`` signed as the server."""
        return is_signed(key, self.server, _by_server(self.document))

    def signed_by_party(self, party: PartySignature, key: bytes) -> bool:
        """Whether the owner of the public ``key`` signed all that ``party`` says."""
        return is_signed(key, party.signature, _by_party(self.document, party))

    def to_text(self) -> str:
        """The one text of this value; `read_signed` inverts it."""
        values = {
            "format": FORMAT,
            "document": self.document,
            "signatures": {
                "server": self.server.hex(),
                "parties": [each.to_dict() for each in self.parties],
            },
        }
        return canonical_json(values) + "\n"


def sign_as_server(document: Mapping[str, Any], key: Ed25519PrivateKey) -> SignedStatement:
    """The document with the server's signature, and no other yet."""
    return SignedStatement(document=document, server=key.sign(_by_server(document)))


def sign_as_party(
    document: Mapping[str, Any],
    key: Ed25519PrivateKey,
    *,
    number: int,
    name: str,
    head: str,
    rows: int,
    releases: int,
) -> PartySignature:
    """A party's signature. Whether it may be given is for the caller to have checked."""
    blank = PartySignature(
        number=number,
        name=name,
        head=head,
        rows=rows,
        releases=releases,
        signature=bytes(_SIGNATURE_BYTES),
    )
    return PartySignature(
        number=number,
        name=name,
        head=head,
        rows=rows,
        releases=releases,
        signature=key.sign(_by_party(document, blank)),
    )


def read_signed(data: bytes) -> SignedStatement:
    """Read a signed statement.

    Raises:
        NotCanonical: The bytes are not exactly what `SignedStatement.to_text` writes.
    """
    values = read_canonical(data.removesuffix(b"\n"))
    try:
        if values.pop("format") != FORMAT:
            raise NotCanonical(f"it is not of the format {FORMAT!r}.")
        signatures = values.pop("signatures")
        if not isinstance(values["document"], dict):
            raise NotCanonical("the document of a signed statement must be a table.")
        found = SignedStatement(
            document=values.pop("document"),
            server=from_hex(signatures.pop("server"), _SIGNATURE_BYTES),
            parties=tuple(map(_read_party, signatures.pop("parties"))),
        )
    except (KeyError, TypeError, AttributeError):
        raise NotCanonical("it is no signed statement: a part is missing.") from None
    if found.to_text().encode() != data:
        raise NotCanonical("it is not written as a signed statement is: something was changed.")
    return found


def read_canonical(data: bytes) -> dict[str, Any]:
    """The document whose canonical JSON ``data`` is.

    Raises:
        NotCanonical: They are any other bytes.
    """
    if len(data) > MOST_BYTES:
        raise NotCanonical(f"a document must have at most {MOST_BYTES} bytes, got {len(data)}.")
    try:
        values = json.loads(data.decode("ascii"))
        _require_shallow(values, _MOST_DEPTH)
        again = canonical_json(values).encode()
    except (ValueError, RecursionError):
        raise NotCanonical("it is not canonical JSON.") from None
    if again != data or not isinstance(values, dict):
        raise NotCanonical("it is not canonical JSON: something was changed.")
    return values


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a document, in hexadecimal digits."""
    return sha256(canonical_json(document).encode()).hexdigest()


def _by_server(document: Mapping[str, Any]) -> bytes:
    signed = {"statement": digest_of(document), "roster": document["roster"]}
    return _SERVER + canonical_json(signed).encode()


def _by_party(document: Mapping[str, Any], party: PartySignature) -> bytes:
    said = party.to_dict()
    del said["signature"]
    signed = {"statement": digest_of(document), "roster": document["roster"], **said}
    return _PARTY + canonical_json(signed).encode()


def is_signed(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the owner of the public Ed25519 ``key`` signed ``data``."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def _read_party(values: Any) -> PartySignature:
    return PartySignature(
        number=values["number"],
        name=values["name"],
        head=values["ledger"]["head"],
        rows=values["ledger"]["rows"],
        releases=values["releases"],
        signature=from_hex(values["signature"], _SIGNATURE_BYTES),
    )


def from_hex(text: Any, size: int) -> bytes:
    """So many bytes, from lower-case hexadecimal digits and no other text."""
    try:
        data = bytes.fromhex(text)
    except (ValueError, TypeError):
        raise NotCanonical("a hash or a signature must be hexadecimal digits.") from None
    if len(data) != size or data.hex() != text:
        raise NotCanonical(f"a hash or a signature must be {2 * size} hexadecimal digits.")
    return data


def _require_shallow(value: Any, depth: int) -> None:
    if not depth:
        raise NotCanonical("it is nested too deeply.")
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for each in inner:
            _require_shallow(each, depth - 1)
