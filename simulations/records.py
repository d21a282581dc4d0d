"""From the data section of an experiment to records held by parties."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import (
    Bounds,
    Dataset,
    PartitionedDataset,
    Records,
    bound,
    load,
    partition,
    read_schema,
    read_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulations.experiment import Experiment
    from simulations.sections import DataSection

# A data set's own split is what is asked for if it is this close to it.
_SAME_SPLIT = 0.01
_DEFAULT_FRACTION = 0.2


def party_records(experiment: Experiment, *, keep: bool = False) -> PartitionedDataset:
    """Load, split, bound and partition; a function of the data section and of ``run.seed``.

    ``keep`` remembers the data set before its partition, for a process that has many runs on it:
    twice the memory, and one load for all.
    """
    section = experiment.data
    dataset = _kept(section) if keep else _bounded(section)
    rng = np.random.default_rng(experiment.seed_of("partition"))
    if section.partition == "natural":
        chosen = dataset if section.parties is None else _some_parties(dataset, section, rng)
        return partition(chosen, kind="natural", min_records=section.min_records)
    return partition(
        dataset,
        kind=section.partition,
        parties=section.parties,
        rng=rng,
        exponent=_or(section.exponent, 1.0) if section.partition == "sized" else None,
        alpha=_or(section.alpha, 0.5) if section.partition == "dirichlet" else None,
        min_records=section.min_records,
    )


def _bounded(section: DataSection) -> Dataset:
    """The data set before it meets a seed."""
    bounds = Bounds(norm=section.feature_norm, intercept=section.intercept, scaling=section.scaling)
    return bound(_split(_loaded(section), section), bounds)


_kept = lru_cache(maxsize=1)(_bounded)


def _loaded(section: DataSection) -> Dataset:
    if section.name is not None:
        return load(section.name, root=section.root)
    dataset, _ = read_table(str(section.path), read_schema(str(section.schema_path)))
    return dataset


def _split(dataset: Dataset, section: DataSection) -> Dataset:
    train, test = dataset.train, dataset.test
    own = len(test) / (len(train) + len(test))
    wanted = section.test_fraction
    if own and (wanted is None or abs(own - wanted) <= _SAME_SPLIT):
        return dataset
    pooled = Records(
        X=np.concatenate([train.X, test.X]),
        y=np.concatenate([train.y, test.y]),
        party=_pooled_parties(train, test),
    )
    # By the decimal digits that the user wrote: 0.2 is every fifth record, exactly.
    in_test = _held_out(pooled, Fraction(str(_or(wanted, _DEFAULT_FRACTION))))
    if not in_test.any():
        raise ValueError(
            f"data.test_fraction = {wanted} leaves no record to test on: no party has enough."
        )
    return replace(
        dataset,
        train=pooled.take(~in_test),
        test=pooled.take(in_test),
        party_names=() if pooled.party is None else dataset.party_names,
    )


def _pooled_parties(train: Records, test: Records) -> NDArray[np.integer[Any]] | None:
    if train.party is None or (test.party is None and len(test)):
        return None
    if test.party is None:
        return train.party
    return np.concatenate([train.party, test.party])


def _held_out(records: Records, fraction: Fraction) -> NDArray[np.bool_]:
    """Every 1/fraction-th record of each party, by its position: no seed, same everywhere."""
    n = len(records)
    party = np.zeros(n, np.int32) if records.party is None else records.party
    order = np.argsort(party, kind="stable")
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n) - np.searchsorted(party[order], party[order])
    up, down = fraction.numerator, fraction.denominator
    return np.asarray((rank + 1) * up // down > rank * up // down)


def _some_parties(dataset: Dataset, section: DataSection, rng: np.random.Generator) -> Dataset:
    """``parties`` of the natural ones: the first of a random order, so that more include fewer."""
    natural, wanted = len(dataset.party_names), section.parties or 0
    if dataset.train.party is None:
        return dataset  # `partition` says what is missing
    if wanted > natural:
        raise ValueError(
            f"data.parties must be at most {natural}, the natural parties of {dataset.name}, got "
            f"{wanted}. Choose another partition for more."
        )
    chosen = np.sort(rng.permutation(natural)[:wanted])
    rows = np.isin(dataset.train.party, chosen)
    train = dataset.train.take(rows)
    party = np.searchsorted(chosen, np.asarray(train.party))
    return replace(
        dataset,
        train=Records(X=train.X, y=train.y, party=party),
        test=Records(X=dataset.test.X, y=dataset.test.y),
        party_names=tuple(dataset.party_names[index] for index in chosen),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
