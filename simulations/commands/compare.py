"""`fedpriv compare`: strategies side by side, at equal privacy."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.run import INTERRUPTED, AsJson, Out, Settings, Source
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.simulations.compare.cells import Cell
    from fedpriv.simulations.compare.comparison import Comparison
    from fedpriv.simulations.experiment.file import Experiment


_WIDTH = 160


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(compare)


def compare(
    experiment: Source = None,
    settings: Settings = None,
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted comparison from its directory.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes; by default one per processor. They do not change the numbers."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare strategies over budgets, parties and seeds; a simulation.

    EXPERIMENT is a TOML file, or the name of one that `fedpriv list experiments` shows.

    [bold]Example[/]: the main strategies on school data of 131 authorities:

        fedpriv compare chem97
    """
    from fedpriv.simulations.compare.comparison import carry_out

    with refusals():
        study, directory = _study(experiment, settings or [], out, resume)
        with _progress(study, quiet=as_json) as on_cell:
            comparison = carry_out(study, directory, workers=workers, on_cell=on_cell)
    if comparison is None:
        typer.echo(f"Stopped. Continue with: fedpriv compare --resume {directory}", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print_json([row.to_dict() for row in comparison.rows])
    else:
        _print(comparison)


def _study(
    experiment: str | None, settings: list[str], out: Path | None, resume: Path | None
) -> tuple[Experiment, Path]:
    from fedpriv.simulations.compare.comparison import start_comparison
    from fedpriv.simulations.experiment.file import read_experiment

    if resume is not None:
        if out is not None:
            raise ValueError("--resume continues in its own directory: give no --out.")
        if not (resume / "config.toml").exists():
            raise ValueError(f"--resume {str(resume)!r}: no comparison was started there.")
        started = read_experiment(resume / "config.toml")
        if experiment is not None and read_experiment(experiment, settings) != started:
            raise ValueError(f"--resume {str(resume)!r}: this is another comparison.")
        return started, resume
    if experiment is None:
        raise ValueError("name an experiment, as in: fedpriv compare chem97.")
    study = read_experiment(experiment, settings)
    return study, start_comparison(study, out=out)


@contextmanager
def _progress(study: Experiment, *, quiet: bool) -> Iterator[Callable[[Cell, int], None]]:
    from fedpriv.simulations.compare.cells import cells

    total = len(cells(study))
    with progress("runs", total=total, words="starting workers", quiet=quiet) as show:
        yield lambda cell, done: show(done, cell.experiment.strategy.title)


def _print(comparison: Comparison) -> None:
    from rich.console import Console

    from fedpriv.simulations.compare.plots import text_plot
    from fedpriv.simulations.compare.report import by_parties, table

    rows, study = comparison.rows, comparison.experiment
    console = Console()
    if not console.is_terminal:  # a file has no width: do not fold the table for it
        console = Console(width=_WIDTH)
    console.print(table(rows, study))
    for parties, (_, chosen) in by_parties(rows, study).items():
        plot = text_plot(chosen)
        if plot:
            typer.echo(f"\n{rows[0].metric} against ε, {parties} parties\n\n{plot}")
    if comparison.findings:
        typer.echo("\nFindings")
        for finding in comparison.findings:
            typer.echo(f"  - {finding}")
    typer.echo(f"\nreport: {comparison.report}")
