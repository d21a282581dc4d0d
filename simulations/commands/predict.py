"""`fedpriv predict`: labels for the rows of a table, by a model that a run released."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpriv.simulations.commands.output import print_json
from fedpriv.simulations.commands.run import AsJson

if TYPE_CHECKING:
    from fedpriv.simulations.api.fitted_model import FittedModel


def register(app: typer.Typer) -> None:
    """Add the command of this file to ``app``."""
    app.command()(predict)


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The directory of a run, or its model.npz.")
    ],
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="A CSV or Parquet file with the raw features.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write a CSV file here instead of printing it.")
    ] = None,
    own_code: Annotated[
        bool,
        typer.Option(
            "--own-code", help="Run the code that defines the model; only if you trust it."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict the label of every row of a table, in the order of its rows.

    Columns are clamped, filled and scaled by the schema of the training data, as in training.
    Each class comes with its probability, if the loss of the model has one.

    [bold]Example[/]: the patients of a new file:

        fedpriv predict results/clinic/20260101-120000-1a2b3c4d new.csv --out predicted.csv
    """
    from fedpriv._durable import replace_file
    from fedpriv.simulations.api.fitted_model import load_model

    columns = _predictions(load_model(model, own_code=own_code), table)
    if out is not None:
        if not out.parent.is_dir():
            raise ValueError(f"--out {str(out)!r}: its folder does not exist.")
        replace_file(out, _csv(columns))
    if as_json:
        print_json(columns)
    elif out is None:
        typer.echo(_csv(columns), nl=False)
    else:
        typer.echo(f"{len(columns['prediction'])} predictions: {out}")


def _predictions(model: FittedModel, table: Path) -> dict[str, list[Any]]:
    """The label of every row and, where the model has one, its probability."""
    columns = {"prediction": model.predict(table).tolist()}
    if model.has_probabilities:
        columns["probability"] = model.predict_proba(table).max(axis=1).tolist()
    return columns


def _csv(columns: dict[str, list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
