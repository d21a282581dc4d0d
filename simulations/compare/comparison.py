"""A comparison of strategies: started, carried out in processes, and read from its directory."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv._toml import to_toml
from fedpriv.data.errors import import_optional
from fedpriv.learning.crew import processors
from fedpriv.simulations.compare.cells import Cell, cells, collect, compute
from fedpriv.simulations.compare.findings import findings
from fedpriv.simulations.compare.panels import panels
from fedpriv.simulations.compare.plots import draw
from fedpriv.simulations.compare.report import cell_columns, terms, write_report
from fedpriv.simulations.experiment.file import read_experiment
from fedpriv.simulations.figures import new_figure
from fedpriv.simulations.report.files import PAGE, leave_report
from fedpriv.simulations.run.files import new_directory
from fedpriv.simulations.run.progress import ProgressFile, forget_progress
from fedpriv.simulations.signals import interruptible

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from pandas import DataFrame

    from fedpriv.simulations.compare.rows import Row
    from fedpriv.simulations.experiment.file import Experiment


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison:
    """A comparison of strategies at equal (ε, δ), unit and adjacency; a simulation.

    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> comparison = fedpriv.compare(study, compare={"seeds": 1}, workers=1)
    >>> len(comparison.to_frame()), comparison.report.name
    (3, 'report.md')

    Attributes:
        experiment: What was compared.
        directory: Its files: ``report.md``, ``report.html``, ``rows.csv``, ``rows.json``, plots.
        rows: One per setting, with its mean and confidence interval over the seeds.
        findings: What the seeds support, one sentence each.
    """

    experiment: Experiment
    directory: Path
    rows: tuple[Row, ...]
    findings: tuple[str, ...]

    @property
    def report(self) -> Path:
        """The file with the report."""
        return self.directory / "report.md"

    @property
    def page(self) -> Path:
        """The same as a page for a browser, if Jinja was there to make it."""
        return self.directory / PAGE

    def to_frame(self) -> DataFrame:
        """`rows` as a pandas DataFrame; the extra `frame` brings pandas."""
        pandas = import_optional("pandas", extra="frame")
        values = [
            # ∞ is a number in a frame, and every key of `compare.over` a column.
            {**row.to_dict(), **row.point, "epsilon_budget": row.epsilon_budget}
            for row in self.rows
        ]
        frame: DataFrame = pandas.DataFrame(values)
        return frame

    def plot(self) -> Figure:
        """The metric against ε, or the key compared over, one picture per number of parties."""
        groups = panels(self.rows, self.experiment)
        figure = new_figure(width=9, height=5 * len(groups))
        for place, panel in enumerate(groups, start=1):
            axes = figure.add_subplot(len(groups), 1, place)
            draw(axes, panel)
            if place == 1:
                handles, labels = axes.get_legend_handles_labels()
                figure.legend(handles, labels, loc="outside right upper", fontsize=8)
        return figure

    def save(self, path: str | Path) -> Path:
        """Copy the files of the comparison to a new or empty directory."""
        target = new_directory("", "", out=Path(path))
        copytree(self.directory, target, dirs_exist_ok=True)
        return target

    def __repr__(self) -> str:
        return f"Comparison({len(self.rows)} rows; {terms(self.experiment)})"

    def _repr_html_(self) -> str:
        columns = cell_columns(self.rows, self.experiment)
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
            for cells in zip(*columns.values(), strict=True)
        )
        items = "".join(f"<li>{escape(finding)}</li>" for finding in self.findings)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div><p>{escape(terms(self.experiment))}</p>{table}<ul>{items}</ul></div>"


def start_comparison(study: Experiment, *, out: Path | None = None) -> Path:
    """The directory of a new comparison; what cannot be compared is refused before it is made."""
    cells(study)
    directory = new_directory(study.name, study.config_hash, out=out)
    replace_file(directory / "config.toml", to_toml(study.to_dict()))
    return directory


def carry_out(
    study: Experiment,
    directory: Path,
    *,
    workers: int | None = None,
    on_cell: Callable[[Cell, int], None] = lambda _cell, _done: None,
) -> Comparison | None:
    """Compute what is missing, and write the report; None if Ctrl-C stopped it, to be resumed."""
    todo, count = cells(study), workers or processors()
    there = sum(cell.file(directory).exists() for cell in todo)
    progress = ProgressFile(directory, unit="runs", done=there, total=len(todo))

    def watch(cell: Cell, done: int) -> None:
        progress.note(done)
        on_cell(cell, done)

    with interruptible() as stop:
        if not compute(todo, directory, workers=count, on_cell=watch, stop=stop):
            return None
    comparison = _collected(study, directory)
    write_report(directory, comparison.rows, study, comparison.findings)
    leave_report(directory, simulated=True)
    forget_progress(directory)
    return comparison


def read_comparison(directory: Path) -> Comparison:
    """A finished comparison, from its directory.

    Raises:
        ValueError: It was not started there, or some of it is still to be computed.
    """
    if not (directory / "config.toml").exists():
        raise ValueError(f"{str(directory)!r}: no comparison was started there.")
    study = read_experiment(directory / "config.toml")
    missing = [c for c in cells(study) if not c.file(directory).exists()]
    if missing:
        raise ValueError(
            f"{str(directory)!r}: {len(missing)} runs of the comparison are still to be computed. "
            f"Finish it first: fedpriv compare --resume {directory}."
        )
    return _collected(study, directory)


def _collected(study: Experiment, directory: Path) -> Comparison:
    """The rows of all cells, and what can be said of them."""
    rows, axes = collect(cells(study), directory), study.compare
    found = findings(
        rows,
        axes.published_losses if axes else None,
        axes.published_accuracies if axes else None,
    )
    return Comparison(
        experiment=study, directory=directory, rows=tuple(rows), findings=tuple(found)
    )
