"""The result of a run, for a notebook: its model, its metrics, and what it guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import TYPE_CHECKING, Any, Self

from fedpriv.data.errors import import_optional
from fedpriv.inference.coefficients import CoefficientTable
from fedpriv.simulations.api.fitted_model import FittedModel, load_model
from fedpriv.simulations.figures import new_figure
from fedpriv.simulations.report.files import PAGE
from fedpriv.simulations.run.files import PRIVATE, new_directory, read_json
from fedpriv.simulations.run.metrics.scores import MEASURES
from fedpriv.simulations.run.summary import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """The result of a run: what was learned, how good it is, and what it guarantees.

    >>> import fedpriv
    >>> study = {"data": {"name": "synthetic"}, "strategy": {"name": "output-perturbation"}}
    >>> result = fedpriv.run(study, privacy={"epsilon": 2.0})
    >>> result.epsilon <= 2.0, result.adjacency, len(result.history)
    (True, 'replace-one', 1)
    >>> print(result.statement.splitlines()[0])
    SIMULATED: no privacy was spent

    Attributes:
        directory: The files of the run. For a simulation without ``out``, a temporary directory
            that is deleted with the result: `save` keeps a copy.
        summary: The content of ``result.json``.
        history: One entry per round: ``round``, ``epsilon`` spent so far and, where they were
            computed, ``accuracy`` and ``loss``; with ``run.training_metrics`` ``objective``,
            ``excess_risk`` and ``optimality_gap``.
        statement: What the run guarantees, as text to sign.
        own_code: Whether `model` may run code of the experiment's author, as the run did.
    """

    directory: Path
    summary: Mapping[str, Any]
    history: tuple[Mapping[str, float | None], ...]
    statement: str
    own_code: bool = False

    @classmethod
    def load(cls, directory: str | Path, *, own_code: bool = False) -> Self:
        """The result in the directory of a finished run, whoever started it."""
        folder = Path(directory)
        return cls(
            directory=folder,
            summary=read_json(folder / "result.json"),
            history=tuple(read_json(folder / "metrics.json")),
            statement=(folder / "statement.txt").read_text(encoding="utf-8"),
            own_code=own_code,
        )

    @cached_property
    def model(self) -> FittedModel:
        """The fitted model, which predicts from raw tables."""
        return load_model(self.directory, own_code=self.own_code)

    @property
    def page(self) -> Path:
        """The run as a page for a browser, if Jinja was available to make it."""
        return self.directory / PAGE

    @property
    def metrics(self) -> dict[str, float | None]:
        """Metrics of the model on the test records; None where not computed, or not defined."""
        keys = ("accuracy", "loss", *MEASURES, "test_records")
        return {key: self.summary.get(key) for key in keys}

    @property
    def epsilon(self) -> float | None:
        """ε that was spent, an upper bound; in a simulation, that a release would spend."""
        return self._number("epsilon")

    @property
    def delta(self) -> float | None:
        """δ at which `epsilon` holds; None for a strategy without a guarantee."""
        return self._number("delta")

    @property
    def adjacency(self) -> str | None:
        """The neighbouring data sets of the guarantee; None for a strategy without a guarantee."""
        found = self.summary["adjacency"]
        return None if found is None else str(found)

    @property
    def unit(self) -> str | None:
        """The unit of privacy: "record", "person" or "party"; None without a guarantee."""
        found = self.summary["unit"]
        return None if found is None else str(found)

    @property
    def coefficients(self) -> CoefficientTable | None:
        """Coefficients with their intervals, of `fedpriv.fit`; None for other runs."""
        found = self.summary.get("coefficients")
        return None if found is None else CoefficientTable.from_dict(found)

    def to_frame(self) -> DataFrame:
        """`history` as a pandas DataFrame, one row per round; the extra `frame` brings pandas."""
        frame: DataFrame = import_optional("pandas", extra="frame").DataFrame(list(self.history))
        return frame

    def plot(self) -> Figure:
        """Metrics and ε spent against rounds, as a matplotlib figure."""
        metric = "loss" if self._column("accuracy")[1] == [] else "accuracy"
        curves = {
            f"{metric} on the test set": self._column(metric),
            "excess empirical risk": self._column("excess_risk"),
            "ε spent": self._column("epsilon"),
        }
        shown = {label: curve for label, curve in curves.items() if curve[1]}
        figure = new_figure(width=7, height=2.5 * max(1, len(shown)))
        for place, (label, (rounds, values)) in enumerate(shown.items(), start=1):
            axes: Axes = figure.add_subplot(len(shown), 1, place)
            axes.plot(rounds, values, "o-" if len(values) < 30 else "-", markersize=3)
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            if place == len(shown):
                axes.set_xlabel("round")
        figure.suptitle(f"{self.summary['label']} on {self.summary['data']}", fontsize=10)
        return figure

    def save(self, path: str | Path) -> Path:
        """Copy the files of the run to a new or empty directory, without what is private."""
        target = new_directory("", "", out=Path(path))
        copytree(self.directory, target, ignore=ignore_patterns(PRIVATE, ".*"), dirs_exist_ok=True)
        return target

    def __repr__(self) -> str:
        return "\n".join(in_words(self.summary))

    def _repr_html_(self) -> str:
        first, *facts = map(escape, in_words(self.summary))
        status = escape(self.statement.splitlines()[0])
        items = "".join(f"<li>{fact}</li>" for fact in facts)
        return f"<div><b>{first}</b><ul>{items}<li>{status}</li></ul></div>"

    def _number(self, key: str) -> float | None:
        found = self.summary[key]
        return None if found is None else float(found)

    def _column(self, key: str) -> tuple[list[float], list[float]]:
        """The rounds in which something was computed, and its values."""
        known = [
            (entry["round"], entry.get(key)) for entry in self.history if entry.get(key) is not None
        ]
        return [float(r or 0) for r, _ in known], [float(v or 0) for _, v in known]
