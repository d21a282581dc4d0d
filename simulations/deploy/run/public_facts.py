"""Public facts of a deployed experiment: what it means where records are at their parties.

Server and parties each work it out for themselves, from the text of the experiment, a schema and a
roster of their own. Where they differ, queries do not fit, and are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import (
    Bounds,
    Dataset,
    PartitionedDataset,
    Records,
    Schema,
    bound,
    read_schema,
    read_table,
    require_releasable,
)
from fedpriv.data.dataset import no_records
from fedpriv.data.tables.columns import codes_norm, described_columns
from fedpriv.data.tables.magnitudes import magnitude_facts
from fedpriv.data.tables.schema import CategoryColumn
from fedpriv.federation.table_task import TableTask, table_task
from fedpriv.federation.task import Task
from fedpriv.learning.losses import Squared
from fedpriv.simulations.experiment.catalogue import checked, strategy_info
from fedpriv.simulations.experiment.models import learner
from fedpriv.simulations.run.metrics.evaluation import Evaluator
from fedpriv.simulations.run.prepare import (
    Prepared,
    label_unit,
    most_members,
    person_bounds,
    with_public_table,
)
from fedpriv.simulations.run.start import Beginning, beginning

if TYPE_CHECKING:
    from fedpriv.simulations.experiment.file import Experiment

ENGINE = "deployment"


def prepare_deployed(
    experiment: Experiment, *, sizes: tuple[int, ...], names: tuple[str, ...] = ()
) -> Prepared:
    """An experiment as its server prepares it: with a public test set, if there is one.

    Args:
        experiment: Of engine "deployment".
        sizes: The public number of records of every party, from the roster; of persons, where they
            are the unit.
        names: Of every party, from the roster, by which a description may tell of each.
    """
    resolved = checked(experiment)
    section = resolved.data
    if resolved.run.engine != ENGINE or section.schema_path is None:
        raise ValueError(
            f"run.engine must be {ENGINE!r}, with data.schema, to learn from parties that are "
            f"elsewhere; got {resolved.run.engine!r}."
        )
    if section.public_test != (section.path is not None):
        raise ValueError(
            "data.path and data.public_test belong together in a deployment: the path is that of a "
            "public test set. The records are at the parties."
        )
    schema = read_schema(section.schema_path)
    require_releasable(schema, deployed=True)  # every party would refuse it
    if resolved.describing:
        return _description(resolved, schema, sizes, names)
    facts = _stand_in(schema, name=section.title)
    if section.path is not None:
        facts = replace(facts, test=read_table(section.path, schema)[0].train)
    dataset = bound(facts, bounds_of(resolved))
    task = _task(resolved, dataset, sizes)
    # Here alone: a party takes parameters from a query, and reads no file of an experiment.
    begun = beginning(resolved, task.model, dataset)
    task = replace(task, start=begun.theta)
    prepared = Prepared(
        experiment=resolved,
        info=strategy_info(resolved.strategy.name, resolved.guests),
        data=PartitionedDataset(
            dataset=dataset, kind="natural", offsets=np.array([0, 1]), order=np.array([0])
        ),
        task=task,
        evaluator=Evaluator.of(task.model, task.loss, dataset.test, unit=label_unit(dataset)),
        begun=begun,
    )
    return with_public_table(prepared)


def public_task(experiment: Experiment, schema: Schema, *, sizes: tuple[int, ...]) -> Task:
    """The learning problem, or the table to describe, from public facts alone."""
    if experiment.describing:
        return _table(experiment, schema, sizes)
    dataset = bound(_stand_in(schema, name=experiment.data.title), bounds_of(experiment))
    return _task(experiment, dataset, sizes)


def _table(experiment: Experiment, schema: Schema, sizes: tuple[int, ...]) -> TableTask:
    """What a description is of: columns that the schema describes, or that have no bounds yet."""
    privacy = experiment.privacy
    if experiment.strategy.options.get("by_party") and privacy.noise_at != "parties":
        raise ValueError(
            "privacy.noise_at must be 'parties' to describe every party of a deployment by itself "
            f"(describe.by_party), got {privacy.noise_at!r}: side by side masks hide nothing, and "
            "a server that added the noise would first see the exact sums of each."
        )
    persons = person_bounds(experiment, strategy_info(experiment.strategy.name, experiment.guests))
    names = magnitudes_of(experiment)
    columns = magnitude_facts(names) if names else described_columns(schema)
    return table_task(columns, sizes=sizes, in_place=persons is None, persons=persons)


def magnitudes_of(experiment: Experiment) -> tuple[str, ...]:
    """The columns for which a description is to suggest bounds; none, if it is of others."""
    return tuple(experiment.strategy.options.get("magnitudes", ()))


def _description(
    experiment: Experiment, schema: Schema, sizes: tuple[int, ...], names: tuple[str, ...]
) -> Prepared:
    """A description as its server prepares it."""
    if experiment.data.path is not None:
        raise ValueError(
            "data.path must not be given to describe the tables of a deployment: they are at the "
            "parties, and there is nothing to test."
        )
    task = _table(experiment, schema, sizes)
    width = len(task.columns)
    dataset = Dataset(
        name=experiment.data.title,
        task="regression",
        train=Records(
            X=np.zeros((1, width), np.float32),
            y=np.zeros(1, np.float32),
            party=np.zeros(1, np.int64) if names else None,
        ),
        test=no_records(width, "regression"),
        feature_names=tuple(column.name for column in task.columns),
        max_norm=codes_norm(task.columns),
        party_names=names,
        schema=schema,
    )
    return Prepared(
        experiment=experiment,
        info=strategy_info(experiment.strategy.name, experiment.guests),
        data=PartitionedDataset(
            dataset=dataset, kind="natural", offsets=np.array([0, 1]), order=np.array([0])
        ),
        task=task,
        evaluator=Evaluator.of(task.model, task.loss, dataset.test),
        begun=Beginning(model=task.model),
    )


def bounds_of(experiment: Experiment) -> Bounds:
    """How features become vectors of bounded norm."""
    section = experiment.data
    return Bounds(norm=section.feature_norm, intercept=section.intercept, scaling=section.scaling)


def _task(experiment: Experiment, dataset: Dataset, sizes: tuple[int, ...]) -> Task:
    info = strategy_info(experiment.strategy.name, experiment.guests)
    persons = person_bounds(experiment, info)
    headroom = most_members(experiment, info, persons, headroom=1.0)
    model, loss = learner(experiment.model, dataset, headroom=headroom, minimises=info.minimises)
    if isinstance(loss, Squared) and loss.label_bound < 1:
        raise ValueError(
            f"model.label_bound must be at least 1 in a deployment, got {loss.label_bound!r}: "
            "labels lie in [-1, 1] by the schema, and whether a party has one beyond a smaller "
            "bound would show in whether it answers."
        )
    return Task(
        model=model,
        loss=loss,
        regulariser=experiment.model.regulariser,
        feature_bound=experiment.data.feature_norm,
        sizes=sizes,
        in_place=persons is None,
        persons=persons,
        radius=experiment.model.radius,
    )


def _stand_in(schema: Schema, *, name: str) -> Dataset:
    """A data set with the public facts of a schema; one record of zeros stands for all others."""
    task = schema.task
    label = schema.columns.get(schema.label)
    classes: tuple[str, ...] = ()
    if task == "binary":
        classes = (f"not {schema.positive}", str(schema.positive))
    elif isinstance(label, CategoryColumn):
        classes = label.values
    width = len(schema.feature_names)
    y = np.zeros(1, np.int64) if task == "multiclass" else np.ones(1, np.float32)
    return Dataset(
        name=name,
        task=task,
        train=Records(X=np.zeros((1, width), np.float32), y=y),
        test=no_records(width, task),
        feature_names=schema.feature_names,
        max_norm=float(np.sqrt(len(schema.features))),
        classes=classes,
        schema=schema,
    )
