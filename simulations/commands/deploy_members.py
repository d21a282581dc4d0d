"""`fedpriv deploy server|party|run|status|stop`: the processes of a federation, and a run."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import CUT_SHORT
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedpriv.simulations.deploy.folders import Folder, PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.processes import Process
    from fedpriv.simulations.deploy.programs import Program
    from fedpriv.simulations.deploy.run.submission import Submitted

_START_SECONDS = 90.0
_DETACHED = 130

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The member's directory.")]
Server = Annotated[Path, typer.Option(help="The server's directory.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the exact commands, for systemd, and run nothing.")
]
Foreground = Annotated[
    bool, typer.Option("--foreground", help="Stay, and end everything when told to stop.")
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
    from fedpriv.simulations.deploy.membership import register as register_nodes
    from fedpriv.simulations.deploy.membership import wait_until_up
    from fedpriv.simulations.deploy.processes import tail
    from fedpriv.simulations.deploy.programs import server_programs, write_connection

    folder = server_folder(directory)
    programs = server_programs(folder)
    if dry_run:
        _print(programs)
        return
    write_connection(folder)
    with _started(folder, programs, foreground=foreground) as members:
        if not wait_until_up(folder, members[0], seconds=_START_SECONDS):
            raise ValueError(f"the SuperLink did not start: {tail(folder, members[0].name)}")
        for name in register_nodes(folder):
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
        _print(programs)
        return
    with _started(folder, programs, foreground=foreground) as members:
        _announce(members)


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
        Path | None, typer.Option(help="Look at a run that was started, from its directory.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and do not wait.")] = False,
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
        _print((submission(folder.runs / "NAME", folder),))
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
        typer.echo(f"run {submitted.run} started; look with: {_look(submitted, folder)}")
    else:
        _follow(submitted, folder, as_json=as_json)


def status(directory: Directory = Path(), as_json: AsJson = False) -> None:
    """Show a member's processes; at the server also its nodes and runs. Exit 1 if one is down."""
    from fedpriv.simulations.deploy.folders import member_folder
    from fedpriv.simulations.deploy.processes import processes

    folder = member_folder(directory)
    facts: dict[str, Any] = {
        "processes": [
            {"name": each.name, "pid": each.pid, "alive": each.alive} for each in processes(folder)
        ]
    }
    facts |= {**_tolerance(folder), **_at_server(folder)}
    if as_json:
        print_json(facts)
    else:
        _print_status(facts)
    if not facts["processes"] or not all(each["alive"] for each in facts["processes"]):
        raise typer.Exit(1)


def stop(directory: Directory = Path()) -> None:
    """End a member's processes, by their ids. `run --resume` continues an interrupted run."""
    from fedpriv.simulations.deploy import processes
    from fedpriv.simulations.deploy.folders import member_folder

    ended = processes.stop(member_folder(directory))
    for process in ended:
        typer.echo(f"ended {process.name}, process {process.pid}")
    if not ended:
        typer.echo("nothing was running")


def _prepared(experiment: Path | None, settings: list[str], folder: ServerFolder) -> Path:
    from fedpriv.simulations.deploy.run.submission import new_run
    from fedpriv.simulations.experiment.file import read_experiment

    return new_run(read_experiment(str(experiment), settings), folder)


def _follow(submitted: Submitted, folder: ServerFolder, *, as_json: bool) -> None:
    from fedpriv.privacy.rounding import rounded_up
    from fedpriv.simulations.deploy.run.submission import follow
    from fedpriv.simulations.server_app import FAILURE

    try:
        result = follow(submitted, folder, on_line=lambda line: typer.echo(line, err=True))
    except KeyboardInterrupt:
        typer.echo(f"\nThe run goes on. Look again with: {_look(submitted, folder)}", err=True)
        raise typer.Exit(_DETACHED) from None
    if result is None:
        failure = submitted.directory / FAILURE
        why = failure.read_text().strip() if failure.exists() else "its log says why."
        raise ValueError(
            f"the run ended without a result: {why} Continue it with: fedpriv deploy run "
            f"--resume {submitted.directory} --server {folder.root}"
        )
    if as_json:
        print_json({**result, "directory": str(submitted.directory)})
    else:
        typer.echo(
            f"{result['label']}: {result['parties']} parties, {result['rounds']} rounds, epsilon "
            f"<= {rounded_up(result['epsilon'])} at delta = {result['delta']:g}"
        )
        statement = json.loads((submitted.directory / "statement.json").read_text())
        if tolerates := statement["trust"].get("tolerates"):
            typer.echo(tolerates)
        typer.echo(f"results: {submitted.directory}")
    if result.get("cut_short"):
        typer.echo(f"The run ended early: {result['stopped']}", err=True)
        raise typer.Exit(CUT_SHORT)


def _look(submitted: Submitted, folder: ServerFolder) -> str:
    return f"fedpriv deploy run --attach {submitted.directory} --server {folder.root}"


@contextmanager
def _started(
    folder: Folder, programs: tuple[Program, ...], *, foreground: bool
) -> Iterator[list[Process]]:
    """Start programs; if one cannot be, or the block fails, end them all.

    In the foreground, stay after the block until one ends or a signal comes, then end them all.
    """
    from fedpriv.simulations.deploy.processes import start, stop, tail, wait_for

    if foreground:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    members: list[Process] = []
    try:
        members.extend(start(program) for program in programs)
        yield members
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


def _print(programs: tuple[Program, ...]) -> None:
    for each in programs:
        typer.echo(f"cd {each.folder.root}")
        typer.echo(each.line)


def _tolerance(folder: ServerFolder | PartyFolder) -> dict[str, Any]:
    """What the masks tolerate; nothing before the roster is there, or if no sum would be safe."""
    from fedpriv.simulations.deploy.thresholds import thresholds

    try:
        return {"thresholds": thresholds(folder)}
    except (ValueError, OSError):
        return {}


def _at_server(folder: Folder) -> dict[str, Any]:
    from dataclasses import asdict

    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.membership import is_up, nodes
    from fedpriv.simulations.deploy.run.submission import known_run, result_of

    if not isinstance(folder, ServerFolder):
        return {}
    runs = []
    for directory in sorted(folder.runs.iterdir()):
        submitted = known_run(directory)
        runs.append(
            {
                "directory": str(directory),
                "run": None if submitted is None else submitted.run,
                "finished": result_of(directory) is not None,
            }
        )
    listed = [asdict(state) for state in nodes(folder)] if is_up(folder) else []
    return {"nodes": listed, "runs": runs}


def _print_status(facts: dict[str, Any]) -> None:
    for each in facts["processes"]:
        state = "runs" if each["alive"] else "HAS ENDED"
        typer.echo(f"process  {each['name']:<10} {each['pid']:>8}  {state}")
    if not facts["processes"]:
        typer.echo("process  none was started")
    if "thresholds" in facts:
        typer.echo(f"masks    {facts['thresholds']}")
    for each in facts.get("nodes", ()):
        typer.echo(f"node     {each['name']:<10} {each['status']}")
    for each in facts.get("runs", ()):
        state = "finished" if each["finished"] else "not finished"
        typer.echo(f"run      {each['directory']}  {state}")
