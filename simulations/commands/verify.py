"""`fedpriv verify`: a signed statement, or a dossier, checked without a network."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson

if TYPE_CHECKING:
    from fedpriv.federation.deployed.statements.verifying import Verdict

_WORDS = {True: "ok", False: "FAILED", None: "not checked"}


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(verify)


def verify(
    statement: Annotated[
        Path,
        typer.Argument(
            metavar="STATEMENT",
            help="statement.signed.json, or the directory that contains it; or the folder of a "
            "dossier.",
        ),
    ],
    roster: Annotated[
        Path | None, typer.Option(help="roster.toml, which states the public keys.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of a member, to check against its signed head.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="Public key, in hexadecimal digits, that signed a dossier.")
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="Fail unless every party has signed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a signed statement, or a dossier: signatures, epsilon, threshold and n_min.

    Works offline. The cost of the releases is recomputed from their events. A dossier is rebuilt
    from its evidence, and compared to the byte. The exit status is 1 if anything fails.

    [bold]Example[/]:

        fedpriv verify results/statement.signed.json --roster roster.toml
    """
    from fedpriv.federation.deployed.statements.verifying import verify as verified
    from fedpriv.privacy.ledger import Ledger, LedgerError
    from fedpriv.privacy.statement.signed import NotCanonical
    from fedpriv.simulations.deploy.run.jobs.statement_file import (
        files_beside,
        pinned,
        read_statement,
    )
    from fedpriv.simulations.dossier.verifying import manifest_of, verify_bundle

    trusted = None if roster is None else pinned(roster)
    manifest = manifest_of(statement)
    if manifest is None and signer is not None:
        raise ValueError(
            f"--signer is for a dossier, and {str(statement)!r} is not one. Leave it out: the "
            f"keys "
            f"of a "
            "statement are those of --roster."
        )
    try:
        with ExitStack() as stack:
            book = None
            if ledger is not None:
                book = stack.enter_context(Ledger.open(ledger, read_only=True))
                book.verify()
            if manifest is not None:
                bundle = verify_bundle(manifest, signer=signer, roster=trusted, ledger=book)
                what, digest, verdict = "dossier", bundle.digest, bundle.verdict
            else:
                signed = read_statement(statement)
                what, digest = "statement", signed.digest
                verdict = verified(signed, roster=trusted, ledger=book)
                if statement.is_dir():
                    beside = files_beside(statement, signed)
                    verdict = replace(verdict, findings=(*verdict.findings, beside))
    except (NotCanonical, LedgerError) as error:
        _fail(str(error), as_json=as_json)
    sound = verdict.sound and not (complete and verdict.missing)
    if as_json:
        print_json(
            {
                "sound": sound,
                what: digest,
                "missing": list(verdict.missing),
                "findings": [asdict(finding) for finding in verdict.findings],
            }
        )
    else:
        _print(verdict, what, digest, sound=sound)
    if not sound:
        raise typer.Exit(1)


def _fail(why: str, *, as_json: bool) -> NoReturn:
    """Say what cannot even be looked at: the file was changed, or the ledger."""
    if as_json:
        print_json({"sound": False, "statement": None, "missing": [], "findings": [], "why": why})
    else:
        _say("file", f"{_WORDS[False]}: {why}")
    raise typer.Exit(1)


def _print(verdict: Verdict, what: str, digest: str, *, sound: bool) -> None:
    typer.echo(f"{what:<14} {digest}")
    for finding in verdict.findings:
        _say(finding.check, f"{_WORDS[finding.passed]}: {finding.words}")
    for name in verdict.missing:
        _say(f"party {name}", "MISSING: it has not signed.")
    typer.echo(f"The {what} holds." if sound else f"The {what} does NOT hold.")


def _say(what: str, words: str) -> None:
    """One line; whoever made the file must not write others, or over them."""
    from fedpriv.federation.exchange_report import one_line

    typer.echo(f"{one_line(what):<14} {one_line(words)}")
