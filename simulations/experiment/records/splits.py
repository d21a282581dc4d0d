"""Test splits of an experiment: by a public column, by a hash of every record, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data import Dataset, Records, hold_out, pooled
from fedpriv.data.builtin.registry import share_for_testing
from fedpriv.data.persons import require_persons
from fedpriv.simulations.experiment.named_files.guests import is_guest

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from fedpriv.simulations.experiment.sections import DataSection

# A requested fraction this close to the data set's own split selects that split.
_SAME_SPLIT = 0.01
DEFAULT_FRACTION = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """A data set after its test split.

    Attributes:
        dataset: With training and test records.
        by_hash: Whether a hash of every record decided which of them are for testing.
        share: The mean share of records that such a split leaves for training; 1 without one, and,
            by rounding, with one that takes next to nothing.
    """

    dataset: Dataset
    by_hash: bool = False
    share: float = 1.0

    def totals(self, *, persons: bool = False) -> NDArray[np.int64]:
        """How many records each natural party has, those that a hash draws for testing included.

        Or persons, counted at every party that has a record of theirs.
        """
        names = len(self.dataset.party_names)
        held_by = np.concatenate([holders(part) for part in self._parts])
        if persons:
            codes = np.concatenate([require_persons(part).codes for part in self._parts])
            held_by = np.unique(np.column_stack([codes, held_by]), axis=0)[:, 1]
        return np.bincount(held_by, minlength=names)

    def total(self, *, persons: bool = False) -> int:
        """How many records, or persons, there are, those that a hash draws for testing included."""
        if persons:
            return sum(len(np.unique(require_persons(part).codes)) for part in self._parts)
        return sum(map(len, self._parts))

    @property
    def _parts(self) -> tuple[Records, ...]:
        dataset = self.dataset
        return (dataset.train, dataset.test) if self.by_hash else (dataset.train,)


def split_of(dataset: Dataset, section: DataSection, seed: int) -> Split:
    """The data set's own split, if that is what is asked for; else one by hash, or none."""
    fraction = hashed_fraction(dataset, section)
    if fraction is None:
        return Split(dataset=dataset)
    if fraction == 0:
        return Split(dataset=pooled(dataset))
    held = hold_out(pooled(dataset), fraction=fraction, seed=seed)
    return Split(dataset=held, by_hash=True, share=1 - fraction)


def hashed_fraction(dataset: Dataset, section: DataSection) -> float | None:
    """How much to hold out by hash; None for the split that the data set came with.

    Decided by public facts: neighbouring data sets have the same kind of split.
    """
    wanted = section.test_fraction
    if dataset.schema is not None and dataset.schema.test_column is not None:
        if wanted is not None:
            raise ValueError(
                f"data.test_fraction must not be given, got {wanted}: the schema names a "
                "test_column, which says what is tested on."
            )
        return None
    own = _own_share(dataset, section)
    if wanted is None:
        return None if own else DEFAULT_FRACTION
    same = own and abs(own - wanted) <= _SAME_SPLIT
    return None if same else wanted


def _own_share(dataset: Dataset, section: DataSection) -> float:
    """What share of a data set came as test records; 0 for none.

    Counted of data that a function of the user's own makes, which no release takes.
    """
    if section.name is not None and not is_guest("data", section.name):
        return share_for_testing(section.name)
    return len(dataset.test) / max(1, len(dataset.train) + len(dataset.test))


def holders(records: Records) -> NDArray[np.integer[Any]]:
    """The natural party of each record; none, if records come without."""
    return np.empty(0, np.int32) if records.party is None else records.party
