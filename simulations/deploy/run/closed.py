"""A run that was closed for good: nothing of it is asked for, or released, again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv.simulations.run.files import PRIVATE, private

if TYPE_CHECKING:
    from pathlib import Path

_CLOSED = "closed.txt"


def close_run(directory: Path, why: str) -> None:
    """Close the run of a directory; ``why`` is a sentence."""
    replace_file(private(directory) / _CLOSED, f"{why}\n")


def require_open(directory: Path) -> None:
    """Raise `ValueError` with the reason if the run of a directory was closed."""
    path = directory / PRIVATE / _CLOSED
    if path.exists():
        raise ValueError(
            f"the run in {str(directory)!r} was closed for good: {path.read_text().strip()} "
            "Start a new one."
        )
