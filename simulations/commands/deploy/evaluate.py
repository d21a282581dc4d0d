"""`fedpriv deploy evaluate`: how good a released model is, privately, on held-out records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.deploy.members import AsJson, Server
from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.refusals import refusals


def evaluate(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="The directory of a run that has ended.")
    ],
    epsilon: Annotated[float, typer.Option(help="The epsilon of the evaluation.")],
    delta: Annotated[
        float | None, typer.Option(help="The delta of the evaluation; by default, that of the run.")
    ] = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Give up an unfinished evaluation with other terms."),
    ] = False,
    server: Server = Path(),
    as_json: AsJson = False,
) -> None:
    """Estimate the accuracy of a model on records that the parties hold out, with noise.

    This is a release: it is charged in the federation's ledger and in that of every party. A party
    takes part if its policy.queries names "accuracy" and its party.test names a table.

    [bold]Example[/]:

        fedpriv deploy evaluate clinics/server/runs/NAME --epsilon 0.2 --server clinics/server
    """
    from fedpriv.simulations.deploy.folders import server_folder
    from fedpriv.simulations.deploy.run.jobs import evaluation
    from fedpriv.simulations.deploy.run.submission import (
        Submitted,
        call,
        follow,
        submission,
        write_app,
    )
    from fedpriv.simulations.run.files import read_json

    folder, place = server_folder(server), directory.resolve()
    with refusals():
        terms = evaluation.propose(place, folder, epsilon=epsilon, delta=delta, anew=anew)
        write_app(place, folder, job=evaluation.JOB)
        answer = call(submission(place, folder, job=evaluation.JOB))
    submitted = Submitted(run=str(answer["run-id"]), directory=place)
    follow(submitted, folder, on_line=lambda line: typer.echo(line, err=True))
    path = evaluation.result_path(place, terms)
    if not path.exists():
        raise ValueError(
            "the evaluation ended without a result: the log above says why. The same command takes "
            "it up again, and is charged once."
        )
    result = read_json(path)
    if as_json:
        print_json(result)
        return
    for line in evaluation.in_words(result):
        typer.echo(line)
    typer.echo(f"written: {path}")
