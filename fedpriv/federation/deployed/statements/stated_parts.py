"""Stated parts: a signed statement says nothing beside what is looked at, or known to be words.

A key that no version of fedpriv writes would be read by people, signed by parties that did not look
at it, and verified by a program that does not know it. So there is none. Nor does a key decide by
being there what is looked at: a plan has the keys of its kind (`written_plan`).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from fedpriv.federation.deployed.statements.stated_epsilon import Unsound
from fedpriv.federation.protocol.level import Protection
from fedpriv.privacy.planning.filters import FILTERS
from fedpriv.privacy.planning.written_plan import require_written
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
_WORDS = "unit adjacency neighbours accountant accountant_version per_person"  # no numbers
_MASKS = "roster colluders missing minimum holders threshold"


def require_known_parts(document: Mapping[str, Any]) -> None:
    """Raise `Unsound` if a document has a key that nobody looks at, or lacks one."""
    for where, part, known in _parts(document):
        if unknown := set(part) - known:
            raise Unsound(f"{where} has a key that is not known: {min(unknown)!r}.")
        if missing := known - set(part):
            raise Unsound(f"{where} lacks a key: {min(missing)!r}.")
    statement = document["statement"]
    if statement["plan"]["accountant"] != statement["guarantee"]["accountant"]:
        raise Unsound("guarantee and plan were accounted for by different rules.")
    for where, values in _numbers(statement):
        for name, value in values.items():
            if type(value) not in (int, float, type(None)):
                raise Unsound(f"{name} of {where} must be a number, got {value!r}.")
    try:
        require_written(statement["plan"])
    except ValueError as error:
        raise Unsound(str(error)) from None
    if (statement["guarantee"]["accountant"] in FILTERS) != ("made" in statement["plan"]):
        raise Unsound("its plan is not of the kind that its accountant is for.")


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


def _numbers(statement: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is compared as numbers, and must not be a text that reads as one."""
    guarantee = statement["guarantee"]
    yield "guarantee", {k: v for k, v in guarantee.items() if k not in _WORDS.split()}
    yield "per_person", guarantee["per_person"]
    yield "budget", statement["plan"]["budget"]
    yield "ledger", {k: v for k, v in (statement["ledger"] or {}).items() if k != "head"}


def _names(kind: Any) -> set[str]:
    return {each.name for each in fields(kind)}
