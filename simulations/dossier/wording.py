"""Wording of a dossier: whether the text and the entry for a registry say what the statement says.

What is signed, and computed again, is ``statement.json``. What people read is its text, which the
page of a dossier shows in full, and what a registry takes is ``statement.yaml``. Both are written
again here from the values: who signs a dossier cannot say in words what no party has signed.

In the entry a person fills in blanks. What stands there is that person's; all else is as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from fedpriv import __version__
from fedpriv.federation.deployed.statements.statement_document import Finding
from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.privacy.statement import to_registry_yaml, to_text
from fedpriv.privacy.statement.reading import read_values
from fedpriv.privacy.statement.registry import BLANK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.dossier.evidence import Evidence

_TEXT, _ENTRY = "statement.txt", "statement.yaml"
_DESCRIBED = "deployment"
"""The part of an entry that is about the run; the rest is for the registry to sort by."""


def in_the_words_of(evidence: Evidence) -> Iterator[Finding]:
    """Whether the text, and the entry, are those of the statement."""
    released = evidence.result.get("coefficients")
    lines = () if released is None else CoefficientTable.from_dict(released).lines()
    statement = read_values(evidence.statement, coefficients=tuple(lines))
    same = to_text(statement).encode() == evidence.files[_TEXT]
    found = _finding("text", _TEXT, statement.version, complaint="" if same else "it says else")
    if released is not None:
        words = f"{found.words} Its coefficients are those of result.json, as the signer says."
        found = replace(found, words=words)
    yield found
    entry = yaml.safe_load(to_registry_yaml(statement))
    place = _departs(entry[_DESCRIBED], evidence.registry[_DESCRIBED], _DESCRIBED)
    yield _finding("registry", _ENTRY, statement.version, complaint=place and f"{place} is another")


def _finding(check: str, name: str, version: str, *, complaint: str) -> Finding:
    if not complaint:
        return Finding(check=check, passed=True, words=f"{name} says what the statement says.")
    words = f"{name} does not follow from statement.json: {complaint}."
    if version != __version__:
        words += (
            f" fedpriv {version} wrote it, and this is {__version__}, which may use other words: "
            "verify it with that one."
        )
    return Finding(check=check, passed=False, words=words)


def _departs(own: Any, stated: Any, place: str) -> str:
    """Where an entry is not what it must be, but for blanks that were filled in; empty if so."""
    match own, stated:
        case dict(), dict() if own.keys() == stated.keys():
            parts = (_departs(own[key], stated[key], f"{place}.{key}") for key in own)
            return next(filter(None, parts), "")
        case [blank], list() if blank == BLANK:
            return "" if all(isinstance(each, str) for each in stated) else place
        case str(), str() if own == BLANK:
            return ""
    return "" if own == stated and type(own) is type(stated) else place
