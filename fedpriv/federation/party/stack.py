"""Stacked records as tensors, checked once against the task's assumptions about them."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from fedpriv.data.persons import at_most, bounds_of_persons, grouped, require_persons
from fedpriv.learning.batch import RecordBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedpriv.data import PartitionedDataset, Records
    from fedpriv.federation.task import Task
    from fedpriv.learning.clipping.persons import PersonGroups

_SLACK = 1 + 2.0**-40  # rounding of a float64 norm


def stack(records: Records, offsets: NDArray[np.int64], task: Task) -> RecordBatch:
    """Records of one or many parties, sharing the data's memory.

    Raises:
        ValueError: If a record breaks a promise of the task; the error does not say which record.
    """
    features, labels = from_dlpack(records.X), from_dlpack(records.y)
    if features.shape[1] != task.model.features:
        raise ValueError(
            f"records must have {task.model.features} features, as the model, "
            f"got {features.shape[1]}."
        )
    task.loss.check_labels(labels)
    if not _longest(records.X) <= task.feature_bound * _SLACK:
        raise ValueError(
            f"records must have ‖x‖₂ ≤ feature_bound = {task.feature_bound:g}, intercept included. "
            "Enforce it with fedpriv.data.bound."
        )
    return RecordBatch(features=features, labels=labels, offsets=torch.tensor(offsets))


def stack_persons(
    records: Records, offsets: NDArray[np.int64], task: Task
) -> tuple[RecordBatch, PersonGroups | None]:
    """`stack`, and for the person unit the owners of the records, each person's side by side.

    This is where a party enforces the declared bound on a person's records: those beyond it are
    dropped, whatever the server says, by `fedpriv.data.persons.at_most`.

    Raises:
        ValueError: As `stack`; or the unit is a person, but the records do not name persons.
    """
    if task.persons is None:
        return stack(records, offsets, task), None
    from fedpriv.learning.clipping.persons import PersonGroups  # it loads a compiler

    person = require_persons(records)
    if task.persons.records is not None:
        kept = at_most(records, offsets, records_each=task.persons.records)
        if not kept.all():
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])[offsets]
            records, person = records.take(kept), person.take(kept)
    order = grouped(person, offsets)
    if (np.diff(order) != 1).any():
        records, person = records.take(order), person.take(order)
    bounds = bounds_of_persons(person, offsets)
    groups = PersonGroups(bounds=bounds, parties=np.searchsorted(bounds, offsets))
    return stack(records, offsets, task), groups


def unit_counts(data: PartitionedDataset, task: Task) -> NDArray[np.int64]:
    """The number of records, or persons, from which each party draws its samples. Private."""
    if task.persons is None:
        return data.sizes
    if data.persons is None:
        raise ValueError("data must name persons for the person unit of privacy, and does not.")
    return data.persons


def _longest(X: NDArray[np.float32]) -> float:
    """The largest row norm, in float64, 0 of none; einsum makes no float64 copy of the records."""
    return sqrt(float(np.einsum("ij,ij->i", X, X, dtype=np.float64).max(initial=0.0)))
