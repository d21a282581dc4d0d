"""JSON output of the commands."""

from __future__ import annotations

import json
from typing import Any

import typer


def print_json(values: Any) -> None:
    """Print ``values`` as JSON; what is not a finite number must have become null before."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))
