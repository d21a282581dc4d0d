"""`fedpriv describe`: statistics of a table that its parties may not pool, with privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json, warn_of_persons
from fedpriv.simulations.commands.run import (
    CUT_SHORT,
    INTERRUPTED,
    AsJson,
    EngineName,
    Out,
    Settings,
    Source,
    changes_to,
)
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command(cls=WithSettings)(describe)


def describe(
    experiment: Source = None,
    settings: Settings = None,
    engine: EngineName = None,
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted description from its directory.")
    ] = None,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="Make a real release: noise from the operating system, paid for in the ledger.",
        ),
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of the data set, which pays for a --release.")
    ] = None,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger", help="Create the file of --ledger first, as `fedpriv run` does."
        ),
    ] = False,
    suggest_bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--suggest-bounds",
            metavar="COLUMN",
            help="Instead: find bounds of a numeric column that has none yet, by powers of "
            "two, as lines for the schema. This is private, and paid for. Can be given "
            "several times.",
        ),
    ] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Draw statistics.svg beside statistics.json.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""Describe a table: counts, means, quantiles, tables; a simulation unless --release is given.

    EXPERIMENT is a TOML file with data, privacy and, to change the defaults, a table
    \[describe]. One noisy release contains everything.

    [bold]Example[/]:

        fedpriv describe mine.toml --set privacy.epsilon=0.5
    """
    from fedpriv.simulations.describe.experiment import read_description
    from fedpriv.simulations.describe.files import read_statistics
    from fedpriv.simulations.describe.words import in_words
    from fedpriv.simulations.run.launch import carry_through, open_session

    with refusals():
        changes = changes_to(experiment, settings, engine)
        wanted = None
        if experiment is not None:
            wanted = read_description(experiment, changes, suggest_bounds=suggest_bounds or ())
        session = open_session(
            wanted,
            out=out,
            resume=resume,
            release=release,
            ledger=ledger,
            new_ledger=new_ledger,
        )
        result = carry_through(session)
    if result is None:
        again = f"fedpriv describe --resume {session.directory}"
        typer.echo(f"Stopped. Continue with: {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    found = read_statistics(session.directory)
    if pictures:
        from fedpriv.simulations.describe.pictures import write_pictures

        with refusals():
            write_pictures(session.directory, found)
    if as_json:
        print_json({**result, "statistics": found, "directory": str(session.directory)})
    else:
        for line in in_words(result, found):
            typer.echo(line)
        warn_of_persons(session.prepared)
        typer.echo(f"results: {session.directory}")
    if result.get("cut_short"):
        raise typer.Exit(CUT_SHORT)
