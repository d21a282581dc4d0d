"""The experiment of a description: any experiment file, with the strategy that describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.simulations.experiment.catalogue import DESCRIBE
from fedpriv.simulations.experiment.file import parse_experiment, read_experiment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from fedpriv.simulations.experiment.file import Experiment

_KEPT = ("name", "summary", "data", "privacy", "persons", "run")


def read_description(
    source: str | Path | Mapping[str, Any],
    overrides: Iterable[str] = (),
    *,
    suggest_bounds: Sequence[str] = (),
) -> Experiment:
    """An experiment file as `fedpriv describe` reads it.

    Its data, privacy, persons and run count, and its table ``describe``; what it says about a model
    and a strategy does not. To suggest the bounds of some columns, nothing else is asked for.
    """
    experiment = read_experiment(source, overrides, describe=True)
    return describing(experiment, magnitudes=suggest_bounds)


def describing(experiment: Experiment, *, magnitudes: Sequence[str] = ()) -> Experiment:
    """The experiment with the strategy that describes."""
    values = {key: value for key, value in experiment.to_dict().items() if key in _KEPT}
    values["run"].pop("training_metrics", None)
    chosen = dict(experiment.describe or {})
    if experiment.describing:
        chosen = {**experiment.strategy.options, **chosen}
    if magnitudes:
        chosen = {"magnitudes": list(magnitudes)}
    return parse_experiment({**values, "strategy": {"name": DESCRIBE, **chosen}})
