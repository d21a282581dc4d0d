"""`fedpriv fit`: coefficients with intervals that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import (
    INTERRUPTED,
    AsJson,
    EngineName,
    Out,
    Settings,
    changes_to,
)
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals

NO_INTERVALS = 1
"""The noise is too large for the records: there are estimates, and no intervals."""


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command(cls=WithSettings)(fit)


def fit(
    experiment: Annotated[
        str,
        typer.Argument(metavar="EXPERIMENT", help="A TOML file, or the name of a built-in one."),
    ],
    settings: Settings = None,
    engine: EngineName = None,
    out: Out = None,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="For real: noise from the operating system, paid for in the ledger, once.",
        ),
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(help="The ledger of the data set, which pays for a --release."),
    ] = None,
    new_ledger: Annotated[
        bool,
        typer.Option(
            "--new-ledger",
            help="Make the file of --ledger first: a full budget, for people of whom nothing was "
            "ever released.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a linear or logistic regression: coefficients, standard errors, intervals, p-values.

    In the units of the schema, and over sampling [bold]and[/] privacy noise: an interval that
    ignores the noise is too short by far. All of the table follows from what was released, so that
    it may be published. Which regression follows from the label: a number, or two classes; of a
    category every level is compared with the first. Strategy and scaling are set here: any
    experiment with a table will do.

    Where the noise is more than half of the least curvature (two fifths, of a logistic
    regression), or the regulariser pulls further than can be taken back, no interval is known to
    hold, and none is given: the estimates are printed with what would do, such as the records or
    the epsilon, and the exit status is 1. An interval is never widened instead.

    [bold]Example[/]: try it, with other budgets, at no cost; then release it:

        fedpriv fit study.toml --set privacy.epsilon=0.5

        fedpriv fit study.toml --release --ledger study.ledger --out table

    A run that was interrupted goes on with `fedpriv run --resume DIR`.
    """
    from fedpriv.simulations.experiment.fitting import read_fit
    from fedpriv.simulations.run.launch import carry_through, open_session
    from fedpriv.simulations.run.summary import in_words

    with refusals():
        session = open_session(
            read_fit(experiment, changes_to(experiment, settings, engine)),
            out=out,
            release=release,
            ledger=ledger,
            new_ledger=new_ledger,
        )
        result = carry_through(session)
    if result is None:
        typer.echo(f"Stopped. Continue with: fedpriv run --resume {session.directory}", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print_json({**result, "directory": str(session.directory)})
    else:
        for line in in_words(result):
            typer.echo(line)
        typer.echo(f"results: {session.directory}")
    if result["coefficients"]["refusal"] is not None:
        raise typer.Exit(NO_INTERVALS)
