"""Trackers by name, as `fedpriv run --track` has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedpriv.simulations.tracking.tracker import Tracker

KINDS = ("tensorboard", "mlflow")


def named(wanted: Iterable[str]) -> list[Tracker]:
    """Trackers by "KIND" or "KIND:WHERE"."""
    from fedpriv._validate import require_choice
    from fedpriv.simulations.tracking.mlflow import Mlflow
    from fedpriv.simulations.tracking.tensorboard import TensorBoard

    found: list[Tracker] = []
    for text in wanted:
        kind, _, where = text.partition(":")
        require_choice(KINDS, track=kind)
        if kind == "tensorboard":
            found.append(TensorBoard(where) if where else TensorBoard())
        else:
            found.append(Mlflow(where or None))
    return found
