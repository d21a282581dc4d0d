"""Output of the commands: JSON, and the warnings that several of them end with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from fedpriv.simulations.run.prepare import Prepared


def print_json(values: Any) -> None:
    """Print ``values`` as JSON; what is not a finite number must have become null before."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def warn_of_persons(prepared: Prepared) -> None:
    """Say that a guarantee is for one record, where the table says whose a record is."""
    from fedpriv.simulations.run.statement.assumptions import of_a_person_column

    if not prepared.info.private or prepared.noise_free:
        return
    for sentence in of_a_person_column(prepared.data.dataset.schema, prepared.experiment):
        typer.echo(f"warning: {sentence}")
