"""`fedpriv compare`: strategies side by side, at equal privacy."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.progress import progress
from fedpriv.simulations.commands.run import INTERRUPTED, AsJson, Out, Settings, Source
from fedpriv.simulations.refusals import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedpriv.simulations.compare.rows import Row
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
    from fedpriv.simulations.compare.cells import cells, collect
    from fedpriv.simulations.compare.findings import findings

    with refusals():
        study, directory = _study(experiment, settings or [], out, resume)
        todo = cells(study)
        complete = _compute(todo, directory, workers, quiet=as_json)
    if not complete:
        typer.echo(f"Stopped. Continue with: fedpriv compare --resume {directory}", err=True)
        raise typer.Exit(INTERRUPTED)
    rows = collect(todo, directory)
    axes = study.compare
    sentences = findings(
        rows,
        axes.published_losses if axes else None,
        axes.published_accuracies if axes else None,
    )
    _finish(rows, study, sentences, directory, as_json=as_json)


def _study(
    experiment: str | None, settings: list[str], out: Path | None, resume: Path | None
) -> tuple[Experiment, Path]:
    from fedpriv.simulations.compare.cells import cells
    from fedpriv.simulations.experiment.file import read_experiment
    from fedpriv.simulations.experiment.toml_writer import to_toml
    from fedpriv.simulations.run.files import new_directory, write_atomic

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
    cells(study)  # refused before a directory is made
    directory = new_directory(study.name, study.config_hash, out=out)
    write_atomic(directory / "config.toml", to_toml(study.to_dict()))
    return study, directory


def _compute(todo: Sequence[Any], directory: Path, workers: int | None, *, quiet: bool) -> bool:
    from fedpriv.learning.crew import processors
    from fedpriv.simulations.compare.cells import compute
    from fedpriv.simulations.run.session import interruptible

    with interruptible() as stop, _progress(len(todo), quiet=quiet) as on_cell:
        return compute(
            todo,
            directory,
            workers=workers or processors(),
            on_cell=on_cell,
            stop=stop,
        )


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[Any, int], None]]:
    with progress("runs", total=total, words="starting workers", quiet=quiet) as show:
        yield lambda cell, done: show(done, cell.experiment.strategy.title)


def _finish(
    rows: Sequence[Row],
    study: Experiment,
    sentences: Sequence[str],
    directory: Path,
    *,
    as_json: bool,
) -> None:
    from rich.console import Console

    from fedpriv.simulations.compare.plots import text_plot
    from fedpriv.simulations.compare.report import table, write_report

    report = write_report(directory, rows, study, sentences)
    if as_json:
        print_json([row.to_dict() for row in rows])
        return
    console = Console()
    if not console.is_terminal:  # a file has no width: do not fold the table for it
        console = Console(width=_WIDTH)
    console.print(table(rows, study))
    for parties in sorted({int(row["parties"]) for row in rows}):
        plot = text_plot([row for row in rows if row["parties"] == parties])
        if plot:
            typer.echo(f"\n{rows[0].metric} against ε, {parties} parties\n\n{plot}")
    if sentences:
        typer.echo("\nFindings")
        for finding in sentences:
            typer.echo(f"  - {finding}")
    typer.echo(f"\nreport: {report}")
