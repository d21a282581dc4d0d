"""From an experiment to a fit: the keys that inference needs, where the file leaves them open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.data import read_schema
from fedpriv.simulations.experiment.catalogue import INFERENCE
from fedpriv.simulations.experiment.file import read_experiment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from fedpriv.simulations.experiment.file import Experiment

_MODEL_OF = {"binary": "logistic", "regression": "squared"}


def read_fit(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> Experiment:
    """The experiment with ``strategy.name = "inference"``, and what follows from it.

    Of what the file leaves open: ``data.scaling`` is "divide", so that coefficients have units; a
    table without a test column is used as a whole; and the model follows from the label, logistic
    for two classes and squared for a number.
    """
    experiment = read_experiment(source, [*overrides, f'strategy.name="{INFERENCE}"'])
    given = experiment.data.model_fields_set
    data: dict[str, Any] = {}
    model: dict[str, Any] = {}
    if "scaling" not in given:
        data["scaling"] = "divide"
    if experiment.data.schema_path is not None:
        schema = read_schema(experiment.data.schema_path)
        if "test_fraction" not in given and schema.test_column is None:
            data["test_fraction"] = 0.0
        if "name" not in experiment.model.model_fields_set and schema.task in _MODEL_OF:
            model["name"] = _MODEL_OF[schema.task]
    return experiment.replaced(data=data, model=model)
