"""`fedpriv deploy run`: a run on the parties, started, resumed or looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.deploy.members import AsJson, DryRun, Server, print_programs
from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import CUT_SHORT
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.run.submission import Submitted

_DETACHED = 130


def run(
    experiment: Annotated[Path | None, typer.Argument(metavar="EXPERIMENT.toml")] = None,
    server: Server = Path(),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the experiment."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted run from its directory.")
    ] = None,
    attach: Annotated[
        Path | None, typer.Option(help="Follow a run that was started, from its directory.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start the run and return without following it.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Start a run on the parties and follow it; Ctrl-C leaves it running.

    [bold]Example[/]:

        fedpriv deploy run experiment.toml --server clinics/server
    """
    from fedpriv.simulations.deploy.folders import server_folder
    from fedpriv.simulations.deploy.run.submission import known_run, submission, submit

    folder = server_folder(server)
    if sum(given is not None for given in (experiment, resume, attach)) != 1:
        raise ValueError("give one of EXPERIMENT.toml, --resume DIR and --attach DIR.")
    if dry_run:
        print_programs((submission(folder.runs / "NAME", folder),))
        return
    with refusals():
        if attach is not None:
            submitted = known_run(attach.resolve())
            if submitted is None:
                raise ValueError(f"--attach {str(attach)!r}: no run was started there.")
        else:
            prepared = (resume or _prepared(experiment, settings or [], folder)).resolve()
            submitted = submit(prepared, folder)
    if detach:
        typer.echo(f"run {submitted.run} started; follow it with: {_look(submitted, folder)}")
    else:
        _tell(followed(submitted, folder), submitted.directory, as_json=as_json)


def _prepared(experiment: Path | None, settings: list[str], folder: ServerFolder) -> Path:
    from fedpriv.simulations.deploy.run.submission import new_run
    from fedpriv.simulations.experiment.file import read_experiment

    return new_run(read_experiment(str(experiment), settings), folder)


def followed(submitted: Submitted, folder: ServerFolder) -> dict[str, Any]:
    """Follow a run to its end, line by line; its result. Ctrl-C ends the following alone."""
    from fedpriv.simulations.deploy.run.submission import follow
    from fedpriv.simulations.server_app import FAILURE

    try:
        result = follow(submitted, folder, on_line=lambda line: typer.echo(line, err=True))
    except KeyboardInterrupt:
        typer.echo(
            f"\nThe run continues. Follow it again with: {_look(submitted, folder)}", err=True
        )
        raise typer.Exit(_DETACHED) from None
    if result is None:
        failure = submitted.directory / FAILURE
        why = failure.read_text().strip() if failure.exists() else "its log says why."
        raise ValueError(
            f"the run ended without a result: {why} Continue it with: fedpriv deploy run "
            f"--resume {submitted.directory} --server {folder.root}"
        )
    return result


def _tell(result: dict[str, Any], directory: Path, *, as_json: bool) -> None:
    from fedpriv.privacy.rounding import rounded_up

    if as_json:
        print_json({**result, "directory": str(directory)})
    else:
        typer.echo(
            f"{result['label']}: {result['parties']} parties, {result['rounds']} rounds, epsilon "
            f"<= {rounded_up(result['epsilon'])} at delta = {result['delta']:g}"
        )
        if result["strategy"] == "describe":
            from fedpriv.simulations.describe.files import read_statistics
            from fedpriv.simulations.describe.words import in_words

            for line in in_words(result, read_statistics(directory)):
                typer.echo(line)
        tell_tolerance(directory)
        typer.echo(f"results: {directory}")
    if result.get("cut_short"):
        typer.echo(f"The run ended early: {result['stopped']}", err=True)
        raise typer.Exit(CUT_SHORT)


def tell_tolerance(directory: Path) -> None:
    """How many parties may collude, or be missing, as the statement of a run says it."""
    statement = json.loads((directory / "statement.json").read_text())
    if tolerates := statement["trust"].get("tolerates"):
        typer.echo(tolerates)


def _look(submitted: Submitted, folder: ServerFolder) -> str:
    return f"fedpriv deploy run --attach {submitted.directory} --server {folder.root}"
