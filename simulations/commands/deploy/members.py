"""`fedpriv deploy server|party|stop`: the processes of a federation."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.folders import Folder
    from fedpriv.simulations.deploy.processes import Process
    from fedpriv.simulations.deploy.programs import Program

_START_SECONDS = 90.0

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The member's directory.")]
Server = Annotated[Path, typer.Option(help="The server's directory.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the exact commands, for systemd, and run nothing.")
]
Foreground = Annotated[
    bool,
    typer.Option(
        "--foreground", help="Stay in the foreground, and end everything when told to stop."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def server(
    directory: Directory = Path(), dry_run: DryRun = False, foreground: Foreground = False
) -> None:
    """Start the server: a SuperLink and its worker; register the parties' node keys.

    [bold]Example[/]:

        fedpriv deploy server clinics/server
    """
    from fedpriv.simulations.deploy.folders import server_folder
    from fedpriv.simulations.deploy.members.membership import reconcile, wait_until_up
    from fedpriv.simulations.deploy.processes import tail
    from fedpriv.simulations.deploy.programs import server_programs, write_connection

    folder = server_folder(directory)
    programs = server_programs(folder)
    if dry_run:
        print_programs(programs)
        return
    write_connection(folder)
    with _started(folder, programs, foreground=foreground) as members:
        if not wait_until_up(folder, members[0], seconds=_START_SECONDS):
            raise ValueError(f"the SuperLink did not start: {tail(folder, members[0].name)}")
        changed = reconcile(folder)
        for name in changed.unregistered:
            typer.echo(f"unregistered the node of {name}: its key is not in the roster")
        for name in changed.registered:
            typer.echo(f"registered the node of {name}")
        _announce(members)


def party(
    directory: Directory = Path(), dry_run: DryRun = False, foreground: Foreground = False
) -> None:
    """Start a party: a SuperNode and its worker, which answers as party.toml allows.

    [bold]Example[/]:

        fedpriv deploy party clinics/parties/north
    """
    from fedpriv.simulations.deploy.folders import party_folder
    from fedpriv.simulations.deploy.programs import party_programs

    folder = party_folder(directory)
    programs = party_programs(folder)
    if dry_run:
        print_programs(programs)
        return
    with _started(folder, programs, foreground=foreground) as members:
        _announce(members)


def stop(directory: Directory = Path()) -> None:
    """End a member's processes, by their ids. `run --resume` continues an interrupted run."""
    from fedpriv.simulations.deploy import processes
    from fedpriv.simulations.deploy.folders import member_folder

    ended = processes.stop(member_folder(directory))
    for process in ended:
        typer.echo(f"ended {process.name}, process {process.pid}")
    if not ended:
        typer.echo("nothing was running")


@contextmanager
def _started(
    folder: Folder, programs: tuple[Program, ...], *, foreground: bool
) -> Iterator[list[Process]]:
    """Start programs; if one cannot be, or the block fails, end them all.

    In the foreground, stay after the block until one ends or a signal comes, then end them all.
    """
    from fedpriv.simulations.deploy.logs import rotated
    from fedpriv.simulations.deploy.processes import start, stop, tail, wait_for

    if foreground:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    members: list[Process] = []
    try:
        members.extend(start(program) for program in programs)
        yield members
        with rotated(folder):
            ended = wait_for(members) if foreground else None
    except KeyboardInterrupt:
        stop(folder)
        if not foreground:
            raise
        return
    except BaseException:
        if members:
            stop(folder)
        raise
    if ended is not None:
        stop(folder)
        raise ValueError(f"{ended.name} ended: {tail(folder, ended.name)}")


def _announce(members: list[Process]) -> None:
    for process in members:
        typer.echo(f"started {process.name}, process {process.pid}")


def print_programs(programs: tuple[Program, ...]) -> None:
    """Print commands, each after the directory that it is run in."""
    for each in programs:
        typer.echo(f"cd {each.folder.root}")
        typer.echo(each.line)
