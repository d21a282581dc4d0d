"""`fedpriv deploy cancel|attest|handover`: what becomes of a run that was started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.simulations.commands.deploy.members import AsJson, Server
from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import ServerFolder

Run = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The directory of the run.")]


def cancel(directory: Run, server: Server = Path(), as_json: AsJson = False) -> None:
    """Cancel a run for good: the parties leave it and erase masks and shares.

    What was spent stays spent. A party that is away learns of it from the next run, or if you
    repeat this command. The exit status is 1 as long as somebody does not know.

    [bold]Example[/]:

        fedpriv deploy cancel clinics/server/runs/20260101-120000-1a2b3c4d-5e6f --server clinics
    """
    from fedpriv.simulations.deploy.run.jobs import cancelling
    from fedpriv.simulations.deploy.run.jobs.job_submission import end_run

    folder, place = _of(directory, server)
    with refusals():
        cancelling.record(place)
        typer.echo("cancelled: the run cannot be resumed, and what it spent stays spent", err=True)
        end_run(place, folder)
    _do("cancel", place, folder, good="left it", as_json=as_json)


def attest(directory: Run, server: Server = Path(), as_json: AsJson = False) -> None:
    """Ask the parties to sign the statement of a finished run, each by its own ledger.

    At its end, a run asks the parties that are online; this command asks the others. The exit
    status is 1 as long as somebody has not signed.
    """
    folder, place = _of(directory, server)
    _do("attest", place, folder, good="signed", as_json=as_json)


def handover(directory: Run, server: Server = Path(), as_json: AsJson = False) -> None:
    """Hand the model of a finished run over to the parties, with its signed statement.

    A party accepts it if its own ledger has paid for the run. Repeat the command for parties that
    were away: the exit status is 1 as long as somebody does not have the model.
    """
    folder, place = _of(directory, server)
    _do("handover", place, folder, good="has it", as_json=as_json)


def _of(directory: Path, server: Path) -> tuple[ServerFolder, Path]:
    from fedpriv.simulations.deploy.folders import server_folder

    folder, place = server_folder(server), directory.resolve()
    if place.parent != folder.runs.resolve():
        raise ValueError(
            f"RUN_DIR must be a directory in {str(folder.runs)!r}, got {str(directory)!r}."
        )
    return folder, place


def _do(job: str, place: Path, folder: ServerFolder, *, good: str, as_json: bool) -> None:
    from fedpriv.simulations.deploy.run.jobs.job_submission import done

    with refusals():
        words = done(job, place, folder, on_line=lambda line: typer.echo(line, err=True))
    if as_json:
        print_json(words)
    else:
        for name, said in words.items():
            typer.echo(f"{name:<12} {said}")
    if any(said != good for said in words.values()):
        raise typer.Exit(1)
