"""`fedpriv dashboard`: follow runs, comparisons and members of a federation in a browser."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.run.files import RESULTS


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(dashboard)


def dashboard(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="What to follow: results, or the folder of a federation or of a member of it.",
        ),
    ] = RESULTS,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="On the loopback; 0 for any that is free.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what goes on now as JSON, and serve nothing.")
    ] = False,
) -> None:
    """Follow what runs: rounds, parties, budget and time left, in a local page; read-only.

    It is served to this machine alone, under an address with a secret in it: keep that to yourself.

    [bold]Example[/]: in one terminal a comparison, in another one the page that follows it:

        fedpriv compare chem97

        fedpriv dashboard results
    """
    from fedpriv.simulations.dashboard.activities import overview
    from fedpriv.simulations.dashboard.server import Dashboard

    if as_json:
        print_json(overview(directory))
        return
    with Dashboard(directory, port=port) as server:
        typer.echo(f"dashboard: {server.address}")
        typer.echo("Ctrl-C ends it; what it follows goes on.")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
