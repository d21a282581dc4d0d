"""`fedpriv check`: somebody's settings and claim in, what they truly guarantee out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson
from fedpriv.simulations.refusals import refusals

FALSE = 1
"""The claim does not hold."""


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(check)


def check(
    claim: Annotated[
        Path | None,
        typer.Argument(
            metavar="CLAIM.toml",
            help="The file with the settings and the claim.",
            show_default=False,
        ),
    ] = None,
    kinds: Annotated[
        bool, typer.Option("--kinds", help="List the kinds of claim and their keys.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a claim of differential privacy: is it sound, false, or no differential privacy at all?

    A file states a kind (Flower, Opacus, pfl-research, NVFlare, or plain noise), its settings, and
    the epsilon that somebody claims for them. Leave epsilon out to compute it. The answer gives
    the epsilon that our own accountants prove, its unit and adjacency, and the reason. The exit
    status is 1 if the claim is false. Nothing is run: the check is about settings. To test an
    experiment, use `fedpriv audit`.

    [bold]Example[/], claim.toml:

        kind = "opacus"
        noise_multiplier = 1.0
        sample_rate = 0.01
        steps = 1000
        poisson_sampling = false
        epsilon = 1.83
        delta = 1e-5
        adjacency = "add-remove"
    """
    from fedpriv._toml import read_toml
    from fedpriv.audit.claims import claim_from_dict
    from fedpriv.audit.claims.verdict import in_words

    if kinds:
        _list(as_json=as_json)
        return
    if claim is None:
        raise ValueError("a claim must be given as a TOML file; --kinds lists what it may state.")
    with refusals():
        verdict = claim_from_dict(read_toml(claim, "claim")).judged()
    if as_json:
        print_json(verdict.to_dict())
    else:
        for line in in_words(verdict):
            typer.echo(line)
    if not verdict.holds:
        raise typer.Exit(FALSE)


def _list(*, as_json: bool) -> None:
    from dataclasses import MISSING, fields

    from fedpriv.audit.claims import KINDS

    told = {
        name: {
            "about": kind.about,
            "required": [each.name for each in fields(kind) if each.default is MISSING],
            "optional": [each.name for each in fields(kind) if each.default is not MISSING],
            "source": kind.source,
        }
        for name, kind in KINDS.items()
    }
    if as_json:
        print_json(told)
        return
    for name, each in told.items():
        source = f" ({each['source']})" if each["source"] else ""
        typer.echo(f"{name}: {each['about']}{source}")
        typer.echo(f"    required: {', '.join(each['required'])}")
        typer.echo(f"    optional: {', '.join(each['optional'])}")
