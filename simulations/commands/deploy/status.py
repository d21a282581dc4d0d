"""`fedpriv deploy status|recover`: how a member is, and the end of what a crash left behind."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.deploy.members import AsJson, Directory
from fedpriv.simulations.commands.output import print_json

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import PartyFolder, ServerFolder
    from fedpriv.simulations.deploy.health.heartbeat import Beat
    from fedpriv.simulations.deploy.health.status import PartyStatus, RunStatus, Status

_WATCH_SECONDS = 5.0


def status(
    directory: Directory = Path(),
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every few seconds, until Ctrl-C.")
    ] = False,
) -> None:
    """Show the state of a member; for the server, also the state of every party and run.

    States are idle, working, overdue, hung, down and expelled; the exit status is 1 for the last
    four.
    """
    from fedpriv.simulations.deploy.folders import member_folder

    folder = member_folder(directory)
    found = _shown(folder, as_json=as_json)
    with suppress(KeyboardInterrupt):
        while watch:
            time.sleep(_WATCH_SECONDS)
            if not as_json:
                typer.clear()
            found = _shown(folder, as_json=as_json)
    if not found.sound:
        raise typer.Exit(1)


def recover(
    directory: Directory = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="End what was found.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what a crash left behind: orphaned processes, their locks, open runs; `--yes` ends them.

    The exit status is 1 if something is left.
    """
    from fedpriv.simulations.deploy.folders import member_folder
    from fedpriv.simulations.deploy.health import recovery

    found = recovery.recover(member_folder(directory), end=yes)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            typer.echo(f"{each.kind:<8} {each.what}{': ended' if each.ended else ''}")
        if not found:
            typer.echo("nothing was left behind")
    if not all(each.ended for each in found):
        if not as_json and not yes:
            typer.echo("Use --yes to end all of these.")
        raise typer.Exit(1)


def _shown(folder: ServerFolder | PartyFolder, *, as_json: bool) -> Status:
    """How a member is, which was printed."""
    from fedpriv.simulations.deploy.health.status import member_status
    from fedpriv.simulations.deploy.health.status_facts import facts, tolerance

    found, tolerated = member_status(folder), tolerance(folder)
    if as_json:
        print_json({**facts(found), **tolerated})
    else:
        _print_status(found, tolerated)
    return found


def _print_status(found: Status, tolerance: dict[str, Any]) -> None:
    typer.echo(f"state    {found.state}")
    for each in found.processes:
        state = "runs" if each.alive else "HAS ENDED"
        if each.orphans:
            state += f", and left {each.orphans} processes: see `fedpriv deploy recover`"
        typer.echo(f"process  {each.name:<10} {each.pid:>8}  {state}")
    if not found.processes:
        typer.echo("process  none was started")
    if found.worker is not None:
        typer.echo(f"worker   {_beat_line(found.worker)}")
    if found.server is not None:
        typer.echo(f"server   heard {time.time() - found.server.time:.0f} s ago")
    if "thresholds" in tolerance:
        typer.echo(f"masks    {tolerance['thresholds']}")
    for party in found.parties:
        typer.echo(f"party    {party.name:<10} {party.state:<9} {_party_line(party)}")
    for run in found.runs:
        typer.echo(f"run      {run.directory}  {_run_line(run)}")


def _beat_line(beat: Beat) -> str:
    now = time.time()
    said = f"heard {now - beat.time:.0f} s ago"
    if beat.run and beat.since is not None:
        said += f"; {beat.step} of run {beat.run} for {now - beat.since:.0f} s"
        if beat.deadline is not None:
            said += f", until {beat.deadline - now:+.0f} s"
    return said


def _party_line(party: PartyStatus) -> str:
    said = [f"node {party.status}"]
    if party.seen is not None:
        said.append(f"seen {party.seen:.0f} s ago")
    if party.replied is not None:
        said.append(f"last reply {party.replied:.0f} s ago")
    if party.error:
        said.append(f"which was an error: {party.error}")
    if party.outstanding is not None:
        said.append(f"owes a reply ({party.step}) for {party.outstanding:.0f} s")
    return ", ".join(said)


def _run_line(run: RunStatus) -> str:
    return f"{run.state}: {run.failure}" if run.failure else run.state
