"""Content of a dossier: one document of JSON-ready values, and the page that is drawn from it.

The document depends on the evidence alone, to the byte, so anyone with the evidence can reproduce
it; and the page depends on the document alone. Neither contains the time of its creation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fedpriv.privacy.rounding import rounded_up
from fedpriv.privacy.statement.registry import BLANK
from fedpriv.privacy.statement.signed_files import hash_of
from fedpriv.privacy.statement.statement import SIMULATED
from fedpriv.privacy.unit import Unit
from fedpriv.simulations.dossier.annex import annex
from fedpriv.simulations.dossier.facts_of_run import audit_sentence
from fedpriv.simulations.dossier.questions import answers
from fedpriv.simulations.report.curves import begun
from fedpriv.simulations.report.parts import Cell, Document, Listing, Section, Table, Text, facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedpriv.simulations.dossier.evidence import Evidence

FORMAT = "fedpriv dossier 1"
NUMBERS, PAGE, REGISTRY = "dossier.json", "dossier.html", "registry.yaml"
RELEASED = "A release: privacy was spent."
NO_ADVICE = (
    "A dossier states facts about one run, taken from its files. It is no legal assessment, and "
    "does not say that any law or standard is met."
)


def content(evidence: Evidence) -> dict[str, Any]:
    """The dossier of a run."""
    statement = evidence.statement
    return {
        "format": FORMAT,
        "run": evidence.run,
        "status": statement["status"],
        "fedpriv": statement["fedpriv"],
        "kind": _kind(evidence),
        "guarantee": statement["guarantee"],
        "questions": [each.to_dict() for each in answers(evidence)],
        "impact_assessment": annex(evidence),
        "who_sees_what": statement["trust"]["sees"],
        "not_protected": statement["unprotected"],
        "not_covered": statement["not_covered"],
        "warnings": statement["warnings"],
        "audit": evidence.audit,
        "ledger": statement["ledger"],
        "registry": {"entry": evidence.registry, "blanks": sorted(_blanks(evidence.registry, ""))},
        "evidence": {name: hash_of(data) for name, data in sorted(evidence.files.items())},
    }


def _kind(evidence: Evidence) -> str:
    if evidence.simulated:
        return "simulated"
    return "deployed" if evidence.deployed else "released in one place"


def _blanks(value: Any, place: str) -> Iterator[str]:
    """The blanks that a person must fill in."""
    match value:
        case dict():
            for key, each in value.items():
                yield from _blanks(each, f"{place}.{key}" if place else str(key))
        case list():
            for each in value:
                yield from _blanks(each, place)
        case str() if value == BLANK:
            yield place


def to_text(values: Mapping[str, Any]) -> str:
    """The one text of ``dossier.json``."""
    return json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"


def page_of(values: Mapping[str, Any], evidence: Evidence) -> str:
    """``dossier.html``: a dossier for people, in one file that loads nothing."""
    from fedpriv.simulations.report.render import page

    return page(_document(values, evidence).to_dict() | {"numbers": NUMBERS})


def _document(values: Mapping[str, Any], evidence: Evidence) -> Document:
    told = values["guarantee"]
    simulated = values["kind"] == "simulated"
    pair = f"(ε, δ) = ({rounded_up(told['epsilon'])}, {rounded_up(told['delta'])})"
    return Document(
        kind="dossier",
        title=f"Privacy dossier: {values['run']}",
        status=f"{SIMULATED}." if simulated else RELEASED,
        simulated=simulated,
        version=str(values["fedpriv"]),
        question=NO_ADVICE,
        headline=f"{pair} for {Unit(told['unit']).words}, under {told['adjacency']} adjacency.",
        facts=facts("facts", "The run", _facts(values)),
        sections=(
            _warnings(values),
            *_questions(values),
            _audit(values, evidence),
            _annex(values),
            _registry(values, evidence),
            _evidence(values, evidence),
        ),
    )


def _facts(values: Mapping[str, Any]) -> dict[str, Cell]:
    told, ledger = values["guarantee"], values["ledger"]
    head = "none" if ledger is None else f"{ledger['head'][:16]}…, row {ledger['rows']}"
    return {
        "kind": Cell(text=values["kind"]),
        "ε": Cell(text=rounded_up(told["epsilon"]), value=told["epsilon"]),
        "δ": Cell(text=rounded_up(told["delta"]), value=told["delta"]),
        "unit": Cell(text=told["unit"]),
        "adjacency": Cell(text=told["adjacency"]),
        "head of the ledger": Cell(text=head),
    }


def _warnings(values: Mapping[str, Any]) -> Section:
    lists = (
        ("Read this first", values["warnings"]),
        ("Who could see what", values["who_sees_what"]),
        ("Not protected", values["not_protected"]),
        ("Not covered", values["not_covered"]),
    )
    return Section(
        id="who-sees-what",
        title="Who could see what, and what is not covered",
        lists=tuple(
            Listing(title=title, items=tuple(map(begun, items))) for title, items in lists if items
        ),
    )


def _questions(values: Mapping[str, Any]) -> Iterator[Section]:
    """A section for each topic."""
    topics = dict.fromkeys(each["topic"] for each in values["questions"])
    for number, topic in enumerate(topics, start=1):
        asked = [each for each in values["questions"] if each["topic"] == topic]
        yield Section(
            id=f"questions-{number}",
            title=topic,
            words=("Questions of NIST SP 800-226, in our words.",) if number == 1 else (),
            tables=(
                Table(
                    id=f"answers-{number}",
                    title=f"{topic}: question, answer, and where it is found",
                    columns=("question", "answer", "source"),
                    numeric=(False,) * 3,
                    rows=tuple(
                        (Cell(text=q["question"]), Cell(text=q["answer"]), Cell(text=q["source"]))
                        for q in asked
                    ),
                ),
            ),
        )


def _audit(values: Mapping[str, Any], evidence: Evidence) -> Section:
    audit = values["audit"]
    words = () if audit is None else (audit_sentence(evidence, audit),)
    return Section(id="audit", title="Audit", words=words)


def _annex(values: Mapping[str, Any]) -> Section:
    told = values["impact_assessment"]
    groups = {**told["facts"], "to be filled in": told["to be filled in"]}
    return Section(
        id="impact-assessment",
        title="Annex to a data-protection impact assessment",
        words=(NO_ADVICE,),
        lists=tuple(
            Listing(title=begun(title), items=tuple(map(begun, items)))
            for title, items in groups.items()
            if items
        ),
    )


def _registry(values: Mapping[str, Any], evidence: Evidence) -> Section:
    blanks = ", ".join(values["registry"]["blanks"])
    return Section(
        id="registry",
        title="Entry for a registry of deployments",
        words=(
            f"A draft in the form of the OpenDP deployments registry. To be filled in: {blanks}.",
        ),
        texts=(Text(title=REGISTRY, text=evidence.files["statement.yaml"].decode()),),
    )


def _evidence(values: Mapping[str, Any], evidence: Evidence) -> Section:
    rows = {name: Cell(text=digest) for name, digest in values["evidence"].items()}
    return Section(
        id="evidence",
        title="Evidence",
        words=(
            (
                "Everything above follows from these files, which are in evidence/. `fedpriv "
                "verify` rebuilds it from them, and checks the signature of the whole, offline."
            ),
        ),
        tables=(facts("hashes", "SHA-256 of each", rows),),
        texts=tuple(
            Text(title=name, text=evidence.files[name].decode())
            for name in ("statement.txt", "config.toml")
        ),
    )
