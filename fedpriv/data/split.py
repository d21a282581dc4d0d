"""The test split: which records a model is tested on, decided for each record by itself.

A split by position would break privacy under every adjacency: when one record leaves a table, the
positions of all later ones change, and with a test set of one fifth, two fifths of them change
sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.dataset import Dataset, Records
from fedpriv.data.errors import DataError
from fedpriv.data.marks import below, marks
from fedpriv.data.persons import joined

if TYPE_CHECKING:
    from numpy.typing import NDArray


def hold_out(dataset: Dataset, *, fraction: float = 0.2, seed: int = 0) -> Dataset:
    """The test split: move about a ``fraction`` of the training records to the test set.

    Guarantee. Whether a record is in the test set depends only on its features, its label and the
    seed: no other record, no order and no count matters. Copies of a record are numbered (see
    `fedpriv.data.marks`). So if one record joins or leaves a table, at most one joins or leaves the
    training set; if one is exchanged, at most one joins and one leaves.

    Where persons are named, it depends on the record's person and the seed instead: all records of
    a person are on one side, so that a model is not tested on persons that it learned from, and if
    a person joins or leaves a table, at most that one joins or leaves the training set.

    The number of training records is thereby random and not public, under either adjacency. What a
    release divides by is the public number of all records times 1 − ``fraction``.
    """
    if len(dataset.test):
        raise DataError(f"{dataset.name} already has a test set of {len(dataset.test)} records.")
    train = dataset.train
    in_test = tested(train, fraction=fraction, seed=seed)
    return replace(dataset, train=train.take(~in_test), test=train.take(in_test))


def tested(records: Records, *, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which of the records `hold_out` moves to the test set."""
    if not 0 < fraction < 1:
        raise DataError(f"fraction must lie strictly between 0 and 1, got {fraction!r}.")
    purpose = "test split"
    if records.person is None:
        return below(fraction, marks(records, purpose=purpose, seed=seed))
    return below(fraction, records.person.marks(purpose=purpose, seed=seed))


def pooled(dataset: Dataset) -> Dataset:
    """The data set with its test records back in the training set, for another split, or none."""
    train, test = dataset.train, dataset.test
    if not len(test):
        return dataset
    party = _pooled_parties(train, test)
    return replace(
        dataset,
        train=Records(
            X=np.concatenate([train.X, test.X]),
            y=np.concatenate([train.y, test.y]),
            party=party,
            person=joined(train.person, test.person),
        ),
        test=test.take(slice(0, 0)),
        party_names=() if party is None else dataset.party_names,
    )


def _pooled_parties(train: Records, test: Records) -> NDArray[np.integer[Any]] | None:
    """The holder of each record; None if the holders of the test records are unknown."""
    if train.party is None or test.party is None:
        return None
    return np.concatenate([train.party, test.party])
