"""Attesting a statement: a party signs it only if its own ledger says the same of its records.

A party believes nothing here that it can check. It signs a document if

- its server signed it, and it is of the party's own roster, number and name, and of its peers;
- it is of the experiment that the party is shown, whose hash is in the run's name, and states the
  protection of that experiment, which is the one that the party answered under;
- ε and its other forms, the threshold and n_min follow from the rest of it
  (`statement_document.recomputed`);
- its ledger has paid for at least one release of this run, under the same adjacency and for the
  same unit, and for none that is not stated: for every event at most as often as the document says.
  What the run cost its records is then at most the stated ε. *Proof.* The releases that it paid for
  are some of those stated, and (ε, δ) of a part of fixed releases is at most that of all. ∎

It signs how many releases it paid for: who was missing from some sums says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.statement_document import (
    Member,
    Unsound,
    members_of,
    recomputed,
    releases_of,
    run_of,
)
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.ledger import Kind
from fedpriv.privacy.ledger.reservations import allowances, declaration_to_dict
from fedpriv.privacy.statement.signed import PartySignature, sign_as_party

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.privacy.ledger.view import LedgerView
    from fedpriv.privacy.statement.signed import SignedStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatory:
    """A party that is asked to sign.

    Attributes:
        number: Its own.
        name: Its own.
        identity: Its private key.
        roster: The digest of its own roster, in hexadecimal digits.
        members: The parties of that roster, itself among them.
        server: The server's public identity, as its own roster or policy pins it.
        run: What the names of the runs of the experiment begin with that it is shown.
        protection: What that experiment asks for.
    """

    number: int
    name: str
    identity: Ed25519PrivateKey
    roster: str
    members: tuple[Member, ...]
    server: bytes
    run: str
    protection: Protection


def attest(signed: SignedStatement, ledger: LedgerView, signatory: Signatory) -> PartySignature:
    """A party's signature on a statement.

    Raises:
        QueryRefused: It does not sign, and why.
    """
    document = signed.document
    require_by_server(signed, signatory.server)
    if document["roster"] != signatory.roster:
        raise QueryRefused("the statement is of another roster than this party's.")
    try:
        members = members_of(document)
    except Unsound as error:
        raise QueryRefused(f"the statement does not hold together: {error}") from None
    own = signatory.identity.public_key().public_bytes_raw()
    if Member(number=signatory.number, name=signatory.name, identity=own) not in members:
        raise QueryRefused("the statement does not name this party as its roster does.")
    if members != signatory.members:
        raise QueryRefused("the statement names other parties than those of the roster.")
    _require_protection(document, signatory)
    for finding in recomputed(document):
        if not finding.passed:
            raise QueryRefused(f"the statement is wrong ({finding.check}): {finding.words}")
    return sign_as_party(
        document,
        signatory.identity,
        number=signatory.number,
        name=signatory.name,
        head=ledger.head,
        rows=ledger.length,
        releases=require_paid(document, ledger),
    )


def _require_protection(document: Mapping[str, Any], signatory: Signatory) -> None:
    """Refuse masks that the run did not have: its own experiment says which ones it had."""
    try:
        name, masks = run_of(document), document["masks"]
        stated = None if masks is None else {key: masks[key] for key in asdict(Protection())}
    except (Unsound, KeyError, TypeError):
        raise QueryRefused("the statement does not say how answers were protected.") from None
    if name != signatory.run and not name.startswith(f"{signatory.run}-"):
        raise QueryRefused("the statement is of another experiment than this party is shown.")
    own = signatory.protection
    if stated != (asdict(own) if own.masked else None):
        raise QueryRefused("the statement tells of other masks than those of its experiment.")


def require_by_server(signed: SignedStatement, server: bytes) -> None:
    """Refuse a statement that the party's own server did not sign."""
    if signed.document.get("server") != server.hex() or not signed.signed_by_server(server):
        raise QueryRefused("the statement is not signed by this party's server.")


def require_paid(document: Mapping[str, Any], ledger: LedgerView) -> int:
    """How many of the stated releases a ledger paid for; refuses a run that it knows otherwise.

    Raises:
        QueryRefused: It paid for none, for one that is not stated, under another adjacency, or for
            another unit.
    """
    try:
        run, block = run_of(document), releases_of(document)
    except Unsound as error:
        raise QueryRefused(f"the statement does not hold together: {error}") from None
    adjacency, unit = ledger.settings.adjacency, ledger.settings.unit
    if any(event.adjacency is not adjacency for event, _ in block):
        raise QueryRefused(
            f"the statement is not under {adjacency.value!r} adjacency, as this party's ledger is."
        )
    if any(event.unit is not unit for event, _ in block):
        raise QueryRefused(
            f"the statement is not for unit {unit.value!r}, as this party's ledger is."
        )
    paid = Counter(
        row.detail for row in ledger.rows() if (row.kind, row.run) == (Kind.RESERVED.value, run)
    )
    if not paid:
        raise QueryRefused("this party's ledger has paid for no release of this run.")
    if paid - allowances(declaration_to_dict(block, None)):
        raise QueryRefused(
            "this party's ledger has paid for releases of this run that are not stated, or for "
            "more of them."
        )
    return paid.total()
