"""Prepare a description: the columns of a table, who holds them, and nothing to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.data.tables.columns import described_columns
from fedpriv.data.tables.magnitudes import magnitude_facts
from fedpriv.federation.table_task import table_task
from fedpriv.simulations.run.metrics.evaluation import Evaluator
from fedpriv.simulations.run.prepare import Prepared
from fedpriv.simulations.run.start import Beginning

if TYPE_CHECKING:
    from fedpriv.federation.task import PersonBounds
    from fedpriv.simulations.experiment.file import Experiment
    from fedpriv.simulations.experiment.records.holding import Holding
    from fedpriv.strategies import StrategyInfo


def described(
    experiment: Experiment, info: StrategyInfo, holding: Holding, persons: PersonBounds | None
) -> Prepared:
    """The run of a description, ready to ask."""
    dataset = holding.data.dataset
    if dataset.schema is None:
        raise ValueError("describe needs a table with a schema.")
    names = tuple(experiment.strategy.options.get("magnitudes", ()))
    task = table_task(
        magnitude_facts(names) if names else described_columns(dataset.schema),
        sizes=holding.sizes,
        headroom=holding.headroom,
        in_place=holding.in_place,
        persons=persons,
    )
    return Prepared(
        experiment=experiment,
        info=info,
        data=holding.data,
        task=task,
        evaluator=Evaluator.of(task.model, task.loss, dataset.test),
        begun=Beginning(model=task.model),
    )
