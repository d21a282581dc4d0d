"""`fedpriv fit`: coefficients with intervals that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json, warn_of_persons
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
            help="Make a real release: noise from the operating system, paid for in the "
            "ledger, once.",
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
            help="Create the file of --ledger first, with a full budget: for people about whom "
            "nothing was ever released.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a linear or logistic regression: coefficients, standard errors, intervals, p-values.

    Results are in the units of the schema. Intervals cover sampling [bold]and[/] privacy noise: an
    interval that ignores the noise is far too short. The whole table is computed from what was
    released, so you may publish it. The label determines the regression: a number, or two classes.
    Every level of a category is compared with the first. This command sets strategy and scaling:
    any experiment with a table will do.

    If the noise exceeds half of the least curvature (two fifths, for a logistic regression), or the
    regulariser pulls further than can be corrected, no interval is known to be valid, and none is
    given: the command prints the estimates, with what would be enough, such as the number of
    records or the epsilon, and the exit status is 1. An interval is never widened instead.

    [bold]Example[/]: try it, with other budgets, at no cost; then release it:

        fedpriv fit study.toml --set privacy.epsilon=0.5

        fedpriv fit study.toml --release --ledger study.ledger --out table

    Use `fedpriv run --resume DIR` to continue a run that was interrupted.
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
        warn_of_persons(session.prepared)
        typer.echo(f"results: {session.directory}")
    if result["coefficients"]["refusal"] is not None:
        raise typer.Exit(NO_INTERVALS)
