"""Probing: the influence of every round, measured on public data instead of derived from a bound.

Noise in round t reaches the last model through the steps after it. To first order a step at θ_s
multiplies it by J_s = I − η(H_s + λI), with H_s the Hessian of the public risk at the noiseless
iterate, and the final risk weighs what arrives by H_T + λI. So a unit of noise variance in round t
raises the risk in proportion to

    q_t = tr(J_{t+1} ⋯ J_T (H_T + λI) J_T ⋯ J_{t+1}),

which is exact for a quadratic. The trace is estimated by a few random vectors, sent backwards
through the steps by Hessian-vector products. For networks, and several classes, see `decay`.

The public data are a built-in set, or a table of one's own with the schema of the private one; that
the people in it are none of those in the private data is its owner's word. What is measured on a
table, and in every deployment, is written into the experiment of the run: a table that changes
later changes no noise of a run that has begun.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.data import Bounds, bound, read_table
from fedpriv.simulations.experiment.records.data import party_records
from fedpriv.simulations.public.overlap import shares_records
from fedpriv.strategies.common.optimiser import OptimiserOptions, learning_rate

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.data import Records
    from fedpriv.federation.task import Task
    from fedpriv.simulations.run.prepare import Prepared

_RECORDS = 4000  # of the public data set: curvature is an average, and these are enough
_PROBES = 16
_TABLES = (".csv", ".parquet")
_PAID = "what is measured on the private records would be a release of its own."


def with_influence(options: dict[str, Any], prepared: Prepared) -> dict[str, Any]:
    """The options with their influence measured on public data, where they ask for that."""
    schedule = options.get("schedule")
    if not isinstance(schedule, dict) or schedule.get("name") != "influence":
        return options
    public = schedule.get("public")
    if public is None or schedule.get("values"):
        return options
    values = _measure(str(public), prepared, options)
    return {**options, "schedule": {"name": "influence", "public": public, "values": values}}


def is_table(public: object) -> bool:
    """Whether a schedule names a file of public records, and not a built-in data set."""
    return isinstance(public, str) and Path(public).suffix in _TABLES


def written(prepared: Prepared) -> Prepared:
    """The run with its influence measured, and written into its experiment."""
    options = prepared.experiment.strategy.options
    measured = with_influence(options, prepared)
    if measured is options:
        return prepared
    experiment = prepared.experiment.replaced(strategy={"schedule": measured["schedule"]})
    return replace(prepared, experiment=experiment)


def _measure(public: str, prepared: Prepared, options: dict[str, Any]) -> list[float]:
    task = prepared.task
    records = (_own_table if is_table(public) else _built_in)(public, prepared)
    if records.X.shape[1] != task.model.features:
        raise ValueError(
            f"schedule.public must have the features of the private data, {task.model.features}; "
            f"{public!r} has {records.X.shape[1]}."
        )
    if not task.convex or task.loss.outputs != 1:
        from fedpriv.simulations.public.decay import gradient_decay

        return gradient_decay(prepared, records, options)
    known = OptimiserOptions.model_fields
    steps = OptimiserOptions.model_validate({k: v for k, v in options.items() if k in known})
    return influence(
        replace(task, sizes=(len(records),)),
        from_dlpack(records.X).double(),
        from_dlpack(records.y).double(),
        rounds=int(options["rounds"]),
        rate=learning_rate(steps, task),
    )


def _own_table(public: str, prepared: Prepared) -> Records:
    """The first records of a table, read and bounded as the private ones are."""
    section, schema = prepared.experiment.data, prepared.data.dataset.schema
    if schema is None:
        raise ValueError(
            f"schedule.public must name a built-in data set where data.name does, got {public!r}: "
            "a table is read by the schema of the private data, and those have none."
        )
    deployed = prepared.experiment.run.engine == "deployment"  # data.path is a public test set
    private = None if deployed else section.path
    # By file, not by content: whether two tables hold the same is for no refusal to tell.
    if private is not None and Path(public).exists() and Path(private).samefile(public):
        raise ValueError(
            f"schedule.public must be another table than data.path, got {public!r}: {_PAID}"
        )
    bounds = Bounds(norm=section.feature_norm, intercept=section.intercept, scaling=section.scaling)
    return bound(read_table(public, schema)[0], bounds).train.take(slice(0, _RECORDS))


def _built_in(public: str, prepared: Prepared) -> Records:
    """The first records of a built-in data set that has none of the private ones."""
    experiment = prepared.experiment
    if shares_records(public, experiment.data.name):
        raise ValueError(
            f"schedule.public must name another, public data set, got {public!r}: {_PAID}"
        )
    chosen = experiment.replaced(
        data={
            "name": public,
            "path": None,
            "schema": None,
            "records": None,
            "partition": "iid",
            "parties": 1,
            "exponent": None,
            "alpha": None,
        }
    )
    return party_records(chosen).data.dataset.train.take(slice(0, _RECORDS))


def influence(task: Task, X: Tensor, y: Tensor, *, rounds: int, rate: float) -> list[float]:
    """q_1 … q_T of plain descent from zero on these records; the largest is 1.

    Args:
        task: model, loss and λ; one score per record.
        X: features, (n, d).
        y: labels, (n,).
        rounds: T.
        rate: η.
    """
    if task.loss.outputs != 1:
        raise ValueError("an influence is measured for a loss of one score per record.")
    n, d = X.shape
    theta = torch.zeros(d, dtype=torch.float64)
    curvatures = []
    for _ in range(rounds):
        scores = X @ theta
        curvatures.append(task.loss.curvature(scores, y) / n)
        gradient = X.T @ task.loss.slope(scores, y) / n + task.regulariser * theta
        theta = theta - rate * gradient
    last = task.loss.curvature(X @ theta, y) / n
    rng = np.random.default_rng(0)
    # Columns with covariance H_T + λI.
    shaken = X.T @ (last.sqrt()[:, None] * torch.from_numpy(rng.normal(size=(n, _PROBES))))
    probes = shaken + task.regulariser**0.5 * torch.from_numpy(rng.normal(size=(d, _PROBES)))
    traces = [float(probes.square().sum())]
    for curvature in reversed(curvatures[1:]):
        pulled = X.T @ (curvature[:, None] * (X @ probes)) + task.regulariser * probes
        probes = probes - rate * pulled
        traces.append(float(probes.square().sum()))
    values = np.array(traces[::-1])
    return list(np.maximum(values / values.max(), 1e-30).tolist())
