"""`fedpriv describe`: statistics of a table that its parties may not pool, with privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.file import Experiment


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
    server: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Describe the tables of deployed parties: the directory of their server. The "
            "experiment names no data.path, the federation's ledger pays, and each party's own. "
            "With describe.by_party and privacy.noise_at = 'parties', each party by itself, too.",
        ),
    ] = None,
    suggest_bounds: Annotated[
        list[str] | None,
        typer.Option(
            "--suggest-bounds",
            metavar="COLUMN",
            help="Instead: find bounds of a numeric column that has none yet, by powers of "
            "two, as lines for the schema. This is private, and paid for. Can be given "
            "several times. Deployed parties answer for the columns that their own "
            "policy.suggest_bounds lists.",
        ),
    ] = None,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Draw statistics.svg beside statistics.json; of every party, too, where each is "
            "described by itself.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""Describe a table: counts, means, quantiles, tables; a simulation unless --release is given.

    EXPERIMENT is a TOML file with data, privacy and, to change the defaults, a table
    \[describe]. One noisy release contains everything. With --server it is a real one, of parties
    who keep their tables to themselves.

    [bold]Examples[/]:

        fedpriv describe mine.toml --set privacy.epsilon=0.5

        fedpriv describe study.toml --server clinics/server

        fedpriv describe study.toml --server clinics/server --suggest-bounds weight
    """
    from fedpriv.simulations.describe.experiment import read_description
    from fedpriv.simulations.run.launch import carry_through, open_session

    with refusals():
        if server is not None:
            _require_deployable(
                experiment,
                {
                    "--engine": engine,
                    "--out": out,
                    "--resume": resume,
                    "--release": release,
                    "--ledger": ledger,
                    "--new-ledger": new_ledger,
                },
            )
            engine = "deployment"
        changes = changes_to(experiment, settings, engine)
        wanted = None
        if experiment is not None:
            wanted = read_description(experiment, changes, suggest_bounds=suggest_bounds or ())
        if server is not None and wanted is not None:
            _deployed(wanted, server, pictures=pictures, as_json=as_json)
            return
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
    _tell(result, session.directory, pictures=pictures, as_json=as_json)
    if not as_json:
        warn_of_persons(session.prepared)
        typer.echo(f"results: {session.directory}")
    if result.get("cut_short"):
        raise typer.Exit(CUT_SHORT)


def _require_deployable(experiment: str | None, others: dict[str, object]) -> None:
    """Refuse options that are for a table in one place, where the parties are deployed."""
    given = [name for name, value in others.items() if value]
    if given:
        raise ValueError(
            f"--server describes deployed parties, got {given[0]} as well: such a description is "
            "always a release, which the ledger of the federation pays for. Continue one with "
            "`fedpriv deploy run --resume`."
        )
    if experiment is None:
        raise ValueError("--server needs an EXPERIMENT: what to ask the parties.")


def _deployed(wanted: Experiment, server: Path, *, pictures: bool, as_json: bool) -> None:
    """Ask the parties of a federation, and wait for the end."""
    from fedpriv.simulations.commands.deploy.run import followed, tell_tolerance
    from fedpriv.simulations.deploy.folders import server_folder
    from fedpriv.simulations.deploy.run.submission import new_run, submit

    folder = server_folder(server)
    submitted = submit(new_run(wanted, folder), folder)
    directory = submitted.directory
    _tell(followed(submitted, folder), directory, pictures=pictures, as_json=as_json)
    if not as_json:
        tell_tolerance(directory)
        typer.echo(f"results: {directory}")


def _tell(result: dict[str, Any], directory: Path, *, pictures: bool, as_json: bool) -> None:
    """Print a finished description, and draw it if that was asked for."""
    from fedpriv.simulations.describe.files import read_statistics
    from fedpriv.simulations.describe.words import in_words

    found = read_statistics(directory)
    if pictures:
        from fedpriv.simulations.describe.pictures import write_pictures

        with refusals():
            write_pictures(directory, found)
    if as_json:
        print_json({**result, "statistics": found, "directory": str(directory)})
    else:
        for line in in_words(result, found):
            typer.echo(line)
