"""`fedpriv deploy add|expel|rotate|accept`: the next epoch of the roster, and who accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.simulations.commands.deploy.members import Directory, Server

if TYPE_CHECKING:
    from fedpriv.simulations.deploy.folders import ServerFolder
    from fedpriv.simulations.deploy.members.roster import Roster


def add(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE.toml...")],
    server: Server = Path(),
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="Accept new keys that the old ones have not signed: only if the party itself "
            "says, through another channel, that the old ones are lost.",
        ),
    ] = False,
) -> None:
    """Add parties to the roster, or change their keys or numbers of records, at the coordinator.

    [bold]Example[/]:

        fedpriv deploy add north.toml south.toml --server clinics/server
    """
    from fedpriv.simulations.deploy.folders import server_folder
    from fedpriv.simulations.deploy.members import changes

    _tell_epoch(server_folder(server), changes.add(bundles, server, lost=lost))


def expel(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The party, by its name in the roster.")
    ],
    server: Server = Path(),
) -> None:
    """Expel a party from the roster, for good, at the coordinator.

    [bold]Example[/]:

        fedpriv deploy expel west --server clinics/server
    """
    from fedpriv.simulations.deploy.folders import server_folder
    from fedpriv.simulations.deploy.members import changes

    _tell_epoch(server_folder(server), changes.expel(name, server))


def rotate(
    directory: Directory = Path(),
    lost: Annotated[
        bool,
        typer.Option(
            "--lost",
            help="A party's old identity cannot or must not sign; every party is shown this.",
        ),
    ] = False,
) -> None:
    """Make new keys for a member, signed by its old identity.

    [bold]Example[/]:

        fedpriv deploy rotate north
    """
    from fedpriv.simulations.deploy.folders import ServerFolder, member_folder
    from fedpriv.simulations.deploy.members import changes
    from fedpriv.simulations.deploy.members.new_keys import rotate_party
    from fedpriv.simulations.deploy.members.roster import identity_fingerprint

    folder = member_folder(directory)
    if isinstance(folder, ServerFolder):
        if lost:
            raise ValueError(
                "--lost is for parties: a server whose identity is lost founds the federation anew."
            )
        roster = changes.rotate_server(folder)
        typer.echo(f"server   {identity_fingerprint(roster.server)}")
        typer.echo("Every party writes this into policy.server_identity before it accepts.")
        _tell_epoch(folder, roster)
        return
    rotate_party(folder, lost=lost)
    typer.echo(f"send     {folder.bundle}   (public)")
    typer.echo("The old keys are in use until you accept a roster that has the new ones.")


def accept(
    rosters: Annotated[
        list[Path],
        typer.Argument(
            metavar="ROSTER.toml...", help="All rosters since the accepted one, the newest last."
        ),
    ],
    fingerprint: Annotated[
        str,
        typer.Option(
            help="Fingerprint of the newest, as another party reads it out; in any groups."
        ),
    ],
    party: Annotated[Path, typer.Option(help="The party's directory.")] = Path(),
) -> None:
    """Accept a roster at a party: its first one, or the next epoch.

    [bold]Example[/]:

        fedpriv deploy accept roster.toml --fingerprint "1f0a 93c4 ..." --party north
    """
    from fedpriv.simulations.deploy.folders import party_folder
    from fedpriv.simulations.deploy.members import epochs
    from fedpriv.simulations.deploy.members.roster import read_roster
    from fedpriv.simulations.deploy.thresholds import thresholds

    folder = party_folder(party)
    accepted = epochs.accept(
        folder, [read_roster(path) for path in rosters], fingerprint=fingerprint
    )
    typer.echo(f"accepted epoch {accepted.roster.epoch}")
    for line in accepted.changes:
        typer.echo(f"         {line}")
    if accepted.new_keys:
        typer.echo("Your new keys are in use: restart this party.")
    try:
        typer.echo(f"masks    {thresholds(folder)}")
    except ValueError as error:
        typer.echo(f"masks    your policy refuses every run of these parties: {error}")


def _tell_epoch(folder: ServerFolder, roster: Roster) -> None:
    """Tell what the change has made, and have the running server admit these nodes and no other."""
    from fedpriv.simulations.deploy.members.changes import behind
    from fedpriv.simulations.deploy.members.membership import is_up, reconcile
    from fedpriv.simulations.deploy.thresholds import thresholds_of

    for member in roster.seats:
        known = "unknown" if member.records is None else member.records
        typer.echo(f"party    {member.name}, records: {known}")
    try:
        typer.echo(f"masks    {thresholds_of(folder, roster)}")
    except ValueError as error:
        typer.echo(f"masks    no run is possible yet: {error}")
    if is_up(folder):
        changed = reconcile(folder)
        for name in changed.registered:
            typer.echo(f"admitted the node of {name}")
        for name in changed.unregistered:
            typer.echo(f"refused from now on: the old node key of {name}")
    typer.echo(f"epoch    {roster.epoch}")
    typer.echo(f"roster   {roster.fingerprint}")
    typer.echo(
        "Send roster.toml to every party, which accepts it with this fingerprint, read out by "
        "another party: fedpriv deploy accept."
    )
    if names := behind(folder, roster):
        typer.echo(f"not accepted yet: {', '.join(names)}")
