"""`fedpriv dossier`: what a privacy officer files about a finished run, signed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson
from fedpriv.simulations.refusals import refusals


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(dossier)


def dossier(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The directory of a finished run.", show_default=False),
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            help="Private Ed25519 key to sign with, in PEM; for example, that of a deployed server."
        ),
    ] = None,
    new_key: Annotated[
        Path | None, typer.Option(help="Create such a key in this file first, and sign with it.")
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="audit.json of `fedpriv audit` on the same experiment, or its folder."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the dossier; RUN-dossier by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create and sign the dossier of a run, for a privacy officer's files.

    The dossier is a folder with a page for people (dossier.html), the same for programs
    (dossier.json), a draft for the OpenDP deployments registry (registry.yaml), and the files of
    the run on which everything is based (evidence/). The page answers the questions of NIST SP
    800-226 line by line. It also has an annex for a data-protection impact assessment, the audit,
    who could see what, and what is not covered.

    Of a release only the files of its outcome are read, so a dossier reveals nothing about a record
    that the release did not reveal. It states facts, and makes no legal claims.

    The whole dossier is signed with Ed25519, with the head of the ledger: `fedpriv verify` checks
    it offline. Distribute the public key, which is printed, by another channel than the dossier.

    [bold]Example[/]:

        fedpriv dossier results/mine/… --new-key officer.pem --audit audited
    """
    from datetime import UTC, datetime

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedpriv.simulations.deploy import keys
    from fedpriv.simulations.dossier.bundle import write_bundle
    from fedpriv.simulations.dossier.evidence import Evidence, model_hash

    if (key is None) == (new_key is None):
        raise ValueError(
            "a dossier is signed by one key: give --key FILE, or --new-key FILE to make one there."
        )
    if new_key is not None and new_key.exists():
        raise ValueError(
            f"--new-key {str(new_key)!r} exists. If it is your key, sign with it by --key; else "
            "choose another name: whoever knows the public half knows this one."
        )
    with refusals():
        evidence = Evidence.of_run(run, audit=audit)
        folder = _folder(run, out)
        if new_key is not None:
            keys.write_private(new_key, keys.identity_private(Ed25519PrivateKey.generate()))
        signer = keys.read_identity(key or new_key or Path())
        signed = write_bundle(
            folder,
            evidence,
            signer,
            models=model_hash(run),
            signed_on=datetime.now(tz=UTC).date().isoformat(),
        )
    if as_json:
        print_json(
            {
                "directory": str(folder),
                "run": evidence.run,
                "simulated": evidence.simulated,
                "signer": signed.signer,
                "ledger": signed.about["ledger"],
                "files": sorted(signed.files),
            }
        )
        return
    if evidence.simulated:
        typer.echo(
            "SIMULATED: this run spent no privacy and guarantees nothing; its dossier says so."
        )
    if "dossier.html" not in signed.files:
        typer.echo("no page: it needs Jinja. Install it with `pip install 'fedpriv[report]'`.")
    typer.echo(f"dossier of {evidence.run}: {folder}")
    typer.echo(f"signed by {signed.signer}")
    typer.echo(f"check it: fedpriv verify {folder} --signer {signed.signer}")


def _folder(run: Path, out: Path | None) -> Path:
    """Where to write: never among the files of the run, which are what its statement says."""
    folder = run.resolve().with_name(f"{run.resolve().name}-dossier") if out is None else out
    if folder.resolve().is_relative_to(run.resolve()):
        raise ValueError(
            f"--out {str(folder)!r} must not lie in the directory of the run: a dossier is not "
            f"part of its outcome. Choose another place."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"{str(folder)!r} exists and is not an empty directory: what was signed stays as it "
            f"is. "
            "Choose another place with --out."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{str(folder)!r} cannot be made: {error.strerror}.") from None
    return folder
