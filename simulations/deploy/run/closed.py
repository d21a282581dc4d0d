"""A run that was closed for good, cancelled or otherwise: no query of it is sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv._durable import replace_file
from fedpriv.simulations.run.files import PRIVATE, private
from fedpriv.simulations.run.kept_secret import forget_secret

if TYPE_CHECKING:
    from pathlib import Path

CANCELLED = "cancelled.json"
"""In the private folder of a run that was cancelled; see `cancelling`."""
EVALUATION = "evaluation.json"
"""In the private folder of a run of which an evaluation was begun; see `evaluation`."""
_CLOSED = "closed.txt"


def close_run(directory: Path, why: str) -> None:
    """Close the run of a directory; ``why`` is a sentence."""
    replace_file(private(directory) / _CLOSED, f"{why}\n")
    forget_secret(directory)


def drop_evaluation(directory: Path) -> bool:
    """Give up an evaluation that was begun and not finished; whether there was one."""
    path = directory / PRIVATE / EVALUATION
    begun = path.exists()
    path.unlink(missing_ok=True)
    return begun


def is_cancelled(directory: Path) -> bool:
    """Whether the run of a directory was cancelled before it had a result.

    One that was finished in that very moment is finished: no party was told otherwise yet.
    """
    recorded = (directory / PRIVATE / CANCELLED).exists()
    return recorded and not (directory / "result.json").exists()


def why_closed(directory: Path) -> str:
    """Why the run of a directory was closed, in a sentence; empty if it was not."""
    if is_cancelled(directory):
        return "it was cancelled, and the parties have left it."
    path = directory / PRIVATE / _CLOSED
    return path.read_text().strip() if path.exists() else ""


def require_open(directory: Path) -> None:
    """Raise `ValueError` with the reason if the run of a directory was closed."""
    if why := why_closed(directory):
        raise ValueError(
            f"the run in {str(directory)!r} was closed for good: {why} Start a new one."
        )
