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
            help="What to follow: a folder of results, or the folder of a federation or of one "
            "of its members.",
        ),
    ] = RESULTS,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Port on the loopback interface; 0 for any that is free."
        ),
    ] = 0,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the present state as JSON, and do not serve a page."),
    ] = False,
) -> None:
    """Follow runs in a local, read-only page: rounds, parties, budget and time left.

    The page is served to this machine only, at an address that contains a secret: keep it to
    yourself.

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
        typer.echo("Ctrl-C stops the dashboard; what it follows continues.")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
