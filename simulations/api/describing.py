"""`fedpriv.describe`: private statistics of a table from Python, as the command line has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.data.errors import import_optional
from fedpriv.simulations.api.running import carried_out, overrides
from fedpriv.simulations.describe.experiment import read_description
from fedpriv.simulations.describe.files import read_statistics
from fedpriv.simulations.describe.pictures import picture
from fedpriv.simulations.describe.words import in_words
from fedpriv.simulations.run.files import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.figure import Figure
    from pandas import DataFrame

    from fedpriv.simulations.api.running import Source


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Statistics:
    r"""Statistics of a table, with the standard errors of their noise, and their guarantee.

    >>> import fedpriv, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> table, schema = folder / "ages.csv", folder / "schema.toml"
    >>> _ = table.write_text("age,sick\n" + "40,no\n,no\n60,yes\n50,no\n" * 500)
    >>> _ = schema.write_text(
    ...     "label = 'sick'\n[columns.age]\nkind = 'number'\nmin = 0\nmax = 100\n"
    ...     "[columns.sick]\nkind = 'category'\nvalues = ['no', 'yes']"
    ... )
    >>> data = {"path": str(table), "schema": str(schema), "partition": "hashed", "parties": 1}
    >>> found = fedpriv.describe({"data": data}, privacy={"epsilon": 2.0})
    >>> found.epsilon <= 2.0, list(found.columns)
    (True, ['age', 'sick'])

    Attributes:
        summary: The content of ``result.json``.
        statistics: The content of ``statistics.json``.
        statement: What the release guarantees, as text to sign.
    """

    summary: Mapping[str, Any]
    statistics: Mapping[str, Any]
    statement: str

    @property
    def columns(self) -> Mapping[str, Any]:
        """By column: missing values, mean, variance, quantiles and histogram, or counts."""
        found: Mapping[str, Any] = self.statistics["columns"]
        return found

    @property
    def epsilon(self) -> float | None:
        """ε that was spent, an upper bound; in a simulation, that a release would spend."""
        found = self.summary["epsilon"]
        return None if found is None else float(found)

    def to_frame(self) -> DataFrame:
        """Columns of numbers as a pandas DataFrame, like ``DataFrame.describe``, transposed."""
        rows = {}
        for name, column in self.columns.items():
            if column["kind"] == "number":
                told = column.get("quantiles", ())
                quantiles = {f"{100 * one['chance']:g}%": one["value"] for one in told}
                rows[name] = {
                    "missing": column["missing"]["count"],
                    "mean": column.get("mean"),
                    "std": column.get("stddev"),
                    **quantiles,
                }
        pandas = import_optional("pandas", extra="frame")
        frame: DataFrame = pandas.DataFrame.from_dict(rows, orient="index")
        return frame

    def plot(self) -> Figure:
        """Histograms, counts and curves, as a matplotlib figure."""
        return picture(self.statistics)

    def __repr__(self) -> str:
        return "\n".join(in_words(self.summary, self.statistics))


def describe(
    experiment: Source,
    /,
    *,
    out: str | Path | None = None,
    release: bool = False,
    ledger: str | Path | None = None,
    new_ledger: bool = False,
    **tables: Any,
) -> Statistics:
    r"""Describe a table with privacy, as `fedpriv describe` does; a simulation unless ``release``.

    >>> import fedpriv, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> table, schema = folder / "ages.csv", folder / "schema.toml"
    >>> _ = table.write_text("age,sick\n" + "40,no\n,no\n60,yes\n50,no\n" * 500)
    >>> _ = schema.write_text(
    ...     "label = 'sick'\n[columns.age]\nkind = 'number'\nmin = 0\nmax = 100\n"
    ...     "[columns.sick]\nkind = 'category'\nvalues = ['no', 'yes']"
    ... )
    >>> data = {"path": str(table), "schema": str(schema), "partition": "hashed", "parties": 1}
    >>> study = {"data": data, "describe": {"quantiles": [0.5]}}
    >>> age = fedpriv.describe(study, privacy={"epsilon": 2.0}).columns["age"]
    >>> abs(age["mean"] - 50) < 5 * age["mean_error"], abs(age["missing"]["count"] - 500) < 100
    (True, True)

    Args:
        experiment: A TOML file or its tables as a dict: data, privacy, and ``describe``.
        out: A new or empty directory for the results; needed by a release.
        release: Whether it is for real, paid for in the ledger.
        ledger: The ledger of the data set.
        new_ledger: Whether to make that ledger first.
        **tables: Keys to replace, as in ``describe={"bins": 64}``.

    Raises:
        ValueError: If the experiment or the ledger refuses, with the message of the command line.
    """
    wanted = read_description(experiment, overrides(tables))
    with carried_out(
        wanted, "describe", out=out, release=release, ledger=ledger, new_ledger=new_ledger
    ) as directory:
        return Statistics(
            summary=read_json(directory / "result.json"),
            statistics=read_statistics(directory),
            statement=(directory / "statement.txt").read_text(encoding="utf-8"),
        )
