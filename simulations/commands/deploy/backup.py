"""`fedpriv deploy backup` and `restore`: a member's ledger and state, together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.deploy.members import Directory
from fedpriv.simulations.refusals import refusals


def backup(
    directory: Directory,
    output: Annotated[
        Path, typer.Option(help="File to create; an existing file is never replaced.")
    ],
    keys: Annotated[
        bool,
        typer.Option(
            "--keys", help="Also back up keys and settings: the file is then as secret as they are."
        ),
    ] = False,
) -> None:
    """Back up a member's ledger and state at one moment, even while it runs; never its records.

    [bold]Example[/]:

        fedpriv deploy backup clinics/parties/north --output north-20260901.backup
    """
    from fedpriv.simulations.deploy.backups.backup import back_up
    from fedpriv.simulations.deploy.folders import member_folder

    with refusals():
        copied = back_up(member_folder(directory), output, keys=keys)
    for each in copied:
        typer.echo(f"copied   {each.name}, {each.rows} rows")
        typer.echo(f"head     {each.head}")
    typer.echo("Keep the head elsewhere: it shows later whether a backup is the newest.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup file.")],
    directory: Directory,
    head: Annotated[
        str | None,
        typer.Option(help="The latest head of the ledger that anybody has seen; you vouch for it."),
    ] = None,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Nobody knows what was answered since the backup: write off the rest of the "
            "budget.",
        ),
    ] = False,
) -> None:
    """Restore a backup, unless a later state of the ledger is known; open runs cannot be resumed.

    [bold]Example[/]:

        fedpriv deploy restore north-20260901.backup clinics/parties/north
    """
    from fedpriv.simulations.deploy.backups.newest import Assurance
    from fedpriv.simulations.deploy.backups.restore import restore as put_back

    with refusals():
        for done in put_back(file, directory, Assurance(head=head, lost=lost)):
            typer.echo(done)
    typer.echo("Run `fedpriv doctor` before the member is started.")
