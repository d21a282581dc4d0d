"""`fedpriv doctor`: is this member ready, before anyone waits for a run that fails?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(doctor)


def doctor(
    member: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A party's or a server's directory, or a party.toml."),
    ] = Path(),
    offline: Annotated[
        bool, typer.Option("--offline", help="Skip the checks that need the server to be running.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check a member's certificates, keys, ports, records, policy, ledger and clock.

    The exit status is 1 if a check fails; every failure comes with its remedy.

    [bold]Example[/]:

        fedpriv doctor clinics/parties/north
    """
    from fedpriv.simulations.deploy.folders import member_folder
    from fedpriv.simulations.deploy.health.doctor import examine

    folder = member_folder(member)
    checks = examine(folder, network=not offline)
    failed = [check for check in checks if not check.passed]
    if as_json:
        print_json({"member": str(folder.root), "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<19} {check.found}")
            if not check.passed:
                typer.echo(f"      {'':<19} remedy: {check.remedy}")
        typer.echo(f"{len(checks) - len(failed)} of {len(checks)} checks passed")
    if failed:
        raise typer.Exit(1)
