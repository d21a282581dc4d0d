"""Verify a signed statement offline: signatures, keys, ε, threshold and n_min, from it alone.

Without a roster of one's own the keys are those that the statement brings, and all that signatures
then prove is that it was not changed since. With one they prove who signed.

Not checked, because nobody can from here: that the noise was drawn by the stated law, that parties
answered truthfully, that the code was what it says. A ledger can be held against its signed head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.federation.deployed.statements.attesting import require_paid
from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.deployed.statements.stated_releases import made_of
from fedpriv.federation.deployed.statements.statement_document import (
    Finding,
    Member,
    members_of,
    recomputed,
)
from fedpriv.federation.party.guard import QueryRefused

if TYPE_CHECKING:
    from fedpriv.privacy.ledger.view import LedgerView
    from fedpriv.privacy.statement.signed import SignedStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A roster that the verifier trusts.

    Attributes:
        digest: Of it, in hexadecimal digits.
        server: The server's public identity.
        members: The parties.
    """

    digest: str
    server: bytes
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that was found.

    Attributes:
        findings: In the order of looking.
        missing: The parties that did not sign, by name.
    """

    findings: tuple[Finding, ...]
    missing: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing failed. Who did not sign is in `missing`."""
        return all(finding.passed is not False for finding in self.findings)


def verify(
    signed: SignedStatement, *, roster: Pinned | None = None, ledger: LedgerView | None = None
) -> Verdict:
    """Check everything that can be checked of a statement."""
    try:
        members = members_of(signed.document)
    except Unsound as error:
        return Verdict(
            findings=(Finding(check="statement", passed=False, words=str(error)),), missing=()
        )
    there = {each.number for each in signed.parties}
    found = recomputed(signed.document)
    return Verdict(
        findings=(
            _roster(signed, members, roster),
            _server(signed, roster),
            *of_parties(signed, members),
            *found,
            _ledger(signed, ledger, whole=all(each.passed for each in found)),
            Finding(
                check="not covered",
                passed=None,
                words="that noise was drawn, and answers were computed, as stated: no signature "
                "proves it.",
            ),
        ),
        missing=tuple(each.name for each in members if each.number not in there),
    )


def _roster(signed: SignedStatement, members: tuple[Member, ...], roster: Pinned | None) -> Finding:
    if roster is None:
        return Finding(
            check="roster",
            passed=None,
            words="whose the keys are: they are taken from the statement itself. Give --roster.",
        )
    if signed.document["roster"] != roster.digest:
        words = (
            f"the statement is of the roster {signed.document['roster']}, and the one given is "
            f"another, or of another epoch: {roster.digest}."
        )
    elif members != roster.members:
        words = "the statement names other parties or keys than the roster given."
    else:
        words = f"the parties and keys are those of the roster {roster.digest}."
        return Finding(check="roster", passed=True, words=words)
    return Finding(check="roster", passed=False, words=words)


def _server(signed: SignedStatement, roster: Pinned | None) -> Finding:
    try:
        stated = bytes.fromhex(signed.document["server"])
    except (KeyError, TypeError, ValueError):
        return Finding(check="server", passed=False, words="the statement names no server.")
    if roster is not None and stated != roster.server:
        words = "the statement names another server than the roster given."
        return Finding(check="server", passed=False, words=words)
    good = signed.signed_by_server(stated)
    words = "the server signed it." if good else "the server's signature is false."
    return Finding(check="server", passed=good, words=words)


def of_parties(signed: SignedStatement, members: tuple[Member, ...]) -> list[Finding]:
    """Of every party's signature, whether it is its own, and tells what a true one may tell."""
    known, made = {each.number: each for each in members}, _made(signed)
    findings = []
    for party in signed.parties:
        member = known.get(party.number)
        who = f"party {party.name}"
        if member is None or member.name != party.name:
            words, good = f"{party.name!r} signed as a party that it is not.", False
        elif not signed.signed_by_party(party, member.identity):
            words, good = f"the signature of {party.name} is false.", False
        elif not 0 < party.releases <= made:
            words, good = f"{party.name} signed for {party.releases} of {made} releases.", False
        else:
            words, good = (
                (
                    f"{party.name} signed: its ledger, of {party.rows} rows and head {party.head}, "
                    f"paid for {party.releases} of {made} releases."
                ),
                True,
            )
        findings.append(Finding(check=who, passed=good, words=words))
    return findings


def _made(signed: SignedStatement) -> int:
    try:
        return made_of(signed.document)
    except (Unsound, LookupError, TypeError, AttributeError):
        return 0


def _ledger(signed: SignedStatement, ledger: LedgerView | None, *, whole: bool) -> Finding:
    """Whether a ledger is one whose head was signed, as it was then or with rows added since.

    A ledger is held against a ``whole`` statement only: of another one no part need be what it is.
    """
    if ledger is None:
        return Finding(
            check="ledger",
            passed=None,
            words="what the ledgers hold: only their heads are here. Give --ledger.",
        )
    if not whole:
        words = "the ledger was not looked at: the statement is wrong by itself."
        return Finding(check="ledger", passed=None, words=words)
    heads = {each.name: (each.rows, each.head) for each in signed.parties}
    at_server = signed.document["statement"].get("ledger")
    if at_server is not None:
        heads["the server"] = (at_server["rows"], at_server["head"])
    for name, (rows, head) in heads.items():
        if ledger.hash_of(rows) == head:
            return _paid(signed, ledger, name)
    return Finding(
        check="ledger",
        passed=False,
        words="the given ledger has none of the signed heads.",
    )


def _paid(signed: SignedStatement, ledger: LedgerView, name: str) -> Finding:
    """Whether a ledger, with all rows added since, has paid for no release that is not stated."""
    known = f"the ledger given is that of {name}, and has the row that was signed"
    try:
        require_paid(signed.document, ledger)
    except QueryRefused as error:
        return Finding(check="ledger", passed=False, words=f"{known}. But {error}")
    return Finding(
        check="ledger", passed=True, words=f"{known}, and no release that is not stated."
    )
