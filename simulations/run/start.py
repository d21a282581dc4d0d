"""Start of a run: a pretrained model, and layers of it that stay frozen.

The start is public by assumption, and the statement says so: noise protects what a run learns from
its records, not the data from which the start was trained. A file that is not a model of the same
kind, for the same features and classes, is refused; nothing that it names is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.learning.frozen import Frozen, freeze
from fedpriv.learning.network import NetworkModel
from fedpriv.simulations.experiment.named_files import guests
from fedpriv.simulations.experiment.named_files.start_file import start_bytes
from fedpriv.simulations.run.model_file import (
    Contents,
    parse_contents,
    require_parameters,
    usable,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedpriv.data import Dataset, Schema
    from fedpriv.learning.models import Model
    from fedpriv.simulations.experiment.file import Experiment


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beginning:
    """Where a run begins.

    Attributes:
        model: Whose parameters are trained.
        theta: Where they begin; None for where the model says.
        frozen: How they lie in the whole network; None if all of it is trained.
    """

    model: Model
    theta: NDArray[np.float64] | None = None
    frozen: Frozen | None = None

    def whole(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """All parameters of the model that is released, the frozen ones at their places."""
        return theta if self.frozen is None else self.frozen.whole(theta)


def beginning(experiment: Experiment, model: Model, dataset: Dataset) -> Beginning:
    """The start that an experiment names, checked against its model and data; its frozen layers."""
    section = experiment.model
    theta = None
    if section.start is not None:
        path = Path(section.start)
        contents = parse_contents(start_bytes(section), path)
        _require_same(contents, experiment, dataset, path.name)
        with usable(path):
            require_parameters(contents.theta, model.dimension)
        theta = contents.theta
    if not section.frozen:
        return Beginning(model=model, theta=theta)
    # Without a start the module is one of the user's own, which brings its weights itself.
    own = model.weights.numpy() if isinstance(model, NetworkModel) else None
    parameters = own if theta is None else theta
    if parameters is None:
        raise ValueError("model.frozen needs model.start.")
    frozen = freeze(model, layers=section.frozen, parameters=parameters)
    start = None if theta is None else frozen.start
    return Beginning(model=frozen.model, theta=start, frozen=frozen)


def _require_same(contents: Contents, experiment: Experiment, dataset: Dataset, name: str) -> None:
    """Refuse a start of another model, or one for other features or classes."""
    path = dataset.preprocessing
    if path is None:
        raise ValueError("dataset must have bounded features before a model of it is begun.")
    theirs, found = contents.preprocessing, contents.section
    facts: dict[str, tuple[Any, Any]] = {
        "task": (contents.task, dataset.task),
        "classes": (contents.classes, dataset.classes),
        "features": (theirs.feature_names, path.feature_names),
        "schema (label, columns and their ranges)": (_scale(theirs.schema), _scale(path.schema)),
        "data.feature_norm, data.intercept and data.scaling": (theirs.bounds, path.bounds),
        "scale of the features": (theirs.max_norm, path.max_norm),
        "model": (
            _structure(found, contents.guests),
            _structure(experiment.model, experiment.guests),
        ),
    }
    for what, (theirs_is, ours_is) in facts.items():
        if theirs_is != ours_is:
            raise ValueError(
                f"model.start {name!r} was trained with another {what}: its parameters would mean "
                "something else here. Start from a model of the same kind, for the same columns."
            )


def _structure(section: Any, pins: dict[str, str]) -> tuple[Any, ...]:
    """What decides the meaning of a parameter: the loss does not."""
    if section.convex:
        return ("linear",)
    if section.own:
        code = guests.pin_of("model", section.name, pins)
        return (guests.title(section.name), code, section.shape, section.options)
    if section.name == "mlp":
        return ("mlp", section.hidden, section.activation)
    return (section.name, section.shape)


def _scale(schema: Schema | None) -> Any:
    """How columns become features, and labels what is learned; not who holds what."""
    if schema is None:
        return None
    rules = {"out_of_range"}
    columns = [(name, column.model_dump(exclude=rules)) for name, column in schema.columns.items()]
    used = {*schema.features, schema.label}
    return schema.label, schema.positive, [entry for entry in columns if entry[0] in used]
