"""`fedpriv deploy`: found a federation and join it; beside this, one file per kind of command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.deploy.backup import backup, restore
from fedpriv.simulations.commands.deploy.evaluate import evaluate
from fedpriv.simulations.commands.deploy.members import Directory, Server, party, server, stop
from fedpriv.simulations.commands.deploy.roster import accept, add, expel, rotate
from fedpriv.simulations.commands.deploy.run import run
from fedpriv.simulations.commands.deploy.runs import attest, cancel, handover
from fedpriv.simulations.commands.deploy.status import recover, status

Force = Annotated[bool, typer.Option("--force", help="Replace existing keys.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands of this file to ``app``."""
    group = typer.Typer(
        name="deploy",
        help="Deploy real servers and parties: keys, certificates, processes, runs.",
        no_args_is_help=True,
    )
    members = (init, join, bundle, add, accept, expel, rotate, renew)
    processes = (server, party, status, stop, recover, backup, restore)
    for command in (*members, *processes, run, evaluate, cancel, attest, handover):
        group.command()(command)
    app.add_typer(group)


def init(
    federation: Annotated[Path, typer.Argument(metavar="FEDERATION.toml")],
    output: Annotated[Path, typer.Option(help="Directory to create.")] = Path("deployment"),
    party_keys: Annotated[
        bool,
        typer.Option(
            "--party-keys/--no-party-keys",
            help="Create the parties' keys here, too: whoever does so could impersonate them. "
            "Without them, each party runs `fedpriv deploy join`.",
        ),
    ] = True,
    force: Force = False,
) -> None:
    """Create a federation: a directory for the server and one for each party.

    [bold]Example[/]:

        fedpriv deploy init federation.toml --output clinics
    """
    from fedpriv.simulations.deploy.federation import read_federation
    from fedpriv.simulations.deploy.founding import found

    founded = found(read_federation(federation), output, party_keys=party_keys, force=force)
    typer.echo(f"server   {founded.server.root}")
    for folder in founded.parties:
        typer.echo(f"party    {folder.root}")
    if not party_keys:
        typer.echo(f"invite   {founded.server.invitation}")
    typer.echo(f"CA       {founded.authority}")
    typer.echo(f"server   {founded.identity}")
    typer.echo(f"roster   {founded.roster.fingerprint}")
    typer.echo("Every directory has a CHECKLIST.md. Private keys stay where they are.")


def join(
    invitation: Annotated[Path, typer.Argument(metavar="INVITATION.toml")],
    name: Annotated[str, typer.Option(help="The party's name in the federation.")],
    output: Annotated[Path | None, typer.Option(help="Directory to create; NAME by default.")] = (
        None
    ),
    records: Annotated[
        int | None,
        typer.Option(min=1, help="Number of records that the party holds; `bundle` counts them."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of its node, which only its own machine sees."),
    ] = None,
    force: Force = False,
) -> None:
    """Create a party's own keys and its directory; only the public parts are for others.

    [bold]Example[/]:

        fedpriv deploy join invitation.toml --name north --records 1200
    """
    from fedpriv.simulations.deploy import founding

    folder = founding.join(
        invitation, name, output or Path(name), records=records, port=port, force=force
    )
    typer.echo(f"party    {folder.root}")
    typer.echo(f"send     {folder.bundle}   (public)")


def bundle(
    directory: Directory,
    records: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Under add-remove adjacency: a public number of records that is never exceeded.",
        ),
    ] = None,
) -> None:
    """Check a party's schema and records, and write the bundle for the coordinator anew.

    Under replace-one adjacency the number of records is public, and they are counted.
    """
    from fedpriv.simulations.deploy.folders import party_folder
    from fedpriv.simulations.deploy.founding import rebundle

    folder = party_folder(directory)
    member = rebundle(folder, records=records)
    typer.echo(f"{member.name} states {member.records} records")
    typer.echo(f"send     {folder.bundle}   (public)")


def renew(server: Server = Path()) -> None:
    """Sign a new certificate for the server; parties need nothing new."""
    from fedpriv.simulations.deploy import founding

    certificate = founding.renew(server)
    typer.echo(f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}; restart the server.")
