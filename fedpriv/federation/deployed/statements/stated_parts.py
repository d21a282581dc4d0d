"""Stated parts: a signed statement says nothing beside what is looked at, or known to be words.

A key that no version of fedpriv writes would be read by people, signed by parties that did not look
at it, and verified by a program that does not know it. So there is none. The plan is a strategy's,
whose keys differ; what it says of noise and cost is computed again.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.statement.facts import LedgerFacts, RunFacts, TrustModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DOCUMENT = "roster server parties experiment model masks noise_shares statement"
_STATEMENT = (
    "status fedpriv guarantee run plan releases trust ledger unprotected not_covered warnings"
)
_GUARANTEE = (
    "unit adjacency neighbours epsilon delta records delta_times_units records_per_person "
    "per_person gdp_mu zcdp_rho attack_advantage accountant accountant_version"
)
_MASKS = "roster colluders missing minimum holders threshold"


def require_known_parts(document: Mapping[str, Any]) -> None:
    """Raise `Unsound` if a document has a key that nobody looks at.

    One that is missing is found where it is needed.
    """
    for where, part, known in _parts(document):
        if unknown := set(part) - known:
            raise Unsound(f"{where} has a key that is not known: {min(unknown)!r}.")


def _parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], set[str]]]:
    statement = document["statement"]
    guarantee, masks, ledger = statement["guarantee"], document["masks"], statement["ledger"]
    yield "it", document, {*_DOCUMENT.split()}
    for member in document["parties"]:
        yield "a party", member, {"number", "name", "identity"}
    yield "its statement", statement, {*_STATEMENT.split()}
    yield "guarantee", guarantee, {*_GUARANTEE.split()}
    yield "per_person", guarantee["per_person"], {"epsilon", "delta"}
    yield "run", statement["run"], _names(RunFacts) - {"coefficients"}  # which no party can check
    yield "trust", statement["trust"], {*_names(TrustModel), "sees", "tolerates"}
    if masks is not None:
        yield "masks", masks, {*_names(Protection), *_MASKS.split()}
    if ledger is not None:
        yield "ledger", ledger, _names(LedgerFacts)


def _names(kind: Any) -> set[str]:
    return {each.name for each in fields(kind)}
