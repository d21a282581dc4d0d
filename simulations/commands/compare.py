"""`fedpriv compare`: strategies side by side, at equal privacy."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.run import INTERRUPTED, AsJson, Out, Settings, Source
from fedpriv.simulations.commands.settings import WithSettings
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedpriv.simulations.compare.cells import Cell
    from fedpriv.simulations.compare.comparison import Comparison
    from fedpriv.simulations.experiment.file import Experiment


_WIDTH = 160


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command(cls=WithSettings)(compare)


def compare(
    experiment: Source = None,
    settings: Settings = None,
    out: Out = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted comparison from its directory.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=VALUE,…",
            help="Compare over the values of one or two keys: rounds=10,30,100, clip=0.1,1, "
            "parties=5,50, model.l2=1e-4,1e-2, strategy.schedule=uniform,dynamic.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes; by default one per processor. It does not change the "
            "results.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare strategies over budgets, parties, seeds, or any key, in simulations.

    EXPERIMENT is a TOML file, or the name of one that `fedpriv list experiments` shows.

    [bold]Example[/]: the main strategies on school data of 131 authorities:

        fedpriv compare chem97

    [bold]Example[/]: one curve over the number of rounds for each of two clip norms:

        fedpriv compare quickstart --over rounds=10,30,100 --over clip=0.1,1
    """
    from fedpriv.simulations.compare.comparison import carry_out

    with refusals():
        study, directory = _study(experiment, settings or [], over or [], out, resume)
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
    experiment: str | None,
    settings: list[str],
    over: list[str],
    out: Path | None,
    resume: Path | None,
) -> tuple[Experiment, Path]:
    from fedpriv.simulations.compare.axes import parse_axes
    from fedpriv.simulations.compare.comparison import start_comparison
    from fedpriv.simulations.experiment.file import read_experiment

    def wanted(source: str) -> Experiment:
        study, swept = read_experiment(source, settings), parse_axes(over)
        return study.replaced(compare={"over": swept}) if swept else study

    if resume is not None:
        if out is not None:
            raise ValueError("--resume continues in its own directory: give no --out.")
        if not (resume / "config.toml").exists():
            raise ValueError(f"--resume {str(resume)!r}: no comparison was started there.")
        started = read_experiment(resume / "config.toml")
        if experiment is not None and wanted(experiment) != started:
            raise ValueError(f"--resume {str(resume)!r}: this is another comparison.")
        return started, resume
    if experiment is None:
        raise ValueError("name an experiment, as in: fedpriv compare chem97.")
    study = wanted(experiment)
    return study, start_comparison(study, out=out)


@contextmanager
def _progress(study: Experiment, *, quiet: bool) -> Iterator[Callable[[Cell, int], None]]:
    from fedpriv.simulations.compare.cells import cells

    total = len(cells(study))
    with progress("runs", total=total, words="starting workers", quiet=quiet) as show:
        yield lambda cell, done: show(done, cell.experiment.strategy.title)


def _print(comparison: Comparison) -> None:
    from rich.console import Console

    from fedpriv.simulations.compare.panels import panels
    from fedpriv.simulations.compare.plots import text_plot
    from fedpriv.simulations.compare.report import table

    rows, study = comparison.rows, comparison.experiment
    console = Console()
    if not console.is_terminal:  # a file has no width: do not fold the table for it
        console = Console(width=_WIDTH)
    console.print(table(rows, study))
    measured = ["excess_risk"] if any(row.column("excess_risk") for row in rows) else []
    for panel in panels(rows, study):
        for key in (rows[0].metric, *measured):
            plot = text_plot(panel, key=key)
            if plot:
                title = key.replace("_", " ")
                typer.echo(f"\n{title} against {panel.against}{panel.words}\n\n{plot}")
    if comparison.findings:
        typer.echo("\nFindings")
        for finding in comparison.findings:
            typer.echo(f"  - {finding}")
    typer.echo(f"\npage: {comparison.page}\nreport: {comparison.report}")
