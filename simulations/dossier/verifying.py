"""Verify a bundle offline: signature, files, and that the dossier follows from its evidence.

Without the signer's public key, a signature proves only that nothing was changed after signing;
with it, also who signed. Everything else is recomputed from the evidence in the bundle: the dossier
and its page to the byte, ε from the releases, and the statement of a deployed run as
`fedpriv.federation.deployed.statements.verifying` does. A ledger can be checked against its head.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedpriv import __version__
from fedpriv.federation.deployed.statements.attesting import require_paid
from fedpriv.federation.deployed.statements.stated_guarantee import recomputed_guarantee
from fedpriv.federation.deployed.statements.statement_document import Finding
from fedpriv.federation.deployed.statements.verifying import Verdict
from fedpriv.federation.deployed.statements.verifying import verify as verify_statement
from fedpriv.federation.party.guard import QueryRefused
from fedpriv.privacy.statement.signed import NotCanonical
from fedpriv.privacy.statement.signed_files import SignedFiles, hash_of, read_signed_files
from fedpriv.simulations.dossier.bundle import EVIDENCE, KIND, MANIFEST, about, made
from fedpriv.simulations.dossier.content import NUMBERS, PAGE, REGISTRY
from fedpriv.simulations.dossier.evidence import AUDIT, MODELS, NEEDED, Evidence
from fedpriv.simulations.run.release_outcome import SIGNED
from fedpriv.simulations.run.statement.wording import Wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from fedpriv.federation.deployed.statements.verifying import Pinned
    from fedpriv.privacy.ledger.view import LedgerView

_KNOWN = {NUMBERS, PAGE, REGISTRY, *(f"{EVIDENCE}/{name}" for name in (*NEEDED, SIGNED, AUDIT))}
_MOST_BYTES = 1 << 26
_DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)
_TAKEN = Finding(
    check="not covered",
    passed=None,
    words="that the evidence is what the run left, and that noise was drawn as stated: of a "
    "release in one place that is the signer's word.",
)
_OWN_WORDS = Finding(
    check="not covered",
    passed=None,
    words="metrics, in result.json, and an audit: no party signs them, and they are as the signer "
    "says.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleVerdict:
    """What was found of a bundle.

    Attributes:
        digest: SHA-256 of the text that was signed.
        verdict: The findings, and who did not sign the statement of a deployed run.
    """

    digest: str
    verdict: Verdict


def manifest_of(path: Path) -> Path | None:
    """The file of signatures of a bundle, or of the folder that it is in; None if it is none."""
    if path.name == MANIFEST and path.is_file():
        return path
    inside = path / MANIFEST
    return inside if inside.is_file() else None


def verify_bundle(
    manifest: Path,
    *,
    signer: str | None = None,
    roster: Pinned | None = None,
    ledger: LedgerView | None = None,
) -> BundleVerdict:
    """Check all that can be checked of a bundle.

    Args:
        manifest: Its `dossier.signed.json`.
        signer: The public key of who must have signed, in hexadecimal digits.
        roster: That a deployed run must be of.
        ledger: That the run must have been paid from.

    Raises:
        NotCanonical: It is no manifest, or was changed.
    """
    text = _bytes(manifest)
    signed = read_signed_files(text)
    if signed.about.get("kind") != KIND:
        raise NotCanonical("it does not sign for a dossier.")
    findings = [_signature(signed), _signer(signed, signer)]
    files, complaint = _files(manifest.parent, signed)
    findings.append(complaint)
    missing: tuple[str, ...] = ()
    if complaint.passed:
        rest, missing = _contents(signed, files, roster, ledger)
        findings += rest
    return BundleVerdict(
        digest=hash_of(text), verdict=Verdict(findings=tuple(findings), missing=missing)
    )


def _signature(signed: SignedFiles) -> Finding:
    good = signed.signed
    words = f"of the key {signed.signer}." if good else "it is false: something was changed."
    return Finding(check="signature", passed=good, words=words)


def _signer(signed: SignedFiles, wanted: str | None) -> Finding:
    if wanted is None:
        words = "whose that key is: it is taken from the bundle itself. Give --signer."
        return Finding(check="signer", passed=None, words=words)
    good = wanted == signed.signer
    words = "it is the key given." if good else f"another key was given: {wanted}."
    return Finding(check="signer", passed=good, words=words)


def _files(folder: Path, signed: SignedFiles) -> tuple[dict[str, bytes], Finding]:
    """What is in the folder, if it is what was signed for and nothing else."""

    def wrong(words: str) -> tuple[dict[str, bytes], Finding]:
        return {}, Finding(check="files", passed=False, words=words)

    if unknown := sorted(signed.files.keys() - _KNOWN):
        return wrong(f"no dossier has a file {unknown[0]!r}.")
    there = {
        str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()
    } - {MANIFEST}
    if extra := sorted(there - signed.files.keys()):
        return wrong(f"{extra[0]!r} is among the files, but not signed.")
    if missing := sorted(signed.files.keys() - there):
        return wrong(f"{missing[0]!r} is signed for, and missing.")
    found = {name: _bytes(folder / name) for name in signed.files}
    changed = sorted(name for name, data in found.items() if hash_of(data) != signed.files[name])
    if changed:
        return wrong(f"{changed[0]!r} was changed since it was signed for.")
    words = f"{len(found)} files, each as it was signed for, and no other."
    return found, Finding(check="files", passed=True, words=words)


def _contents(
    signed: SignedFiles,
    files: Mapping[str, bytes],
    roster: Pinned | None,
    ledger: LedgerView | None,
) -> tuple[list[Finding], tuple[str, ...]]:
    """What follows from the evidence, and who did not sign the statement of a deployed run."""
    own = f"{EVIDENCE}/"
    try:
        evidence = Evidence.of_files(
            {name.removeprefix(own): data for name, data in files.items() if name.startswith(own)}
        )
        findings = [*_again(signed, files, evidence), _about(signed, evidence)]
        if evidence.simulated:
            with suppress(ValueError):  # of noise that promises nothing, a statement is not read
                findings += list(_words(evidence))
            words = "it is a dossier of a simulation, which guarantees nothing."
            return [*findings, Finding(check="epsilon", passed=None, words=words)], ()
        findings += _words(evidence)
        if evidence.signed is None:
            findings += recomputed_guarantee(evidence.statement)
            return [*findings, _paid(evidence, ledger), *_left(signed, roster), _TAKEN], ()
        verdict = verify_statement(evidence.signed, roster=roster, ledger=ledger)
        findings += [_of_document(signed, evidence), _OWN_WORDS]
        return [*findings, *verdict.findings, *_left(signed, None)], verdict.missing
    except _DAMAGED as error:
        words = f"the dossier cannot be made from it: {error}"
        return [Finding(check="evidence", passed=False, words=words)], ()


def _again(signed: SignedFiles, files: Mapping[str, bytes], evidence: Evidence) -> list[Finding]:
    """Whether page, document and registry entry are what the evidence makes.

    Another version of fedpriv may use other words, but anybody can claim that one did. So this
    check fails, too: only that version can verify it.
    """
    version, drawn = signed.about["made_with"], find_spec("jinja2") is not None
    for name, data in made(evidence, with_page=PAGE in files and drawn).items():
        if files.get(name) != data:
            words = f"{name!r} does not follow from the evidence."
            if version != __version__:
                words += (
                    f" It says that fedpriv {version} made it, and this is {__version__}, which "
                    "may use other words: verify it with that one."
                )
            return [Finding(check="dossier", passed=False, words=words)]
    words = "document, page and registry entry follow from the evidence, to the byte."
    if PAGE in files and not drawn:
        unseen = f"{PAGE} was not looked at: install fedpriv[report], which draws it."
        words = "document and registry entry follow from the evidence, to the byte."
        return [
            Finding(check="dossier", passed=True, words=words),
            Finding(check="page", passed=None, words=unseen),
        ]
    return [Finding(check="dossier", passed=True, words=words)]


def _about(signed: SignedFiles, evidence: Evidence) -> Finding:
    """Whether run and head that were signed for are those of the statement."""
    ledger = evidence.statement["ledger"]
    head = None if ledger is None else {"head": ledger["head"], "rows": ledger["rows"]}
    good = signed.about["run"] == evidence.run and signed.about["ledger"] == head
    if unknown := sorted(signed.about.keys() - {*about(evidence, models={}, signed_on="")}):
        words = f"it is signed for {unknown[0]!r}, too, and no dossier says anything of that."
        return Finding(check="run", passed=False, words=words)
    where = "no ledger" if head is None else f"ledger of {head['rows']} rows, head {head['head']}"
    words = (
        f"{evidence.run}, {where}; signed on {signed.about['signed_on']}, as the signer says."
        if good
        else "run, or head of the ledger, are not those of the statement."
    )
    return Finding(check="run", passed=good, words=words)


def _words(evidence: Evidence) -> Iterator[Finding]:
    """Whether the text, which the page shows, and the entry are those of the statement."""
    wording, files = Wording.of(evidence.statement, result=evidence.result), evidence.files
    for check, name, wrong in (
        ("text", "statement.txt", wording.of_text(files["statement.txt"])),
        ("registry", "statement.yaml", wording.of_entry(files["statement.yaml"])),
    ):
        words = f"{name} says what the statement says."
        if wrong:
            words = f"{name} does not follow from statement.json: {wrong}.{wording.elsewhere}"
        elif check == "text" and not wording.vouched:
            words += " Its coefficients are those of result.json, as the signer says."
        yield Finding(check=check, passed=not wrong, words=words)


def _of_document(signed: SignedFiles, evidence: Evidence) -> Finding:
    """Whether the signed statement is of this experiment, and of what was released: one file."""
    document = evidence.signed.document if evidence.signed is not None else {}
    (name,) = signed.about["released"] if len(signed.about["released"]) == 1 else (None,)
    good = (
        document["experiment"] == hash_of(evidence.files["config.toml"])
        and name in MODELS
        and signed.about["released"][name] == document["model"]
    )
    words = "it is of this config.toml, and of what was released."
    return Finding(check="signed for", passed=good, words=words if good else f"NOT so: {words}")


def _paid(evidence: Evidence, ledger: LedgerView | None) -> Finding:
    """Whether a ledger has the row whose hash is the head, and paid for nothing unstated."""
    stated = evidence.statement["ledger"]
    if ledger is None or stated is None:
        words = "what the ledger holds: only its head is here. Give --ledger."
        return Finding(check="ledger", passed=None if ledger is None else False, words=words)
    if ledger.hash_of(stated["rows"]) != stated["head"]:
        words = "the ledger given does not have the head that was signed."
        return Finding(check="ledger", passed=False, words=words)
    try:
        require_paid({"statement": evidence.statement}, ledger)
    except QueryRefused as error:
        return Finding(check="ledger", passed=False, words=str(error))
    words = "the ledger given has the row that was signed, and no release that is not stated."
    return Finding(check="ledger", passed=True, words=words)


def _left(signed: SignedFiles, roster: Pinned | None) -> Iterator[Finding]:
    """What cannot be checked from the bundle."""
    if roster is not None:
        words = "it is of no deployed run, and no roster has anything to do with it."
        yield Finding(check="roster", passed=False, words=words)
    for name, digest in signed.about["released"].items():
        words = f"whether a {name} is the one of this run: its SHA-256 must be {digest}."
        yield Finding(check="released", passed=None, words=words)


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise NotCanonical(f"{path.name!r} is no file.")
        if path.stat().st_size > _MOST_BYTES:
            raise NotCanonical(f"{path.name!r} must have at most {_MOST_BYTES} bytes.")
        return path.read_bytes()
    except OSError as error:
        raise NotCanonical(f"{path.name!r} cannot be read: {error.strerror}.") from None
