"""Bundle of a dossier: a folder with page, document, registry entry and evidence, signed.

dossier.html          for people: one file that loads nothing
dossier.json          the same for programs
registry.yaml         a draft for the OpenDP deployments registry
evidence/             the files of the run that all of it follows from
dossier.signed.json   SHA-256 of all these, the head of the ledger, and the signature
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedpriv import __version__
from fedpriv._durable import replace_file
from fedpriv.privacy.statement.signed_files import sign_files
from fedpriv.simulations.dossier.content import (
    NUMBERS,
    PAGE,
    REGISTRY,
    content,
    page_of,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.privacy.statement.signed_files import SignedFiles
    from fedpriv.simulations.dossier.evidence import Evidence

MANIFEST = "dossier.signed.json"
EVIDENCE = "evidence"
KIND = "fedpriv dossier"


def made(evidence: Evidence, *, with_page: bool) -> dict[str, bytes]:
    """All files of a bundle but the signature, by name."""
    values = content(evidence)
    files = {
        NUMBERS: to_text(values).encode(),
        REGISTRY: evidence.files["statement.yaml"],
        **{f"{EVIDENCE}/{name}": data for name, data in evidence.files.items()},
    }
    if with_page:
        files[PAGE] = page_of(values, evidence).encode()
    return files


def about(evidence: Evidence, *, models: Mapping[str, str], signed_on: str) -> dict[str, Any]:
    """What is signed beside the files: run, head of its ledger, what was released, the day."""
    ledger = evidence.statement["ledger"]
    return {
        "kind": KIND,
        "run": evidence.run,
        "made_with": __version__,
        "ledger": None if ledger is None else {"head": ledger["head"], "rows": ledger["rows"]},
        "released": dict(models),
        "signed_on": signed_on,
    }


def write_bundle(
    directory: Path,
    evidence: Evidence,
    key: Ed25519PrivateKey,
    *,
    models: Mapping[str, str],
    signed_on: str,
) -> SignedFiles:
    """Write a bundle; the signature comes last."""
    files = made(evidence, with_page=find_spec("jinja2") is not None)
    signed = sign_files(files, key, about=about(evidence, models=models, signed_on=signed_on))
    (directory / EVIDENCE).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        replace_file(directory / name, data)
    replace_file(directory / MANIFEST, signed.to_text())
    return signed
