"""`fedpriv data shard`: the records of an experiment, split, bounded and partitioned, to a store.

Records that fit in memory go through `party_records` as usual. A table need not fit: it is spooled
to files, and `held` splits and partitions placeholder records whose features are their row numbers.
The output is the same to the byte.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data import Bounds, Dataset, Records, bound, read_schema
from fedpriv.data.split import tested
from fedpriv.data.store.manifest import dataset_facts
from fedpriv.data.store.spool import spooled
from fedpriv.data.store.writer import BLOCK_BYTES, write_store
from fedpriv.simulations.experiment.catalogue import checked, strategy_info
from fedpriv.simulations.experiment.records.data import held, party_records
from fedpriv.simulations.experiment.records.splits import Split, hashed_fraction
from fedpriv.simulations.experiment.records.stores import holding_facts, write_holding
from fedpriv.simulations.run.prepare import person_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fedpriv.data.preprocessing import Preprocessing
    from fedpriv.data.store.manifest import Manifest
    from fedpriv.federation.task import PersonBounds
    from fedpriv.simulations.experiment.file import Experiment

_LIMB = 1 << 20  # rows are counted in two float32 numbers, both of them exact


def shard(experiment: Experiment, folder: Path) -> Manifest:
    """Prepare the records of an experiment, and write them to a new folder."""
    experiment = checked(experiment)
    if experiment.describing or experiment.data.store is not None:
        raise ValueError(
            "data must be records to learn from, got columns to describe or a store: name the "
            "table, or the built-in data set, itself."
        )
    persons = person_bounds(experiment, strategy_info(experiment.strategy.name, experiment.guests))
    if experiment.data.path is None:
        return write_holding(
            folder, experiment, party_records(experiment, persons=persons), persons
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".spool-", dir=folder.parent) as scratch:  # on the same disk
        return _shard_table(experiment, persons, folder, Path(scratch))


def _shard_table(
    experiment: Experiment, persons: PersonBounds | None, folder: Path, scratch: Path
) -> Manifest:
    section = experiment.data
    raw = spooled(
        str(section.path),
        read_schema(str(section.schema_path)),
        scratch,
        empty=section.records is not None,
    )
    bounds = Bounds(norm=section.feature_norm, intercept=section.intercept, scaling=section.scaling)
    known = bound(replace(raw, train=_first(raw.train, 0), test=_first(raw.test, 0)), bounds)
    path = known.preprocessing
    if path is None:
        raise ValueError("bound must say what it did to the features, and did not.")
    split = _split(raw, experiment)
    table = _Table(raw, path)
    holding = held(
        experiment,
        split,
        persons,
        marked=lambda stand_ins: table.spooled(stand_ins.train, scratch / "bounded"),
    )
    dataset = holding.data.dataset
    return write_store(
        folder,
        holding.data,
        sizes=holding.sizes,
        facts=holding_facts(experiment, holding, persons),
        dataset=dataset_facts(known),
        features=(table.blocks(dataset.train), table.blocks(dataset.test)),
    )


class _Table:
    """The features of a table, training records before test records, by the numbers of rows."""

    def __init__(self, raw: Dataset, path: Preprocessing) -> None:
        self._train, self._test, self._path = raw.train.X, raw.test.X, path
        width = 4 * (raw.train.X.shape[1] + 1)
        self._rows = max(1, BLOCK_BYTES // width)

    def blocks(self, stand_ins: Records) -> Iterator[NDArray[np.float32]]:
        """The bounded features of the records that these stand for, some at a time."""
        numbers = row_numbers(stand_ins)
        for first in range(0, len(numbers), self._rows):
            yield self._path.bounded(self._of(numbers[first : first + self._rows]))

    def spooled(self, stand_ins: Records, file: Path) -> Records:
        """The records that these stand for, mapped from a file."""
        with file.open("wb") as out:
            for block in self.blocks(stand_ins):
                out.write(block.data)
                width = block.shape[1]
        if not len(stand_ins):
            return stand_ins
        X = np.memmap(file, np.float32, mode="r", shape=(len(stand_ins), width))
        return Records.mapped(
            X=np.asarray(X), y=stand_ins.y, party=stand_ins.party, person=stand_ins.person
        )

    def _of(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        # In the order of the file, which a disk likes; then in that of the numbers.
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        border = int(np.searchsorted(ascending, len(self._train)))
        found = np.empty((len(numbers), self._train.shape[1]), np.float32)
        found[order[:border]] = self._train[ascending[:border]]
        found[order[border:]] = self._test[ascending[border:] - len(self._train)]
        return found


def _split(raw: Dataset, experiment: Experiment) -> Split:
    """The split of a table, of records that stand for those of the table."""
    fraction = hashed_fraction(raw, experiment.data)
    stand_ins = replace(
        raw,
        train=numbered_rows(raw.train, 0),
        test=numbered_rows(raw.test, len(raw.train)),
        feature_names=("row, upper part", "row, lower part"),
        schema=None,
    )
    if not fraction:
        return Split(dataset=stand_ins)
    in_test = tested(raw.train, fraction=fraction, seed=experiment.seed_of("test split"))
    train = stand_ins.train
    dataset = replace(stand_ins, train=train.take(~in_test), test=train.take(in_test))
    return Split(dataset=dataset, by_hash=True, share=1 - fraction)


def numbered_rows(records: Records, first: int) -> Records:
    """Records whose two features are the number of their row, and all else as it is."""
    rows = np.arange(first, first + len(records), dtype=np.int64)
    X = np.column_stack(np.divmod(rows, _LIMB)).astype(np.float32)
    return Records(X=X, y=records.y, party=records.party, person=records.person)


def row_numbers(records: Records) -> NDArray[np.int64]:
    """The numbers of the rows that `numbered_rows` wrote down."""
    upper, lower = records.X.T.astype(np.int64)
    numbers: NDArray[Any] = upper * _LIMB + lower
    return numbers


def _first(records: Records, count: int) -> Records:
    return records.take(slice(0, count))
